"""What the near future looks like: how long an attempt takes, how long a place in the queue waits, how much is served per second.

State of `policies.service_times` per (pool, business type, streamed or not) and of `policies.drain` for the whole queue.
Bounds: one record per configured pool and business type, twice.
Limits: one drain rate for all lines: where a fleet serves models that share no backend, a busy model's rate speaks for an idle one's.
"""

from __future__ import annotations

from policies.drain import (
    UNMEASURED,
    DrainRules,
    backlog_began,
    cost_per_second,
    finished,
    predicted_wait_seconds,
    retry_after_seconds,
)
from policies.service_times import UNSEEN, ServiceTime, ServiceTimeRules, after_service, predicted_seconds
from policies.terms import PoolName, Tag

_GOLDEN = 0.618033988749895
_RATE_SHARE = 0.3


class Forecast:
    def __init__(self) -> None:
        self._service_rules = ServiceTimeRules()
        self._drain_rules = DrainRules()
        self._services: dict[tuple[PoolName, str, bool], ServiceTime] = {}
        self._drain = UNMEASURED
        self._spread = 0.0
        self._second = 0.0
        self._ended = 0
        self.served_per_second = 0.0
        """Requests that ended, over the last seconds."""

    def service_seconds(
        self, pool: PoolName, tag: Tag, deviations: float = 0.0, unknown: float = 0.0
    ) -> float:
        """From dispatch to the first byte; `unknown` as long as too little was seen."""
        known = self._services.get((pool, tag.business, tag.streamed))
        if known is None:
            return unknown
        return predicted_seconds(known, deviations, unknown, self._service_rules)

    def wait_seconds(self, cost_ahead: float, now: float) -> float | None:
        """None while the rate is not known."""
        return predicted_wait_seconds(cost_ahead, cost_per_second(self._drain, now, self._drain_rules))

    def retry_after(self, wait_seconds: float, budget_seconds: float) -> int:
        """Spread evenly by a sequence in place of chance, so that refused clients do not come back together."""
        self._spread = (self._spread + _GOLDEN) % 1.0
        return retry_after_seconds(wait_seconds, budget_seconds, self._spread)

    def queue_began(self, now: float) -> None:
        self._drain = backlog_began(self._drain, now, self._drain_rules)

    def served(self, pool: PoolName, tag: Tag, service_seconds: float) -> None:
        key = (pool, tag.business, tag.streamed)
        known = self._services.get(key, UNSEEN)
        self._services[key] = after_service(known, service_seconds, self._service_rules)

    def ended(self, cost: float, somebody_waits: bool, now: float) -> None:
        if somebody_waits:
            self._drain = finished(self._drain, now, cost, self._drain_rules)
        self._ended += 1
        elapsed = now - self._second
        if elapsed >= 1.0:
            rate = self._ended / elapsed
            # A long pause says more than many busy seconds.
            share = _RATE_SHARE if elapsed < 2.0 else 1.0
            self.served_per_second += share * (rate - self.served_per_second)
            self._second, self._ended = now, 0
