"""What values have to satisfy beyond their type: ranges, spelling, uniqueness, and settings that depend on each other.

Works on readings, one per record, so that a file with a fault in one place still has all its other faults named, and so that the same
rules hold for records that did not come from a file. A rule says `(key, message)`; who calls knows the line.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from gateway.configuration.urls import host_fault, is_https, name_from_url, same_backend, url_fault
from gateway.settings import BackendSettings, PoolSettings, ServerSettings, Settings

AT_LEAST_ONE = frozenset({(Settings, "pools"), (PoolSettings, "backends")})
"""Lists that must hold something; a file has to give them although one has a default."""

_NAME = re.compile(r"[!-~]{1,128}")
_NOT_IN_NAMES = frozenset(";,=\"\\'")
_API_KEY = re.compile(r"[!-~]*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._~\[\]:-]+")


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of one record that have the right type. `hidden` names those that a message must not show."""

    record: type[Any]
    key: str
    values: Mapping[str, Any]
    hidden: frozenset[str] = frozenset()

    def at(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name


def broken_rules(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    """Every rule that does not hold, as the key it concerns and the message."""
    for reading in readings:
        yield from _ranges(reading)
        yield from _spelling(reading)
        yield from _certificate_authority(reading)
        yield from _aliases(reading)
        for name, value in reading.values.items():
            if (reading.record, name) in AT_LEAST_ONE and not value:
                yield reading.at(name), "is empty; at least one is needed"
    yield from _repeated_pool_names(readings)
    yield from _repeated_backends(readings)


def _ranges(reading: Reading) -> Iterator[tuple[str, str]]:
    for field in fields(reading.record):
        value = reading.values.get(field.name)
        if value is None or "at_least" not in field.metadata:
            continue
        at_least, at_most = field.metadata["at_least"], field.metadata["at_most"]
        if not at_least <= value <= at_most:  # written so that NaN is refused
            shown = "the value" if field.name in reading.hidden else f"{value:.15g}"
            yield (
                reading.at(field.name),
                f"{shown} is out of range; allowed: {at_least:.15g} to {at_most:.15g}",
            )


def _name_fault(name: str) -> str | None:
    if _NAME.fullmatch(name) and _NOT_IN_NAMES.isdisjoint(name):
        return None
    # Names are label values of metrics and fields of the x-headrace-route header.
    return (
        "is not a name; allowed: 1 to 128 characters of printable ASCII without spaces, quotes and ; , = \\"
    )


def _optional_name_fault(name: str) -> str | None:
    return _name_fault(name) if name else None


def _api_key_fault(value: str) -> str | None:
    if _API_KEY.fullmatch(value):
        return None
    return "cannot be sent in a header; allowed: printable ASCII without spaces"


def _origin_fault(origin: str) -> str | None:
    if origin == "*" or _ORIGIN.fullmatch(origin):
        return None
    return 'is not an origin; allowed: SCHEME://HOST[:PORT] in lower case without a path, or "*"'


_SPELLING: Mapping[tuple[type[Any], str], Callable[[str], str | None]] = {
    (ServerSettings, "host"): host_fault,
    (ServerSettings, "cors_origins"): _origin_fault,
    (PoolSettings, "name"): _name_fault,
    (BackendSettings, "url"): url_fault,
    (BackendSettings, "name"): _optional_name_fault,
    (BackendSettings, "api_key"): _api_key_fault,
}


def _spelling(reading: Reading) -> Iterator[tuple[str, str]]:
    for name, value in reading.values.items():
        fault_of = _SPELLING.get((reading.record, name))
        if fault_of is None:
            continue
        if isinstance(value, str):
            items = [(reading.at(name), value)]
        else:
            items = [(f"{reading.at(name)}[{index}]", item) for index, item in enumerate(value)]
        for key, text in items:
            if message := fault_of(text):
                yield key, message


def _certificate_authority(reading: Reading) -> Iterator[tuple[str, str]]:
    ca_file = reading.values.get("ca_file")
    if reading.record is not BackendSettings or not ca_file:
        return
    url = reading.values.get("url")
    if url is not None and url_fault(url) is None and not is_https(url):
        yield (
            reading.at("ca_file"),
            "is given for a URL that is not https; remove it, or use https",
        )
    if not os.path.isfile(ca_file):  # asked first: OpenSSL would read an endless device for ever
        yield reading.at("ca_file"), "is not a file here; a readable file in PEM format is needed"
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=ca_file)
    except ssl.SSLError:
        yield reading.at("ca_file"), "holds no certificate; a file in PEM format is needed"
    except (OSError, ValueError):
        yield reading.at("ca_file"), "cannot be read; a readable file in PEM format is needed"


def _aliases(reading: Reading) -> Iterator[tuple[str, str]]:
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


def _repeated_pool_names(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
    first: dict[str, str] = {}
    for pool in readings:
        if pool.record is PoolSettings and (name := pool.values.get("name")):
            if name in first:
                yield pool.at("name"), f"is also the name of {first[name]}; every pool needs its own"
            first.setdefault(name, pool.key)


def _repeated_backends(readings: Sequence[Reading]) -> Iterator[tuple[str, str]]:
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
                if message := _name_fault(name):
                    yield backend.at("url"), f"gives no usable name ({message}); add `name`"
                    continue
        if name:
            if name in at_name:
                yield backend.at("name"), f"is also the name of {at_name[name]}; every backend needs its own"
            at_name.setdefault(name, backend.key)
