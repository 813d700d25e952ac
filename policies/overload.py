"""Whether a queue stands, as opposed to a burst that it absorbs, and how large a share of its arrivals is then refused.

Decides: overloaded, where every delay that was seen during a whole interval was above the allowed one (`is_standing`); one below it ends that at once,
for a queue that does its work empties now and then. And what share of what comes is more than is served (`excess_share`). Delays are shares of the
request's own latency target, so requests of different targets may stand in one queue.
    interval = max(`standing_seconds`, target / 2)        tick = max(20 ms, target / 8)
    share    = 1 - f * served / asked        f = 1 + (`standing_share` - delay of who comes now) / CORRECTION_SHARE, within LEAST..MOST
`served` and `asked` are decayed sums of the same kind, so a queue settles where it holds the allowed delay, engines stay busy, and the share is gone as
soon as no more is asked for than is served. f empties a queue that is too long within about CORRECTION_SHARE of the target.
Sources: the detector is CoDel's (RFC 8289) without its drop schedule; the share is core-stateless fair queueing's excess (Stoica 1998) with an explicit
correction for the queue as in XCP (Katabi 2002). A PI controller on the delay of those that are dispatched (PIE) was tried first: that delay is as
old as itself, and with targets of a second it swung between nobody and everybody.
While a degradation rule says `shed_over_share` no burst is absorbed: one delay above the allowed one is enough.
Settings: `standing_share` (0.01..1, default 0.3), `standing_seconds` (0.01..60, default 0.5).
Limits: for queues whose requests have a target; without one nothing can be late, and the bounds of the queue are what protects it. Whoever calls it
decides whose delays count; one of a flow that a fair queue serves at once would end what the others wait in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

CORRECTION_SHARE = 0.5
LEAST, MOST = 0.5, 1.2
MAX_SHARE = 0.95
_MIN_TICK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class OverloadRules:
    standing_share: float = 0.3
    standing_seconds: float = 0.5


class Delays(NamedTuple):
    above_since: float = inf
    """When the run of delays above the allowed one began; infinite without one."""
    at: float = -inf
    """When one was last seen."""


NO_DELAYS = Delays()


def interval_seconds(target_seconds: float, rules: OverloadRules) -> float:
    return max(rules.standing_seconds, 0.5 * target_seconds)


def tick_seconds(target_seconds: float) -> float:
    return max(_MIN_TICK_SECONDS, target_seconds / 8.0)


def observed(
    delays: Delays, delay_share: float, now: float, interval_seconds: float, rules: OverloadRules
) -> Delays:
    """After one delay was seen. A silence longer than the interval ends a run: nothing is known of that time."""
    if delay_share <= rules.standing_share:
        return Delays(inf, now)
    if delays.above_since == inf or now - delays.at > interval_seconds:
        return Delays(now, now)
    return Delays(delays.above_since, now)


def is_standing(delays: Delays, now: float, interval_seconds: float, absorbs_bursts: bool = True) -> bool:
    run_seconds = delays.at - delays.above_since  # below 0 without one
    return run_seconds >= interval_seconds * absorbs_bursts and now - delays.at <= interval_seconds


def excess_share(asked: float, served: float, delay_share: float, rules: OverloadRules) -> float:
    """Of the arrivals of a queue that stands; `delay_share` is what a newcomer is predicted to wait, 0 or less where no more is asked for than is served."""
    if asked <= 0.0:
        return 0.0
    f = 1.0 + (rules.standing_share - delay_share) / CORRECTION_SHARE
    return min(1.0 - min(max(f, LEAST), MOST) * served / asked, MAX_SHARE)
