"""What the engines say of themselves, sampled in their own process, and what follows from it: cached-token shares and loads.

A cached-token share is the increase of `prefix_hits` over that of `prefix_queries` between two moments, of all engines together or of one. A counter
that is lower than before belongs to a new engine on the old port, and counts from 0. A load is running + waiting requests. Times are seconds of the
schedule; a moving figure at time t is that of the `window` seconds before t.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

BOUND = 1.25
"""Times the mean load of the pool: what bounded-load placement may put on one engine, beside a whole request."""
INTERVAL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Samples:
    """Columns with one entry for each sample; those of counters and loads hold one number for each engine."""

    at: list[float]
    loads: list[list[int]]
    queries: list[list[int]]
    hits: list[list[int]]


def since(samples: Samples, began: float) -> Samples:
    """With times counted from `began`."""
    return replace(samples, at=[at - began for at in samples.at])


def increase(values: Sequence[int]) -> int:
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def cached_share(samples: Samples, begin: float, end: float, engine: int | None = None) -> float:
    """Not a number when nothing was asked."""
    first, last = _span(samples, begin, end)
    engines = range(len(samples.queries[0])) if engine is None else (engine,)
    asked = sum(increase([row[one] for row in samples.queries[first:last]]) for one in engines)
    found = sum(increase([row[one] for row in samples.hits[first:last]]) for one in engines)
    return found / asked if asked else math.nan


def mean_loads(samples: Samples, begin: float, end: float) -> list[float]:
    """Of each engine."""
    first, last = _span(samples, begin, end)
    return [fmean(column) for column in zip(*samples.loads[first:last], strict=True)]


def over_bound(loads: Sequence[float], engine: int | None = None) -> float:
    """Requests by which the largest load, or that of one engine, is above `BOUND` times the mean."""
    return (max(loads) if engine is None else loads[engine]) - BOUND * fmean(loads)


def overshoots(samples: Samples, begin: float, end: float) -> list[float]:
    """`over_bound` at each sample."""
    first, last = _span(samples, begin, end)
    return [over_bound(row) for row in samples.loads[first:last]]


def moments(samples: Samples, begin: float, end: float, window: float) -> list[float]:
    """At which a moving figure can be had that begins no earlier than `begin`."""
    return [at for at in samples.at if begin + window <= at <= end]


def back_after(
    samples: Samples, begin: float, end: float, *, level: float, window: float, engine: int | None = None
) -> float:
    """Seconds from `begin` until a moving cached-token share first reaches `level`; infinite if it does not by `end`."""
    for at in moments(samples, begin, end, window):
        if cached_share(samples, at - window, at, engine) >= level:
            return at - begin
    return math.inf


def load_back_after(
    samples: Samples, begin: float, end: float, *, level: float, window: float, engine: int
) -> float:
    """Seconds from `begin` until an engine's moving mean load first reaches `level` times that of the pool; infinite if it does not by `end`."""
    for at in moments(samples, begin, end, window):
        loads = mean_loads(samples, at - window, at)
        if loads[engine] >= level * fmean(loads):
            return at - begin
    return math.inf


def worst_overshoot(samples: Samples, begin: float, end: float, *, window: float, engine: int) -> float:
    """The most requests by which a moving mean load of an engine is above `BOUND` times that of the pool."""
    return max(
        (
            over_bound(mean_loads(samples, at - window, at), engine)
            for at in moments(samples, begin, end, window)
        ),
        default=math.nan,
    )


def load_shares(samples: Samples, begin: float, end: float, engine: int) -> list[float]:
    """Of each whole second, what part of all requests at the engines was at this one."""
    found = []
    for second in range(math.floor(end - begin)):
        loads = mean_loads(samples, begin + second, begin + second + 1)
        found.append(loads[engine] / sum(loads) if sum(loads) else 0.0)
    return found


def _span(samples: Samples, begin: float, end: float) -> tuple[int, int]:
    """The samples of a time, at least two."""
    first = bisect_left(samples.at, begin)
    last = bisect_left(samples.at, end)
    if last - first < 2:
        raise ValueError(f"no samples from {begin:.2f} to {end:.2f} s")
    return first, last
