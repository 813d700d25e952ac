"""What values have to satisfy beyond their type: ranges here, the rest by subject.

`spelling` (one text at a time), `fleet` (pools, backends, aliases), `demand` (business types, their classifier, tenants, lengths), `session_rules`, `breaker_rules`, `admin_rules`,
`degradation_faults`. All work on readings, one
per record, so that a file with a fault in one place still has all its other faults named, and so that the same rules hold for
records that did not come from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from gateway.configuration.admin_rules import admin_faults
from gateway.configuration.breaker_rules import breaker_faults
from gateway.configuration.degradation_faults import degradation_faults
from gateway.configuration.demand import demand_faults
from gateway.configuration.fleet import fleet_faults
from gateway.configuration.reading import Faults, Reading
from gateway.configuration.session_rules import session_faults
from gateway.configuration.spelling import spelling_faults
from gateway.settings import (
    BatchingSettings,
    PoolSettings,
    PromptTokensSettings,
    Settings,
    WindowSettings,
)

AT_LEAST_ONE = frozenset({(Settings, "pools"), (PoolSettings, "backends")})
"""Lists that must hold something; a file has to give them although one has a default."""

_SPANS = (WindowSettings, BatchingSettings, PromptTokensSettings)
"""Records with a `min` and a `max`."""


def broken_rules(readings: Sequence[Reading]) -> Faults:
    """Every rule that does not hold."""
    for reading in readings:
        out_of_range = list(_ranges(reading))
        yield from out_of_range
        if not out_of_range and not reading.broken:
            yield from _spans(reading)
        yield from spelling_faults(reading)
        for name, value in reading.values.items():
            if (reading.record, name) in AT_LEAST_ONE and not value:
                yield reading.at(name), "is empty; at least one is needed"
    yield from fleet_faults(readings)
    yield from demand_faults(readings)
    yield from session_faults(readings)
    yield from degradation_faults(readings)
    yield from breaker_faults(readings)
    yield from admin_faults(readings)


def _ranges(reading: Reading) -> Faults:
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


def _spans(reading: Reading) -> Faults:
    if reading.record not in _SPANS:
        return
    defaults = {field.name: field.default for field in fields(reading.record)}
    lowest, highest, start = (
        reading.values.get(name, defaults.get(name)) for name in ("min", "max", "start")
    )
    if lowest is not None and highest is not None and lowest > highest:
        yield reading.at("min"), "is above `max`; allowed: at most as much"
    elif start is not None and not (lowest or 1) <= start <= (start if highest is None else highest):
        yield reading.at("start"), "is outside of `min` to `max`; allowed: a value between them"
