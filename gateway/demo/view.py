"""What is shown, as plain records and texts: how to talk to the demo, where it stands now, how it ended.

`screen` and `lines` put the same things on a terminal and into a pipe.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.demo.business import BANK_A_KEY, MODEL, TYPES
from gateway.demo.figures import Ending, RowFigures, Span
from gateway.demo.fleet import POOLS, Fleet
from gateway.demo.load import EMERGENCIES, Load
from gateway.demo.phases import AFTER, BURST, CALM, Course, Phase, recovery_seconds
from gateway.demo.scrape import GatewayState
from gateway.demo.sparkline import buckets
from policies.terms import Lane

MAX_EVENTS = 2
_SHOWN_REASONS = 3


class RowName(NamedTuple):
    name: str
    chinese_name: str
    target: str


ROWS = (
    *(RowName(kind.name, kind.chinese_name, f"{kind.target_ms} ms") for kind in TYPES),
    RowName("emergencies", "", "by type"),
)


def introduction(port: int, engines: int) -> list[str]:
    """Lines of at most 80 characters, the commands among them fit for copying."""
    return [
        f"Headrace in front of {engines} emulated engines: modelled times, made-up words.",
        f"  curl -i 127.0.0.1:{port}/v1/chat/completions -H content-type:application/json \\",
        f'  -d \'{{"model":"{MODEL}","messages":[{{"role":"user","content":"Credit card"}}]}}\'',
        "The text says what it is (x-headrace-route). As a bank with an emergency, add:",
        f"  -H 'authorization: Bearer {BANK_A_KEY}' -H 'x-headrace-lane: emergency'",
    ]


class PoolLine(NamedTuple):
    name: str
    up: int
    engines: int
    in_flight: int
    slots: int


@dataclass(slots=True)
class View:
    """The demo as it stands. `seconds` counts from the load's beginning; `events` are the last few, each with its second."""

    fleet: Fleet
    load: Load
    course: Course
    gateway: GatewayState = field(default_factory=GatewayState)
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    seconds: float = 0.0
    phase: Phase | None = None
    recovered_in: int | None = None

    def note(self, text: str) -> tuple[float, str]:
        self.events.append((self.seconds, text))
        return self.events[-1]

    def measure_recovery(self) -> bool:
        """Whether the recovery's length has become known since the last call."""
        if self.recovered_in is not None or self.seconds < self.course.burst_end:
            return False
        self.recovered_in = recovery_seconds(
            _all_by_second(self.load.rows), self.course.burst_end, self.seconds
        )
        return self.recovered_in is not None

    @property
    def headline(self) -> str:
        phase = self.phase or self.course.phases[0]
        return f"{phase.name}: {phase.happens}"

    @property
    def recovery_text(self) -> str:
        if self.recovered_in is None:
            return ""
        return f"recovered {self.recovered_in} s after the burst: from then on nearly all was in time"

    @property
    def sessions_text(self) -> str:
        """ "" where no store is shared."""
        gateway = self.gateway
        if gateway.is_store_away is None:
            return ""
        store = "away" if gateway.is_store_away else "ok"
        return f"sessions: {gateway.sessions} active, {gateway.turns} turns kept, store {store}"

    @property
    def pools(self) -> list[PoolLine]:
        lines = []
        for plan in POOLS:
            names = [member.name for member in self.fleet.members if member.plan is plan]
            lines.append(
                PoolLine(
                    plan.name,
                    sum(self.gateway.up.get(name, False) for name in names),
                    len(names),
                    sum(self.gateway.in_flight[name] for name in names),
                    plan.window * len(names),
                )
            )
        return lines

    @property
    def engines_up(self) -> int:
        return sum(self.gateway.up.values())

    def waiting(self, row: int) -> int:
        """Requests of the row in the gateway's queue."""
        waiting = self.gateway.waiting
        if row == EMERGENCIES:
            return sum(count for (lane, _), count in waiting.items() if lane == Lane.EMERGENCY)
        return sum(
            count
            for (lane, business), count in waiting.items()
            if lane != Lane.EMERGENCY and business == TYPES[row].id
        )

    def course_of(self, row: int, size: int, marks: int) -> list[float | None]:
        """The share inside target in the last `marks` buckets of `size` seconds that have begun."""
        figures = self.load.rows[row]
        return [
            figures.within(bucket).inside_share
            for bucket in buckets(max(0, math.floor(self.seconds) - 1), size, marks)
        ]


def share(value: float | None) -> str:
    """Rounded down: 100 % means all of them."""
    return "-" if value is None else f"{int(value * 1000) / 10:g} %"


def milliseconds(value: int | None) -> str:
    return "-" if value is None else f"{value}"


def refusals(span: Span) -> str:
    """By reason, the most frequent first: `deadline 312, overloaded 4; Retry-After 1-3 s`."""
    if not span.reasons:
        return "none"
    most = span.reasons.most_common()
    shown = [f"{reason} {count}" for reason, count in most[:_SHOWN_REASONS]]
    rest = sum(count for _, count in most[_SHOWN_REASONS:])
    text = ", ".join([*shown, f"others {rest}"] if rest else shown)
    if not span.retry_after:
        return text
    shortest, longest = min(span.retry_after), max(span.retry_after)
    return f"{text}; Retry-After {shortest}{'' if shortest == longest else f'-{longest}'} s"


def summary(view: View) -> list[str]:
    whole = Span()
    for row in view.load.rows:
        whole.add(row.whole)
    answered, refused, failed = (whole.endings[ending] for ending in Ending)
    lines = [
        f"{answered} answered in {view.seconds:.0f} s, {refused} refused, {failed} failed, "
        f"{view.gateway.moved_here.total()} moved to another engine"
    ]
    lines.append("inside the target, and time to the first byte:")
    for name, row in zip(ROWS, view.load.rows, strict=True):
        lines.append(f"  {name.name + ':':22} {_by_phase(view, row)}")
    if view.recovery_text:
        lines.append(view.recovery_text)
    if view.sessions_text:
        lines.append(view.sessions_text)
    if view.load.skipped_seconds >= 0.1 or view.load.left_out:
        lines.append(
            f"this machine was too busy: nothing was sent for {view.load.skipped_seconds:.1f} s, "
            f"{view.load.left_out} requests were left out; a smaller --load helps"
        )
    return lines


def _by_phase(view: View, row: RowFigures) -> str:
    parts = []
    for phase, word in ((CALM, "calm"), (BURST, "burst"), (AFTER, "after")):
        start = view.course.start_of(phase.name)
        end = start + view.course.named(phase.name).seconds
        inside = row.within(range(math.ceil(start), math.floor(end))).inside_share
        parts.append(f"{word} {share(inside)}")
    median, late = (milliseconds(row.whole.percentile_ms(rank)) for rank in (0.5, 0.99))
    return f"{', '.join(parts)}; P50 {median}, P99 {late} ms"


def _all_by_second(rows: list[RowFigures]) -> dict[int, Span]:
    total: dict[int, Span] = {}
    for row in rows:
        for second, span in row.by_second.items():
            total.setdefault(second, Span()).add(span)
    return total
