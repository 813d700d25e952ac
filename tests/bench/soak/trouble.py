"""What goes wrong during a soak: kinds of trouble, the spans of time in which they were there, and the order in which they come.

A fault of an engine has the engine's name as its subject. Reloads and clock steps are trouble that no client may notice: they explain nothing. `LATE` and
`STARVED` are not made but found (`machine`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from random import Random
from typing import Any


class Kind(StrEnum):
    ENGINE = "engine"
    REDIS = "redis"
    RELOAD = "reload"
    CLOCK = "clock"
    LATE = "late"
    STARVED = "starved"


class Act(StrEnum):
    SWITCH = "switch"
    """Faults of `gateway.emulator.faults`, and their end."""
    REFUSE = "refuse"
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT."""
    KILL = "kill"
    """SIGKILL, and a new process on the same port."""
    WRITE = "write"
    """Another configuration file, and SIGHUP."""
    STEP = "step"
    """Of the wall clock."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Trouble:
    name: str
    kind: Kind
    act: Act
    faults: Mapping[str, Any] = field(default_factory=dict)
    argument: str = ""


def _switch(name: str, **faults: Any) -> Trouble:
    return Trouble(name, Kind.ENGINE, Act.SWITCH, faults)


TROUBLES = (
    _switch("slow", slow=6.0),
    _switch("silent", silent=True),
    _switch("reset", reset=0),
    _switch("reset in the answer", reset=3, share=0.5),
    _switch("stall before the answer", stall=0, share=0.3),
    _switch("stall in the answer", stall=3, share=0.3),
    _switch("cut", cut=3, share=0.5),
    _switch("error", error=True),
    _switch("error event", error_event=3, share=0.5),
    _switch("unhealthy", unhealthy=True),
    Trouble("refuse", Kind.ENGINE, Act.REFUSE),
    Trouble("engine frozen", Kind.ENGINE, Act.FREEZE),
    Trouble("engine killed", Kind.ENGINE, Act.KILL),
    Trouble("Redis frozen", Kind.REDIS, Act.FREEZE),
    Trouble("Redis killed", Kind.REDIS, Act.KILL),
    Trouble("reload, one engine less", Kind.RELOAD, Act.WRITE, argument="smaller"),
    Trouble("reload, bad file", Kind.RELOAD, Act.WRITE, argument="bad"),
    Trouble("reload, as before", Kind.RELOAD, Act.WRITE, argument="whole"),
    Trouble("clock an hour on", Kind.CLOCK, Act.STEP, argument="+3600"),
    Trouble("clock a day back", Kind.CLOCK, Act.STEP, argument="-86400"),
    Trouble("clock right again", Kind.CLOCK, Act.STEP, argument="+0"),
)

LATE = Trouble("late for a core", Kind.LATE, Act.NONE)
STARVED = Trouble("without a core", Kind.STARVED, Act.NONE)


def order(chance: Random) -> Iterator[Trouble]:
    """For ever; each kind once before any comes again."""
    while True:
        yield from chance.sample(TROUBLES, len(TROUBLES))


@dataclass(slots=True)
class Span:
    trouble: Trouble
    subject: str
    began: float
    ended: float = inf


class Spans:
    """What was wrong when, by any one clock."""

    def __init__(self, keep_seconds: float = 600.0) -> None:
        self._spans: list[Span] = []
        self._keep_seconds = keep_seconds
        self.counts: dict[str, int] = {trouble.name: 0 for trouble in TROUBLES}

    def begin(self, trouble: Trouble, subject: str, now: float) -> Span:
        self._spans = [span for span in self._spans if span.ended > now - self._keep_seconds]
        span = Span(trouble, subject, now)
        self._spans.append(span)
        self.counts[trouble.name] = self.counts.get(trouble.name, 0) + 1
        return span

    def were(self, kind: Kind, began: float, ended: float, subject: str = "") -> bool:
        """Whether trouble of that kind (and subject, if one is named) overlapped with the time."""
        return any(
            span.trouble.kind is kind
            and (not subject or span.subject == subject)
            and span.began <= ended
            and span.ended >= began
            for span in self._spans
        )

    def told(self, now: float, count: int = 5) -> str:
        """The last ones, for who looks for the cause of something."""
        return ", ".join(
            f"{span.trouble.name} {span.subject}".strip() + f" {now - span.began:.1f} s before"
            for span in self._spans[-count:]
        )
