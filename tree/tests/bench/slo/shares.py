"""What became of the calls: endings, shares inside target, seconds.

A call belongs to the second and the phase in which it was due. It is *inside* when a whole answer of status 200 came within its type's target, counted
from when it was due; *late* when it came after that; *refused* when the answer was an error; *timed out* when the client left; *failed* when the
connection ended without an answer, or with 500 or 502, which nobody means to send. A share is always one of all calls that were due, refused ones included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from tests.bench.arithmetic import percentile
from tests.bench.slo.exchange import LOST
from tests.bench.slo.kinds import KINDS
from tests.bench.slo.load_generator import TIMED_OUT, Outcome
from tests.bench.slo.schedule import Call


class Ending(StrEnum):
    INSIDE = "inside"
    LATE = "late"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    FAILED = "failed"


_FAULTS = (LOST, 500, 502)


class Ended(NamedTuple):
    call: Call
    ending: Ending
    latency_ms: float
    sent_late_ms: float
    queue_ms: float
    """Below 0 where the answer does not say."""
    refusal: str
    """Status and reason of an answer that is an error."""
    business: str
    """The type the gateway took it for; empty where the answer does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One group of calls. Times are None where nothing was timed."""

    arrivals: int
    endings: dict[str, int]
    refusals: dict[str, int] = field(default_factory=dict)
    answer_p50_ms: float | None
    answer_p99_ms: float | None
    refusal_p99_ms: float | None
    queue_p99_ms: float | None

    @property
    def inside_share(self) -> float:
        return self.endings.get(Ending.INSIDE, 0) / self.arrivals if self.arrivals else math.nan

    def count(self, ending: Ending) -> int:
        return self.endings.get(ending, 0)


def ending(status: int, latency_ms: float, target_ms: float) -> Ending:
    if status == TIMED_OUT:
        return Ending.TIMED_OUT
    if status in _FAULTS:
        return Ending.FAILED
    if status != 200:
        return Ending.REFUSED
    return Ending.INSIDE if latency_ms <= target_ms else Ending.LATE


def ended(schedule: Sequence[Call], outcome: Outcome) -> list[Ended]:
    return [
        Ended(
            call,
            ending(status, latency, KINDS[call.kind].target_ms),
            latency,
            late,
            waited,
            f"{status} {reason}".strip() if status > 0 and status != 200 else "",
            business,
        )
        for call, status, latency, late, waited, reason, business in zip(
            schedule,
            outcome.status,
            outcome.latency_ms,
            outcome.sent_late_ms,
            outcome.queue_ms,
            outcome.reason,
            outcome.business,
            strict=True,
        )
    ]


def row(calls: Sequence[Ended]) -> Row:
    answers = [one.latency_ms for one in calls if one.ending in (Ending.INSIDE, Ending.LATE)]
    refusals = refusal_times_ms(calls)
    waits = [one.queue_ms for one in calls if one.queue_ms >= 0]
    return Row(
        arrivals=len(calls),
        endings={str(name): count for name, count in Counter(one.ending for one in calls).items()},
        refusals=dict(Counter(one.refusal for one in calls if one.refusal).most_common()),
        answer_p50_ms=median(answers) if answers else None,
        answer_p99_ms=percentile(answers, 0.99) if answers else None,
        refusal_p99_ms=percentile(refusals, 0.99) if refusals else None,
        queue_p99_ms=percentile(waits, 0.99) if waits else None,
    )


def refusal_times_ms(calls: Iterable[Ended]) -> list[float]:
    """From when they were sent: how late the load generator was is not the gateway's doing."""
    return [one.latency_ms - one.sent_late_ms for one in calls if one.ending is Ending.REFUSED]


def share_inside(calls: Iterable[Ended]) -> float:
    """Not a number when there are none."""
    every = inside = 0
    for one in calls:
        every += 1
        inside += one.ending is Ending.INSIDE
    return inside / every if every else math.nan


def allowed_share(saturation_rate: float, arrivals: int, seconds: float) -> float:
    """What part of the arrivals a fleet can answer at all that answers `saturation_rate` per second at its best."""
    return min(1.0, saturation_rate * seconds / arrivals)


def by_second(calls: Iterable[Ended], seconds: int) -> list[float]:
    """Share inside target of the calls due in each second; not a number for a second without any."""
    every, inside = [0] * seconds, [0] * seconds
    for one in calls:
        second = math.floor(one.call.due)
        if second < seconds:
            every[second] += 1
            inside[second] += one.ending is Ending.INSIDE
    return [good / count if count else math.nan for good, count in zip(inside, every, strict=True)]


def recovered_in(shares: Sequence[float], bar: float) -> int | None:
    """The first second from which every share is at least `bar`; None if the last one is below it."""
    for second in range(len(shares), 0, -1):
        if not shares[second - 1] >= bar:
            return second if second < len(shares) else None
    return 0


def agreement(calls: Iterable[Ended]) -> float | None:
    """Share of the answers that name their type whose gateway found the right one; None if no answer names any."""
    named = [KINDS[one.call.kind].name == one.business for one in calls if one.business]
    return sum(named) / len(named) if named else None
