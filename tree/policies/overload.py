"""Whether a lane's queue is persistently too slow, as opposed to a burst that it absorbs.

Decides: overloaded, where every queue delay that was seen during a whole interval was above the target; one below it ends that at once.
    target   = max(`target_floor_seconds`, `target_share` * budget)
    interval = max(`interval_floor_seconds`, `interval_share` * budget)
Source: CoDel (RFC 8289), the detector without its drop schedule: a queue that does its work empties now and then, one that stands does not.
Inputs: queue delays in seconds at dispatch, 0 for a request that did not have to wait; `budget` is the lane's time to the first byte: its
latency target, or the longest wait it allows. Whoever asks for a verdict shows the age of the oldest that waits first (0 where none does): an
engine that stands still dispatches nothing that could be seen.
Settings: `target_floor_seconds` (0.001..60, default 0.02), `target_share` (0..1, default 0.05), `interval_floor_seconds` (0.01..60,
default 0.5), `interval_share` (0..10, default 0.5).
Limit: the smallest delay of a lane is its lightest flow's. Where a fair queue still serves that one at once the lane is not overloaded,
whatever a heavy flow waits: it is bounded by its own deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class OverloadRules:
    target_floor_seconds: float = 0.02
    target_share: float = 0.05
    interval_floor_seconds: float = 0.5
    interval_share: float = 0.5


class QueueDelays(NamedTuple):
    above_since: float = inf
    """When the run of delays above the target began; infinite without one."""
    at: float = -inf
    """When a delay was last seen."""


NO_DELAYS = QueueDelays()


def target_seconds(budget_seconds: float, rules: OverloadRules) -> float:
    return max(rules.target_floor_seconds, rules.target_share * budget_seconds)


def interval_seconds(budget_seconds: float, rules: OverloadRules) -> float:
    return max(rules.interval_floor_seconds, rules.interval_share * budget_seconds)


def observed(
    delays: QueueDelays, delay_seconds: float, now: float, target: float, interval: float
) -> QueueDelays:
    """After one delay was seen. A silence longer than the interval ends a run: nothing is known of that time."""
    if delay_seconds <= target:
        return QueueDelays(inf, now)
    if delays.above_since == inf or now - delays.at > interval:
        return QueueDelays(now, now)
    return QueueDelays(delays.above_since, now)


def overloaded(delays: QueueDelays, now: float, interval: float) -> bool:
    return delays.at - delays.above_since >= interval and now - delays.at <= interval
