"""What the near future looks like: how long an attempt takes, how long a place in the queue waits, how much is served per second.

State of `policies.service_times` per (pool, business type, streamed or not) and of `policies.drain` for the whole queue.
Past its first `ENOUGH_SAMPLES` a service time learns from one answer in `LEARN_SECONDS`: more of them in so short a time say nothing new.
The queue's drain takes the finishes of `STEP_SECONDS` together, or all there are when somebody asks: a hundredth of its time constant.
A flow's own drain is measured from when somebody first asked for it; nobody does of flows without deadlines.
Bounds: one record per configured pool and business type, twice; `MAX_FLOWS` flows, those that were asked for or began to wait last.
Limits: one drain rate for all lines: where a fleet serves models that share no backend, a busy model's rate speaks for an idle one's.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf

from policies.drain import (
    UNMEASURED,
    Drain,
    DrainRules,
    backlog_began,
    cost_per_second,
    finished,
    predicted_wait_seconds,
    requests_per_second,
    retry_after_seconds,
)
from policies.service_times import UNSEEN, ServiceTimeRules, after_service, predicted_seconds
from policies.terms import PoolName, Tag

_GOLDEN = 0.618033988749895
_RATE_SHARE = 0.3
MAX_FLOWS = 1024
STEP_SECONDS = 0.05
ENOUGH_SAMPLES = 64
LEARN_SECONDS = 0.02


_Flow = tuple[str, str, str, tuple[PoolName, ...]]
"""Lane, tenant, business type and pools: who waits for the same slots with the same share."""


class _Services:
    __slots__ = ("learns_at", "time")

    def __init__(self) -> None:
        self.time = UNSEEN
        self.learns_at = 0.0


class Forecast:
    def __init__(self) -> None:
        self._service_rules = ServiceTimeRules()
        self._drain_rules = DrainRules()
        self._services: dict[tuple[PoolName, str, bool], _Services] = {}
        self._drain = UNMEASURED
        self._finished_cost, self._finished, self._finished_at = 0.0, 0, 0.0
        """What is not in `_drain` yet: cost and number of finishes, and when the last one was."""
        self._step_ends = -inf
        self._flow_rules = DrainRules(time_constant_seconds=1.0)
        self._flows: OrderedDict[_Flow, Drain] = OrderedDict()
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
        return predicted_seconds(known.time, deviations, unknown, self._service_rules)

    def quickest_seconds(self, pool: PoolName) -> float | None:
        """Of the streamed answers that a pool gives, those of the business type that begins soonest; None while too little was seen."""
        known = [
            predicted_seconds(one.time, 0.0, inf, self._service_rules)
            for (name, _, streamed), one in self._services.items()
            if streamed and name == pool
        ]
        quickest = min(known, default=inf)
        return None if quickest == inf else quickest

    def wait_seconds(self, cost_ahead: float, somebody_waits: bool, now: float) -> float | None:
        """None while the rate is not known. Where nobody waits time says nothing against the rate."""
        return predicted_wait_seconds(cost_ahead, self.drain_rate(somebody_waits, now))

    def turn_seconds(self, place: int, now: float) -> float | None:
        """How long the `place`-th of those who wait has to wait, by the rate at which requests end while some wait; None while it is not known."""
        self._sum_up()
        return predicted_wait_seconds(float(place), requests_per_second(self._drain, now, self._drain_rules))

    def drain_rate(self, somebody_waits: bool, now: float) -> float | None:
        """Weighted tokens per second that are served while requests wait; None while it is not known."""
        self._sum_up()
        return cost_per_second(self._drain, now if somebody_waits else self._drain.at, self._drain_rules)

    def retry_after(self, wait_seconds: float, budget_seconds: float) -> int:
        """Spread evenly by a sequence in place of chance, so that refused clients do not come back together."""
        self._spread = (self._spread + _GOLDEN) % 1.0
        return retry_after_seconds(wait_seconds, budget_seconds, self._spread)

    def wait_of_flow(self, tag: Tag, flow_waiting: int, now: float) -> float | None:
        """How long a newcomer waits by the rate at which its own flow was served while it had to wait; None while that is not known."""
        key = _flow_of(tag)
        drain = self._flows.get(key)
        if drain is None:
            self._measure(key, UNMEASURED)
            return None
        rate = requests_per_second(drain, now if flow_waiting else drain.at, self._flow_rules)
        return predicted_wait_seconds(flow_waiting + 1.0, rate)

    def flow_began(self, tag: Tag, now: float) -> None:
        """The first of a flow began to wait."""
        if self._flows:
            key = _flow_of(tag)
            drain = self._flows.pop(key, None)
            if drain is not None:
                self._measure(key, backlog_began(drain, now, self._flow_rules))

    def flow_served(self, tag: Tag, now: float) -> None:
        """One of a flow was dispatched after it had waited."""
        if self._flows:
            key = _flow_of(tag)
            drain = self._flows.get(key)
            if drain is not None:
                self._flows[key] = finished(drain, now, tag.cost, self._flow_rules)

    def queue_began(self, now: float) -> None:
        self._sum_up()
        self._drain = backlog_began(self._drain, now, self._drain_rules)

    def served(self, pool: PoolName, tag: Tag, service_seconds: float, now: float) -> None:
        key = (pool, tag.business, tag.streamed)
        known = self._services.get(key)
        if known is None:
            known = self._services[key] = _Services()
        elif now < known.learns_at:
            return
        time = known.time = after_service(known.time, service_seconds, self._service_rules)
        if time.samples >= ENOUGH_SAMPLES:
            known.learns_at = now + LEARN_SECONDS

    def drained(self, cost: float, now: float) -> None:
        """A request ended while others waited."""
        self._finished_cost += cost
        self._finished += 1
        self._finished_at = now
        if now >= self._step_ends:
            self._step_ends = now + STEP_SECONDS
            self._sum_up()

    def ended(self, now: float) -> None:
        self._ended += 1
        elapsed = now - self._second
        if elapsed >= 1.0:
            rate = self._ended / elapsed
            # A long pause says more than many busy seconds.
            share = _RATE_SHARE if elapsed < 2.0 else 1.0
            self.served_per_second += share * (rate - self.served_per_second)
            self._second, self._ended = now, 0

    def _sum_up(self) -> None:
        if self._finished:
            self._drain = finished(
                self._drain, self._finished_at, self._finished_cost, self._drain_rules, self._finished
            )
            self._finished_cost, self._finished = 0.0, 0

    def _measure(self, key: _Flow, drain: Drain) -> None:
        self._flows[key] = drain
        if len(self._flows) > MAX_FLOWS:
            self._flows.popitem(last=False)


def _flow_of(tag: Tag) -> _Flow:
    return tag.lane, tag.tenant, tag.business, tag.pools
