"""Rules of `sessions`: a store that can be reached at all, keys that are keys, bounds that leave something between them. No message shows the URL: it may hold a password."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from gateway.configuration.fleet import pem_fault
from gateway.configuration.reading import Faults, Reading
from gateway.session_settings import SessionSettings
from gateway.sessions.encryption import Sealing, UnusableKeys
from gateway.sessions.redis_url import BadRedisUrl, RedisAddress

_OF_REDIS = ("redis_ca_file", "sentinel_password", "encryption_keys")


def session_faults(readings: Sequence[Reading]) -> Faults:
    for reading in readings:
        if reading.record is SessionSettings and not reading.broken:
            yield from _faults(reading)


def _faults(reading: Reading) -> Faults:
    values = {field.name: reading.values.get(field.name, field.default) for field in fields(SessionSettings)}
    for low, high in (("min_ttl_seconds", "max_ttl_seconds"), ("max_entry_kb", "max_session_kb")):
        if values[low] > values[high] >= 1:
            yield reading.at(low), f"is above `{high}`; allowed: at most as much"
    url = values["redis_url"]
    if not url:
        for name in _OF_REDIS:
            if values[name]:
                yield reading.at(name), "is given without `redis_url`; remove it, or name a Redis"
        return
    try:
        address = RedisAddress(url)
    except BadRedisUrl as error:
        yield reading.at("redis_url"), str(error)
        return
    if values["redis_ca_file"]:
        if not address.is_tls:
            yield reading.at("redis_ca_file"), "is given for a URL without TLS; remove it, or use rediss"
        elif fault := pem_fault(values["redis_ca_file"]):
            yield reading.at("redis_ca_file"), fault
    if values["sentinel_password"] and address.kind != "sentinel":
        yield (
            reading.at("sentinel_password"),
            "is given for a URL without Sentinels; remove it, or use redis+sentinel",
        )
    try:
        Sealing(values["encryption_keys"])
    except UnusableKeys as error:
        yield reading.at("encryption_keys"), str(error)
