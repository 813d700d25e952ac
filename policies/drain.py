"""How fast a queue drains, how long a place in it waits, and when a refused client should come back.

Decides: an estimate of finished cost and finished requests per second, of a pool or of any part with a queue of its own.
Formula: every finish adds to decayed sums, finished / elapsed time, both with the weight exp(-age / `time_constant_seconds`); so the estimate is
unbiased from its first sample on. Time counts only while somebody waits: an idle second says nothing of what the engines can do, and
would make the first queue after a quiet hour look hopeless. The caller says when a queue begins (`backlog_began`) and reports finishes while it
lasts (`finished`); a queue that moves nothing makes the rate fall as it is read. A queue that begins more than `forget_seconds` after the last one's
end starts anew, for the fleet may have changed.
    wait = cost ahead / cost per second
    retry-after = clamp(wait - budget, 1, 60) * U(0.8, 1.2), in whole seconds, rounded up
The spread keeps refused clients from coming back together; rounding up keeps it even at one second.
Inputs: `now`, seconds; cost in weighted tokens; `draw` uniform in [0, 1).
Settings: `time_constant_seconds` (0.1..3600, default 5), `min_samples` (1..1000000, default 20), `forget_seconds` (1..86400, default 60).
Limits: knows what is queued and not how far the running ones are, so a head of the queue waits 0 by it; its own wait is about
1 / requests per second. Per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DrainRules:
    time_constant_seconds: float = 5.0
    min_samples: int = 20
    forget_seconds: float = 60.0


class Drain(NamedTuple):
    """Decayed sums as of `at`, and how many finishes they were made of."""

    cost: float = 0.0
    requests: float = 0.0
    seconds: float = 0.0
    at: float = -inf
    samples: int = 0


UNMEASURED = Drain()


def backlog_began(drain: Drain, now: float, rules: DrainRules) -> Drain:
    """The first request of a queue began to wait: what passed since `at` does not count."""
    if now - drain.at > rules.forget_seconds:
        return Drain(at=now)
    return drain._replace(at=max(now, drain.at))


def finished(drain: Drain, now: float, cost: float, rules: DrainRules, count: int = 1) -> Drain:
    """One request ended while others waited, or some did of this `cost` together. Without a `backlog_began` before it only its time is noted."""
    total, requests, seconds, at, samples = drain
    if at == -inf:
        return Drain(at=now)
    if now > at:
        constant = rules.time_constant_seconds
        kept = exp((at - now) / constant)
        total *= kept
        requests *= kept
        seconds = seconds * kept + constant * (1.0 - kept)
        at = now
    return Drain(total + cost, requests + count, seconds, at, samples + count)


def cost_per_second(drain: Drain, now: float, rules: DrainRules) -> float | None:
    """None until it is to be relied on. `now` is read as still in the queue's time: without a queue give `drain.at`."""
    return _rate(drain.cost, drain, now, rules)


def requests_per_second(drain: Drain, now: float, rules: DrainRules) -> float | None:
    return _rate(drain.requests, drain, now, rules)


def predicted_wait_seconds(cost_ahead: float, drain_rate: float | None) -> float | None:
    """None where the rate is not known."""
    if drain_rate is None:
        return None
    if cost_ahead <= 0.0:
        return 0.0
    return cost_ahead / drain_rate if drain_rate > 0.0 else inf


def retry_after_seconds(predicted_wait: float, budget_seconds: float, draw: float) -> int:
    """`budget_seconds` is what the request could have waited; it comes back when the queue has shrunk to that."""
    excess = predicted_wait - budget_seconds if predicted_wait > budget_seconds else 0.0
    return ceil(min(max(excess, 1.0), 60.0) * (0.8 + 0.4 * draw))


def _rate(amount: float, drain: Drain, now: float, rules: DrainRules) -> float | None:
    if drain.samples < rules.min_samples:
        return None
    constant = rules.time_constant_seconds
    kept = exp(-max(now - drain.at, 0.0) / constant)
    seconds = drain.seconds * kept + constant * (1.0 - kept)
    return amount * kept / seconds if seconds > 0.0 else None
