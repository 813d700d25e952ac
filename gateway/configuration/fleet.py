"""Rules for pools, backends and aliases: certificates that can be read, names and URLs that stand once."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence

from gateway.configuration.reading import Faults, Reading
from gateway.configuration.spelling import name_fault
from gateway.configuration.urls import is_https, name_from_url, same_backend, url_fault
from gateway.settings import BackendSettings, PoolSettings, Settings


def fleet_faults(readings: Sequence[Reading]) -> Faults:
    for reading in readings:
        yield from _certificate_authority(reading)
        yield from _aliases(reading)
    yield from _repeated_pool_names(readings)
    yield from _repeated_backends(readings)


def _certificate_authority(reading: Reading) -> Faults:
    ca_file = reading.values.get("ca_file")
    if reading.record is not BackendSettings or not ca_file:
        return
    url = reading.values.get("url")
    if url is not None and url_fault(url) is None and not is_https(url):
        yield (
            reading.at("ca_file"),
            "is given for a URL that is not https; remove it, or use https",
        )
    fault = pem_fault(ca_file)
    if fault is not None:
        yield reading.at("ca_file"), fault


def pem_fault(path: str) -> str | None:
    """Why a file of certificates cannot be used."""
    if not os.path.isfile(path):  # asked first: OpenSSL would read an endless device for ever
        return "is not a file here; a readable file in PEM format is needed"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError:
        return "holds no certificate; a file in PEM format is needed"
    except (OSError, ValueError):
        return "cannot be read; a readable file in PEM format is needed"
    return None


def _aliases(reading: Reading) -> Faults:
    if reading.record is not Settings:
        return
    aliases: Mapping[str, str] = reading.values.get("aliases", {})
    for alias, model in aliases.items():
        if not alias or not model:
            yield (
                f"{reading.at('aliases')}.{alias}",
                "has an empty side; allowed: a name, then the engine's model",
            )
        elif model in aliases:
            yield (
                f"{reading.at('aliases')}.{alias}",
                "maps to an alias; allowed: the name of an engine's model",
            )


def _repeated_pool_names(readings: Sequence[Reading]) -> Faults:
    first: dict[str, str] = {}
    for pool in readings:
        if pool.record is PoolSettings and (name := pool.values.get("name")):
            if name in first:
                yield pool.at("name"), f"is also the name of {first[name]}; every pool needs its own"
            first.setdefault(name, pool.key)


def _repeated_backends(readings: Sequence[Reading]) -> Faults:
    """One URL in two places would count one engine's slots twice; one name for two backends would add up their metrics."""
    at_url: dict[tuple[str, str, int, str], str] = {}
    at_name: dict[str, str] = {}
    for backend in readings:
        if backend.record is not BackendSettings:
            continue
        url, name = backend.values.get("url"), backend.values.get("name")
        if url is not None and url_fault(url) is None:
            identity = same_backend(url)
            if identity in at_url:
                yield (
                    backend.at("url"),
                    f"is the same as that of {at_url[identity]}; every backend stands once",
                )
                continue
            at_url[identity] = backend.key
            if not name:
                name = name_from_url(url)
                if message := name_fault(name):
                    yield backend.at("url"), f"gives no usable name ({message}); add `name`"
                    continue
        if name:
            if name in at_name:
                yield backend.at("name"), f"is also the name of {at_name[name]}; every backend needs its own"
            at_name.setdefault(name, backend.key)
