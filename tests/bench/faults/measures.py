"""The arithmetic of a case: what was lost, until when the broken engines got traffic, and from when on they did again.

A call *failed* unless it was answered 200 to its end and without an error event; refusals count. It was *in flight* on an engine from its arrival there until its end, or
until it arrived elsewhere. What arrives without a number (canaries) is no traffic. Times count from a fault's beginning, or its end; None is never.
- detected: the last arrival before the first pause of `PAUSE_SECONDS`; what comes afterwards, while the fault lasts, is counted as *later*. An engine that refuses
  sees nothing arrive: there calls count that failed or were tried twice.
- first answer: of a call that arrived there after the end.
- recovered: its first arrival in the first `SHARE_SECONDS` in which it got `SHARE` or more of an even share of all arrivals.
Of several engines or spans, the worst.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench.faults.cases import DEAD, ENGINES, REFUSE, Case
from tests.bench.faults.fleet import NOT_OURS, Arrival
from tests.bench.faults.requests import Call

PAUSE_SECONDS = 1.0
SHARE_SECONDS = 2.0
SHARE = 0.8
_STEP_SECONDS = 0.1
_REFUSED = (429, 503)


class Ended(NamedTuple):
    call: Call
    began_at: float
    """By the monotonic clock, as all that follow."""
    ended_at: float
    status: int
    attempts: int
    begun: bool
    """Whether the body of an answer reached the client."""

    @property
    def failed(self) -> bool:
        return self.status != 200

    @property
    def is_lost(self) -> bool:
        """It failed, and could have been tried again."""
        return self.failed and (self.status > 0 or not self.begun)


class Stay(NamedTuple):
    call: int
    engine: int
    begin: float
    end: float


@dataclass(slots=True)
class Losses:
    """Of calls of one sort that were under way during the fault, and of later ones those that failed."""

    calls: int = 0
    failed: int = 0
    in_flight: int = 0
    """Of these calls, those on a broken engine when its fault began."""
    failed_in_flight: int = 0
    lost: int = 0
    """Of those that failed, those of whose answer the client had not got a byte."""

    @property
    def failed_later(self) -> int:
        return self.failed - self.failed_in_flight


@dataclass(slots=True, kw_only=True)
class Measures:
    streams: Losses = field(default_factory=Losses)
    plain: Losses = field(default_factory=Losses)
    failed_after: int = 0
    """Of those that failed, how many were made when the fault was over."""
    most_in_flight: int = 0
    """On the broken engines at once while the fault lasted."""
    detected_seconds: float | None = None
    later: int = 0
    """Calls that went there after that."""
    first_answer_seconds: float | None = None
    recovered_seconds: float | None = None
    retried: int = 0
    """Calls that took more than one attempt, as far as the gateway says so."""
    endings: dict[str, int] = field(default_factory=dict)
    """Statuses of calls that failed, with the gateway's reason."""
    opened: dict[str, int] | None = None
    """Circuits that opened, by cause; None where nobody tells."""
    over_budget: int | None = None
    """Attempts that were not repeated because too many were; None where nobody tells."""

    @property
    def in_flight(self) -> int:
        return self.streams.in_flight + self.plain.in_flight

    @property
    def failed(self) -> int:
        return self.streams.failed + self.plain.failed


def measure(
    case: Case,
    ended: Sequence[Ended],
    arrivals: Sequence[Arrival],
    changed_at: Sequence[float],
    over_at: float,
) -> Measures:
    """`over_at` is the end of the load."""
    found = Measures(retried=sum(one.attempts > 1 for one in ended))
    spans = [(changed_at[begin], changed_at[end]) for begin, end in case.spans] or [
        (ended[0].began_at, over_at)
    ]
    began_at, well_at = spans[0][0], spans[-1][1]
    staying = stays(ended, arrivals)
    broken = range(case.broken)
    there = [in_flight(staying, broken, begin) for begin, _ in spans] if broken else []
    caught = set().union(*there)
    for one in ended:
        if one.ended_at < began_at:
            continue
        losses = found.streams if one.call.streamed else found.plain
        losses.calls += one.began_at < well_at or one.failed
        losses.failed += one.failed
        losses.lost += one.is_lost
        losses.in_flight += sum(one.call.number in calls for calls in there)
        losses.failed_in_flight += one.failed and one.call.number in caught
        found.failed_after += one.failed and one.began_at >= well_at
    if broken:
        detections: list[float | None] = []
        for begin, end in spans:
            found.most_in_flight += most_in_flight(staying, broken, begin, end)
            for engine in broken:
                at = touches(case, ended, arrivals, engine)
                detections.append(detected(at, begin, end))
                if detections[-1] is not None:
                    found.later += sum(begin + detections[-1] < one < end for one in at)
        found.detected_seconds = _worst(detections)
        found.first_answer_seconds = _worst([first_answer(staying, ended, one, well_at) for one in broken])
        found.recovered_seconds = _worst([recovered(arrivals, one, well_at, over_at) for one in broken])
    return found


def stays(ended: Sequence[Ended], arrivals: Iterable[Arrival]) -> list[Stay]:
    """In the order of their calls; `ended` is in the order of the calls' numbers."""
    by_call: defaultdict[int, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        if arrival.call != NOT_OURS:
            by_call[arrival.call].append(arrival)
    found = []
    for number, came in sorted(by_call.items()):
        came.sort()
        ends = [*(later.at for later in came[1:]), ended[number].ended_at]
        found += [Stay(number, one.engine, one.at, end) for one, end in zip(came, ends, strict=True)]
    return found


def in_flight(staying: Iterable[Stay], engines: range, at: float) -> set[int]:
    return {one.call for one in staying if one.engine in engines and one.begin < at <= one.end}


def most_in_flight(staying: Sequence[Stay], engines: range, begin: float, until: float) -> int:
    moments = [begin, *(one.begin for one in staying if one.engine in engines and begin < one.begin <= until)]
    # Just after each arrival, which is when there are most.
    return max(len(in_flight(staying, engines, at + 1e-6)) for at in moments)


def touches(case: Case, ended: Iterable[Ended], arrivals: Iterable[Arrival], engine: int) -> list[float]:
    """When calls went to this engine, in order; where its listener is gone, those that noticed."""
    faults = case.changes[0].faults
    if REFUSE in faults or DEAD in faults:
        return sorted(one.began_at for one in ended if one.failed or one.attempts > 1)
    return sorted(one.at for one in arrivals if one.engine == engine and one.call != NOT_OURS)


def detected(at: Sequence[float], begin: float, end: float) -> float | None:
    last = begin
    for one in at:
        if begin <= one < end:
            if one - last >= PAUSE_SECONDS:
                break
            last = one
    return None if end - last < PAUSE_SECONDS else last - begin


def first_answer(
    staying: Iterable[Stay], ended: Sequence[Ended], engine: int, well_at: float
) -> float | None:
    good = [
        one.end
        for one in staying
        if one.engine == engine and one.begin >= well_at and not ended[one.call].failed
    ]
    return min(good) - well_at if good else None


def recovered(arrivals: Iterable[Arrival], engine: int, well_at: float, over_at: float) -> float | None:
    later = [one for one in arrivals if one.at >= well_at and one.call != NOT_OURS]
    for step in range(int((over_at - well_at - SHARE_SECONDS) / _STEP_SECONDS) + 1):
        begin = well_at + step * _STEP_SECONDS
        inside = [one for one in later if begin <= one.at < begin + SHARE_SECONDS]
        own = [one.at for one in inside if one.engine == engine]
        if own and len(own) >= SHARE * len(inside) / ENGINES:
            return min(own) - well_at
    return None


def endings(ended: Iterable[Ended], reasons: Mapping[int, str]) -> dict[str, int]:
    """What became of the calls that failed."""
    counts = Counter(
        f"{_NAMES.get(one.status, one.status)} {reasons.get(one.call.number, '')}".strip()
        for one in ended
        if one.failed
    )
    return dict(counts.most_common())


_NAMES = {0: "lost", -1: "timed out", -2: "error event"}


def _worst(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return max(known) if known and len(known) == len(seconds) else None
