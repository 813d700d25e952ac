"""Whether the fleet can afford one more second try.

Decides: the budget after a second try, or None where it is used up. Two bounds, both with a floor, so that a quiet gateway may retry at all:
- at once: running second tries <= max(`floor`, `AT_ONCE` * `share` * running requests); bounds the load they add at one moment. Wider than the share, for the failures of one engine come
  together: one that fails fast looks idle, and has been given half of what runs before its circuit opens;
- over time: second tries <= max(`floor` * `ttl_seconds`, `share` * requests), both counted with the weight exp(-age / `ttl_seconds`); bounds attempts that fail
  so fast that few of them ever run at the same time.
An emergency that finds both used up has `emergency_floor` second tries of its own per `ttl_seconds`.
Source: Envoy's retry budget (20 %, 3), Finagle's for the second (10 s).
Inputs: requests; `now` in seconds; `arrived` counts the requests since the budget's last change, taken as spread evenly over that time: the
caller keeps one integer and sets it to 0 whenever it takes over a new state, so that a request without a second try costs nothing.
Settings: `share` (0..1, default 0.2), `floor` (at once, and per second; 0..10000, default 3), `ttl_seconds` (0.1..3600, default 10), `emergency_floor` (0..10000, default 3).
Limit: one budget for all of the fleet, per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import NamedTuple

AT_ONCE = 2.5


@dataclass(frozen=True, slots=True)
class RetryBudgetRules:
    share: float = 0.2
    floor: float = 3.0
    ttl_seconds: float = 10.0
    emergency_floor: float = 3.0


class RetryBudget(NamedTuple):
    """Decayed counts as of `at`."""

    requests: float = 0.0
    retries: float = 0.0
    emergency_retries: float = 0.0
    """Those that only the emergency floor allowed; they count among `retries` as well."""
    at: float = 0.0


NO_RETRIES = RetryBudget()


def after_retry(
    budget: RetryBudget,
    arrived: int,
    running: int,
    running_retries: int,
    emergency: bool,
    now: float,
    rules: RetryBudgetRules,
) -> RetryBudget | None:
    """None: not now, and nothing has changed. `running` counts the second tries too, as first tries of their requests."""
    elapsed = max(now - budget.at, 0.0)
    kept = exp(-elapsed / rules.ttl_seconds)
    mean_kept = rules.ttl_seconds * (1.0 - kept) / elapsed if elapsed > 0.0 else 1.0
    requests = budget.requests * kept + arrived * mean_kept
    retries = budget.retries * kept + 1.0
    emergency_retries = budget.emergency_retries * kept
    within = running_retries + 1 <= max(rules.floor, AT_ONCE * rules.share * running)
    if not within or retries > max(rules.floor * rules.ttl_seconds, rules.share * requests):
        emergency_retries += 1.0
        if not emergency or emergency_retries > rules.emergency_floor:
            return None
    return RetryBudget(requests, retries, emergency_retries, max(now, budget.at))
