"""The ways an emulated engine can be made to fail, and how they are switched.

| fault | value | what happens |
|---|---|---|
| `slow` | factor >= 0 | every step that begins takes this many times as long; 1 is healthy |
| `refuse` | seconds > 0 | the listener is closed for that long and idle connections are shut: new ones are refused |
| `silent` | true | nothing but this control endpoint answers; connections are accepted and stay open |
| `reset` | true or k | RST instead of an answer, or after k pieces of it |
| `stall` | k | a stream falls silent after k pieces (0: after its headers), a plain answer never comes; `/health` stays 200 |
| `cut` | k | the connection is closed after k pieces, without the final chunk; a plain answer is closed in its middle |
| `error` | true | 500 to every inference request, as when the engine's core has died |
| `error_event` | k | after k pieces an error event, `[DONE]` and a clean end under status 200; a plain request gets 500 |
| `unhealthy` | true | `/health` and `/ping` are 503 |
| `gpu_temperature_celsius`, `gpu_memory_used_mib` | number | shown in the metrics instead of the modelled value |
| `share` | 0 to 1 | the share of requests that `reset`, `stall`, `cut`, `error` and `error_event` hit; which ones follows from the seed |

A piece is one token of the answer as it is streamed. Faults of a stream are looked up at each piece, so they
take hold of streams that already run. In JSON null or false switches a fault off. `refuse` is an action and
is kept by the server, not here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

REFUSE = "refuse"
_PIECES = ("reset", "stall", "cut", "error_event")
_SWITCHES = ("silent", "error", "unhealthy")
_OPTIONAL = ("gpu_temperature_celsius", "gpu_memory_used_mib")


@dataclass(slots=True, kw_only=True)
class Faults:
    """What is wrong now. A test in the same process may set the fields itself."""

    slow: float = 1.0
    silent: bool = False
    reset: int | None = None
    stall: int | None = None
    cut: int | None = None
    error: bool = False
    error_event: int | None = None
    unhealthy: bool = False
    share: float = 1.0
    gpu_temperature_celsius: float | None = None
    gpu_memory_used_mib: float | None = None

    def clear(self) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, field.default)

    def update(self, changes: Mapping[str, object]) -> None:
        """Set the named faults, all or none. `ValueError` says which name or value is wrong and what is
        allowed."""
        checked = {name: _checked(name, value) for name, value in changes.items()}
        for name, value in checked.items():
            setattr(self, name, value)

    def state(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def _checked(name: str, value: object) -> object:
    if name in _SWITCHES and (value is None or isinstance(value, bool)):
        return bool(value)
    if name in _PIECES:
        if value is None or value is False:
            return None
        if value is True and name == "reset":
            return 0
        if type(value) is int and value >= 0:
            return value
        raise ValueError(f"{name} takes a number of pieces (0 or more) or null, not {value!r}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if name in _OPTIONAL and (number or value is None):
        return value
    if name in ("slow", "share"):
        if value is None:
            return 1.0
        if isinstance(value, int | float) and number and value >= 0 and (name == "slow" or value <= 1):
            return float(value)
    allowed = ", ".join([REFUSE, *(field.name for field in dataclasses.fields(Faults))])
    raise ValueError(f"no such fault or not its value: {name}={value!r}; faults are {allowed}")


def parse_option(option: str) -> tuple[str, object]:
    """`NAME` or `NAME=VALUE` of the command line."""
    name, _, text = option.partition("=")
    if not text or text == "true":
        return name, True
    if text in ("false", "null"):
        return name, None
    try:
        return name, int(text)
    except ValueError:
        pass
    try:
        return name, float(text)
    except ValueError:
        return name, text
