"""What the rules work on: the values of one record, wherever they came from, and the key path at which a fault names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Faults = Iterator[tuple[str, str]]
"""Of each rule that does not hold: the key it concerns, and the message. Who calls knows the line."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of one record that have the right type. `hidden` names those that a message must not show, `broken` those with a fault."""

    record: type[Any]
    key: str
    values: Mapping[str, Any]
    hidden: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()

    def at(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name
