"""Rules for business types, their classifier, tenants, lengths and how long prefixes are remembered: names that stand once, references that lead somewhere, matches that are one type's only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from gateway.admin_settings import AdminSettings
from gateway.affinity_settings import AffinitySettings
from gateway.classifier_file import UnusableModel, read_model
from gateway.configuration.reading import Faults, Reading
from gateway.settings import (
    AnonymousSettings,
    BusinessTypeSettings,
    ClassifierSettings,
    LengthSettings,
    MatchSettings,
    PoolSettings,
    TenantSettings,
)
from policies.classify import DEFAULT
from policies.terms import Lane

_ONE_OWNER = ("keywords", "system_prompts", "system_prompt_sha256", "models", "paths", "tenants")
_URGENCY = list(Lane)


def demand_faults(readings: Sequence[Reading]) -> Faults:
    pools = _named(readings, PoolSettings)
    types = _named(readings, BusinessTypeSettings)
    tenants = _named(readings, TenantSettings)
    yield from _repeated_names(readings, BusinessTypeSettings, types, "business type")
    yield from _repeated_names(readings, TenantSettings, tenants, "tenant")
    yield from _repeated_keys(readings)
    yield from _repeated_matches(readings)
    for reading in readings:
        values = reading.values
        if reading.record is BusinessTypeSettings:
            yield from _references(reading, "pools", pools)
        elif reading.record is MatchSettings:
            yield from _references(reading, "tenants", tenants)
        elif reading.record is TenantSettings:
            if values.get("business_type", "") not in ("", DEFAULT.name, *types):
                yield reading.at("business_type"), "is unknown; allowed: the name of one of `business_types`"
            yield from _lane_above_ceiling(reading)
        elif reading.record is ClassifierSettings:
            yield from _classifier(reading, types)
        elif reading.record is LengthSettings:
            yield from _lengths(reading)
        elif reading.record is AffinitySettings:
            yield from _lifetimes(reading)
    yield from _nobody_may_call(readings)
    yield from _tenants_out_of_reach(readings)


def _named(readings: Sequence[Reading], record: type[Any]) -> dict[str, str]:
    """The names that records of this kind have, and the key of the first of each name."""
    found: dict[str, str] = {}
    for reading in readings:
        if reading.record is record and (name := reading.values.get("name")):
            found.setdefault(name, reading.key)
    return found


def _repeated_names(
    readings: Sequence[Reading], record: type[Any], first: dict[str, str], what: str
) -> Faults:
    for reading in readings:
        name = reading.values.get("name")
        if reading.record is record and name and first[name] != reading.key:
            yield reading.at("name"), f"is also the name of {first[name]}; every {what} needs its own"


def _repeated_keys(readings: Sequence[Reading]) -> Faults:
    first: dict[str, str] = {}
    for reading in readings:
        if reading.record not in (TenantSettings, AdminSettings):
            continue
        for index, digest in enumerate(reading.values.get("key_sha256", ())):
            place = f"{reading.at('key_sha256')}[{index}]"
            if digest.lower() in first:
                yield (
                    place,
                    f"is the same as {first[digest.lower()]}; a key belongs to one tenant, or to `admin`",
                )
            first.setdefault(digest.lower(), place)


def _repeated_matches(readings: Sequence[Reading]) -> Faults:
    """A text that names two types would make one of them by the order of the file alone."""
    first: dict[tuple[str, str], str] = {}
    for reading in readings:
        if reading.record is not MatchSettings:
            continue
        for name in _ONE_OWNER:
            for index, item in enumerate(reading.values.get(name, ())):
                place = f"{reading.at(name)}[{index}]"
                same = name, item.strip() if name == "system_prompts" else item
                if name in ("keywords", "system_prompt_sha256"):
                    same = name, item.lower()
                if same in first:
                    yield place, f"is the same as {first[same]}; each stands once"
                first.setdefault(same, place)


def _references(reading: Reading, name: str, known: dict[str, str]) -> Faults:
    items: Sequence[str] = reading.values.get(name, ())
    for index, item in enumerate(items):
        place = f"{reading.at(name)}[{index}]"
        if item not in known:
            yield place, f"is unknown; allowed: the name of one of `{name}`"
        elif name == "pools" and item in items[:index]:
            yield place, "stands there twice; keep one"


def _classifier(reading: Reading, types: dict[str, str]) -> Faults:
    file = reading.values.get("file")
    if not file:
        return
    try:
        model = read_model(file)
    except UnusableModel as unusable:
        yield reading.at("file"), str(unusable)
        return
    for name in model.types:
        if name != DEFAULT.name and name not in types:
            yield (
                reading.at("file"),
                f"knows a business type {name!r}; allowed: `default` and the names of `business_types`",
            )


def _lane_above_ceiling(reading: Reading) -> Faults:
    lane, ceiling = reading.values.get("default_lane"), reading.values.get("max_lane", Lane.INTERACTIVE)
    if (
        lane is not None
        and "max_lane" not in reading.broken
        and _URGENCY.index(lane) < _URGENCY.index(ceiling)
    ):
        yield reading.at("default_lane"), f"is above `max_lane`; allowed: at most {ceiling}"


def _lengths(reading: Reading) -> Faults:
    short, long = (reading.values.get(field.name, field.default) for field in fields(LengthSettings))
    if not reading.broken and short > long >= 1:
        yield reading.at("short_below"), "is above `long_above`; allowed: at most as much"


def _lifetimes(reading: Reading) -> Faults:
    values = {field.name: reading.values.get(field.name, field.default) for field in fields(AffinitySettings)}
    if not reading.broken and values["min_ttl_seconds"] > values["max_ttl_seconds"] >= 1:
        yield reading.at("min_ttl_seconds"), "is above `max_ttl_seconds`; allowed: at most as much"


def _nobody_may_call(readings: Sequence[Reading]) -> Faults:
    if any(reading.record is TenantSettings for reading in readings):
        return
    for reading in readings:
        if reading.record is AnonymousSettings and reading.values.get("allow") is False:
            yield reading.at("allow"), "shuts everybody out, since there are no `tenants`; allowed: true"


def _tenants_out_of_reach(readings: Sequence[Reading]) -> Faults:
    clients = (TenantSettings, AnonymousSettings)
    if any(one.record in clients and one.values.get("trust_headers") is True for one in readings):
        return  # who may name a tenant
    for reading in readings:
        if reading.record is TenantSettings and not (
            reading.values.get("key_sha256") or "key_sha256" in reading.broken
        ):
            yield (
                reading.at("key_sha256"),
                "is empty, and no client with `trust_headers` could name this tenant; at least one is needed",
            )
