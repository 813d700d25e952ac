"""The faults, each a plan of changes to a fleet that is under load.

A plan begins with a warm-up. What the faults mean is told in `gateway.emulator.faults`; besides, an engine can be *dead*: its process is gone, with all its connections,
and a new one with an empty cache comes back on the same port. `FLAPPING` and `OVERLOAD_SECONDS` are fixed by the requirements, hence not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ENGINES = 8
PIECES = 5
"""k: so many pieces of a stream come before it stalls or is cut."""
SLOWNESS = 5.0
FLAPPING_SECONDS = 10.0
OVERLOAD = 3.0
"""Times what the fleet can answer at most."""
OVERLOAD_SECONDS = 60.0
LOAD = 0.45
"""Of what the fleet can answer at most: half of it can nearly carry this."""

WARM_UP_SECONDS = 5.0
FAULT_SECONDS = 8.0
AFTER_SECONDS = 13.0


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to the first `engines` at `at`, in seconds from the beginning of the load. No `faults` makes them well again."""

    at: float
    engines: int
    faults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_fault(self) -> bool:
        return bool(self.faults)


@dataclass(frozen=True, slots=True)
class Phase:
    seconds: float
    load: float
    """Of what the fleet can answer at most."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    title: str
    phases: tuple[Phase, ...]
    changes: tuple[Change, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def broken(self) -> int:
        """How many engines it breaks."""
        return max((change.engines for change in self.changes), default=0)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Numbers of the changes that begin and end a fault."""
        return [(number, number + 1) for number in range(0, len(self.changes), 2)]


REFUSE, DEAD = "refuse", "dead"
"""Faults that are an engine's listener, not its switches."""


def _one(
    name: str, title: str, faults: Mapping[str, Any], seconds: float, engines: int = 1, warm_up: float = 0.0
) -> Case:
    begin = WARM_UP_SECONDS + warm_up
    changes = (Change(begin, engines, faults), Change(begin + seconds, engines))
    return Case(name, title, (Phase(begin + seconds + AFTER_SECONDS, LOAD),), changes)


def cases(seconds: float = FAULT_SECONDS) -> dict[str, Case]:
    """All of them by name; a fault lasts so long where nothing else is said."""
    flaps = tuple(
        Change(WARM_UP_SECONDS + number * FLAPPING_SECONDS, 1, {} if number % 2 else {"reset": True})
        for number in range(4)
    )
    flapping = Phase(flaps[-1].at + AFTER_SECONDS, LOAD)
    # A slow engine is told by comparing it with the others over two windows of 10 s.
    slow = _one("slow", f"slow x{SLOWNESS:g}", {"slow": SLOWNESS}, max(seconds, 20.0), warm_up=10.0)
    found = [
        _one("refuse", "refuses connections", {REFUSE: True}, seconds),
        _one("reset", "resets every connection", {"reset": True}, seconds),
        _one("silent", "silent, as if stopped", {"silent": True, "stall": 0}, seconds),
        _one("stall", f"stalls after {PIECES} pieces", {"stall": PIECES}, seconds),
        _one("cut", f"cuts after {PIECES} pieces", {"cut": PIECES}, seconds),
        _one("500", "500 to everything", {"error": True}, seconds),
        _one("200-then-error", "200, then an error event", {"error_event": 0}, seconds),
        slow,
        Case(
            "flapping",
            f"resets for {FLAPPING_SECONDS:g} s of every {2 * FLAPPING_SECONDS:g}",
            (flapping,),
            flaps,
        ),
        _one("half-dead", "half of the fleet dead", {DEAD: True}, seconds, ENGINES // 2),
        _one("all-dead", "all dead and back", {DEAD: True}, seconds, ENGINES),
        Case(
            "overload",
            f"no fault, {OVERLOAD:g} times what the fleet can answer",
            (
                Phase(WARM_UP_SECONDS, LOAD),
                Phase(OVERLOAD_SECONDS, OVERLOAD),
                Phase(WARM_UP_SECONDS, LOAD),
            ),
        ),
    ]
    return {case.name: case for case in found}
