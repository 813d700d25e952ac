"""The course of the show: calm, a burst, calm again, the loss of an engine, and calm for as long as the demo goes on.

Decides which phase a second belongs to. A phase's `factor` is its load as a multiple of what the fleet can do (`fleet`). `course(seconds)` squeezes
all phases alike into a run that is shorter than `SHOW_SECONDS`, so that a short one shows the same things; a longer or an endless one
stays in the last phase.

`recovery_seconds` measures what the burst left behind: the whole seconds from its end to the first one from which on, for
`STEADY_SECONDS`, `RECOVERED_SHARE` of the requests that were due were answered inside their target. None as long as they have not all ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.demo.figures import Span

CALM_FACTOR = 0.75
BURST_FACTOR = 2.0
STEADY_SECONDS = 3
RECOVERED_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    factor: float
    seconds: float
    happens: str
    """One sentence that fits a terminal of 80 columns behind the time and the name."""


CALM = Phase("calm", CALM_FACTOR, 10.0, "three quarters of what the fleet can do; nobody waits for long")
BURST = Phase(
    "burst", BURST_FACTOR, 12.0, "twice what the fleet can do; what would be late is refused at once"
)
AFTER = Phase("after the burst", CALM_FACTOR, 14.0, "no stale work is queued, so all can be in time again")
OUTAGE = Phase("outage", CALM_FACTOR, 7.0, "an engine refuses connections, on purpose; the others take over")
LAST = Phase("calm", CALM_FACTOR, 5.0, "it goes on like this until Ctrl-C; try the curl above")
_PHASES = (CALM, BURST, AFTER, OUTAGE, LAST)
SHOW_SECONDS = sum(phase.seconds for phase in _PHASES)


@dataclass(frozen=True, slots=True)
class Course:
    phases: tuple[Phase, ...]

    def at(self, seconds: float) -> Phase:
        """Before the beginning it is the first one, past the end the last one."""
        for phase in self.phases:
            seconds -= phase.seconds
            if seconds < 0:
                return phase
        return self.phases[-1]

    def start_of(self, name: str) -> float:
        """Of the first phase with that name."""
        index = [phase.name for phase in self.phases].index(name)
        return sum(phase.seconds for phase in self.phases[:index])

    def named(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def burst_end(self) -> float:
        return self.start_of(AFTER.name)


def course(seconds: float | None) -> Course:
    """For a run of so many seconds; None is one without an end."""
    scale = 1.0 if seconds is None else min(1.0, seconds / SHOW_SECONDS)
    return Course(tuple(replace(phase, seconds=phase.seconds * scale) for phase in _PHASES))


def recovery_seconds(by_second: Mapping[int, Span], burst_end: float, now: float) -> int | None:
    """`by_second` holds what became of the requests that were due in each second of the run."""
    first = math.ceil(burst_end)
    for start in range(first, math.floor(now) - STEADY_SECONDS + 1):
        stretch = Span()
        for second in range(start, start + STEADY_SECONDS):
            stretch.add(by_second.get(second, Span()))
        if stretch.ended < stretch.sent:
            return None
        if (stretch.inside_share or 0.0) >= RECOVERED_SHARE:
            return start - first
    return None
