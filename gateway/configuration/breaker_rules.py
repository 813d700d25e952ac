"""Rules of `breaker`: bounds that leave something between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from gateway.breaker_settings import BreakerSettings
from gateway.configuration.reading import Faults, Reading


def breaker_faults(readings: Sequence[Reading]) -> Faults:
    for reading in readings:
        if reading.record is BreakerSettings and not reading.broken:
            values = {
                field.name: reading.values.get(field.name, field.default) for field in fields(BreakerSettings)
            }
            if values["open_seconds"] > values["max_open_seconds"]:
                yield reading.at("open_seconds"), "is above `max_open_seconds`; allowed: at most as much"
