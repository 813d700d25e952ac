"""What a configuration can have wrong with it: one record per fault, and the one exception that carries all of them.

A message has two halves, `what is wrong; what is allowed`. It never holds a secret: no `api_key`, no URL (it may hold a password)
and nothing that came from the environment is ever quoted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault. `line` counts from 1; 0 stands for the whole file. `key` is a path such as `pools[0].backends[1].url`, or empty."""

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(printable(part) for part in (place, self.key, self.message) if part)


class ConfigurationError(Exception):
    """Raised when a configuration cannot be used; `faults` holds everything that was found, in the order of the file."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


def printable(text: str) -> str:
    """`text` with line breaks, terminal controls and half surrogate pairs escaped, so that a fault is one harmless line."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
