"""Fills frozen records from a YAML node tree: which keys there are, and of which type, is read off the records themselves.

A key is required where its field has no default, where the default lies outside of the field's own range, and for lists that must
hold something. A record with a fault becomes `BROKEN` and its parent goes on, so that one pass finds every fault.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Final

import yaml

from gateway.configuration.faults import Fault
from gateway.configuration.reading import Reading
from gateway.configuration.rules import AT_LEAST_ONE
from gateway.configuration.scalars import WrongValue, as_value, expand, is_null, suggestion

_KEY_LIKE = re.compile(r"[A-Za-z0-9_-]{1,60}")

BROKEN: Final = object()
"""Stands for a value that has a fault."""


class Reader:
    """Walks one tree. `faults`, `readings` and `lines` (of each key path) are complete when `record()` returns for the root."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self.faults: list[Fault] = []
        self.readings: list[Reading] = []
        self.lines: dict[str, int] = {}
        self._file = file
        self._environment = environment
        self._from_environment: set[str] = set()

    def record(self, kind: type[Any], node: yaml.Node, key: str) -> Any:
        """An instance of the dataclass `kind`, or `BROKEN`."""
        if not isinstance(node, yaml.MappingNode):
            return self._fault(key, f"is {_shape(node)}; a mapping is needed, with the keys {_known(kind)}")
        self.lines.setdefault(key, node.start_mark.line + 1)
        values: dict[str, Any] = {}
        hints = _hints(kind)
        given = self._entries(node, key)
        sound = len(given) == len(node.value)
        for name, value_node in given.items():
            path = _join(key, name)
            if name in hints:
                values[name] = self._value(hints[name], value_node, path)
            else:
                values[name] = self._fault(_join(key, _shown(name)), _unknown(kind, name), self.lines[path])
        for field in fields(kind):
            if field.name not in given and _is_required(kind, field):
                values[field.name] = BROKEN
                message = f"is missing from {key or 'the file'}; it has no default"
                self._fault(_join(key, field.name), message, self.lines[key])
        usable = {name: value for name, value in values.items() if value is not BROKEN}
        hidden = frozenset(name for name in usable if _join(key, name) in self._from_environment)
        self.readings.append(Reading(kind, key, usable, hidden, frozenset(values) - frozenset(usable)))
        return kind(**usable) if sound and len(usable) == len(values) else BROKEN

    def _value(self, kind: Any, node: yaml.Node, key: str) -> Any:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is types.UnionType:
            inner = next(argument for argument in arguments if argument is not types.NoneType)
            return None if is_null(node) else self._value(inner, node, key)
        if origin is tuple:
            return self._sequence(arguments[0], node, key)
        if origin is dict:
            return self._mapping(arguments[1], node, key)
        if is_dataclass(kind):
            return self.record(typing.cast("type[Any]", kind), node, key)
        if not isinstance(node, yaml.ScalarNode):
            return self._fault(key, f"is {_shape(node)}; a single value is needed")
        try:
            scalar = expand(node, self._environment)
            if scalar.from_environment:
                self._from_environment.add(key)
            return as_value(scalar, kind)
        except WrongValue as wrong:
            return self._fault(key, str(wrong))

    def _sequence(self, kind: Any, node: yaml.Node, key: str) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._fault(key, f"is {_shape(node)}; a list is needed")
        items = []
        for index, item in enumerate(node.value):
            path = f"{key}[{index}]"
            self.lines[path] = item.start_mark.line + 1
            items.append(self._value(kind, item, path))
        return BROKEN if BROKEN in items else tuple(items)

    def _mapping(self, kind: Any, node: yaml.Node, key: str) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._fault(key, f"is {_shape(node)}; a mapping of names to values is needed")
        given = self._entries(node, key)
        values = {name: self._value(kind, item, _join(key, name)) for name, item in given.items()}
        sound = len(given) == len(node.value) and BROKEN not in values.values()
        return values if sound else BROKEN

    def _entries(self, node: yaml.MappingNode, key: str) -> dict[str, yaml.Node]:
        """The entries whose key is text and stands there for the first time; the others are faults."""
        entries: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key, f"has {_shape(key_node)} for a key; a key is text", line)
                continue
            if "${" in key_node.value:
                self._fault(key, "has a key with `${`; the environment fills values only", line)
                continue
            try:
                name = as_value(expand(key_node, {}), str)
            except WrongValue as wrong:
                self._fault(key, f"has a key that {wrong}", line)
                continue
            path = _join(key, name)
            if name in entries:
                self._fault(path, f"stands there twice, first on line {self.lines[path]}; keep one", line)
                continue
            self.lines[path] = line
            entries[name] = value_node
        return entries

    def _fault(self, key: str, message: str, line: int | None = None) -> Any:
        self.faults.append(Fault(self._file, self.lines[key] if line is None else line, key, message))
        return BROKEN


def _hints(kind: type[object]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _is_required(kind: type[Any], field: Field[Any]) -> bool:
    if (kind, field.name) in AT_LEAST_ONE or (field.default is MISSING and field.default_factory is MISSING):
        return True
    bounds = field.metadata
    if "at_least" not in bounds or field.default is None:
        return False
    return not bounds["at_least"] <= field.default <= bounds["at_most"]


def _unknown(kind: type[Any], name: str) -> str:
    return f"is an unknown key{suggestion(name, list(_hints(kind)))}; allowed: {_known(kind)}"


def _known(kind: type[Any]) -> str:
    return ", ".join(_hints(kind))


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _shown(name: str) -> str:
    """An unknown key as far as it looks like one: `{api_key:abc}`, for want of a blank, is the key `api_key:abc` to YAML."""
    head = _KEY_LIKE.match(name)
    shown = head[0] if head else ""
    return shown if shown == name else f"{shown}..."


def _shape(node: yaml.Node) -> str:
    if is_null(node):
        return "empty"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
