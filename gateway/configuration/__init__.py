"""The configuration file: from YAML to `Settings`, or to every fault with file, line, key, and what is allowed.

In: one YAML file, or its text, and the environment for `${NAME}`. Out: `gateway.settings.Settings`, or a `ConfigurationError`
with all faults that could be found; a file that is not YAML at all has only the first. Nothing else is ever raised, whatever
the file holds. Keys, types, defaults and ranges are those of `gateway.settings`, which has no list of its own here.

Way through: `document` (bytes to nodes), `records` with `scalars` (nodes to records), `rules` (what values must satisfy: `spelling`, `fleet`
and `demand` by subject, `urls` and `patterns` for single texts).

Limits: a `ca_file` and a classifier's `file` are opened here, so a file that is checked on one machine may fail on another; host names are not resolved and
backends are not asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gateway.configuration.document import compose, read
from gateway.configuration.faults import ConfigurationError, Fault
from gateway.configuration.reading import Reading
from gateway.configuration.records import BROKEN, Reader
from gateway.configuration.rules import broken_rules
from gateway.configuration.urls import name_from_url
from gateway.settings import BackendSettings, BusinessTypeSettings, Settings
from policies.classify import DEFAULT

__all__ = ["ConfigurationError", "Fault", "backend_name", "business_type_names", "load", "parse", "verify"]


def load(path: str, environment: Mapping[str, str]) -> Settings:
    """The settings in the file at `path`."""
    return parse(read(path), path, environment)


def parse(text: str, file: str, environment: Mapping[str, str]) -> Settings:
    """The settings in `text`; `file` is what faults call it."""
    root = compose(text, file)
    reader = Reader(file, environment)
    settings = reader.record(Settings, root, "")
    faults = list(reader.faults)
    for key, message in broken_rules(reader.readings):
        faults.append(Fault(file, _line(reader.lines, key), key, message))
    if faults:
        raise ConfigurationError(faults)
    assert settings is not BROKEN and isinstance(settings, Settings), "a broken record always leaves a fault"
    return settings


def verify(settings: Settings, source: str) -> None:
    """Holds settings that did not come from a file (a command line's) to the same rules; faults name `source` and have no line."""
    faults = [Fault(source, 0, key, message) for key, message in broken_rules(list(_readings(settings, "")))]
    if faults:
        raise ConfigurationError(faults)


def backend_name(backend: BackendSettings) -> str:
    """What metrics, logs and headers call `backend`: its name, or `host[:port]` or the socket's path where it has none."""
    return backend.name or name_from_url(backend.url)


def business_type_names(path: str, environment: Mapping[str, str]) -> frozenset[str]:
    """Names that a label may have under the configuration at `path`, which may have faults elsewhere: its classifier may not be trained yet."""
    reader = Reader(path, environment)
    reader.record(Settings, compose(read(path), path), "")
    types = [reading.values for reading in reader.readings if reading.record is BusinessTypeSettings]
    return frozenset({DEFAULT.name, *(values["name"] for values in types if "name" in values)})


def _line(lines: Mapping[str, int], key: str) -> int:
    """The line of `key`, or of the record it belongs to where it is not written in the file."""
    return lines.get(key) or lines.get(key.rpartition(".")[0]) or 0


def _readings(record: Any, key: str) -> Iterator[Reading]:
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    reading = Reading(type(record), key, values)
    yield reading
    for name, value in values.items():
        if is_dataclass(value):
            yield from _readings(value, reading.at(name))
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if is_dataclass(item):
                    yield from _readings(item, f"{reading.at(name)}[{index}]")
