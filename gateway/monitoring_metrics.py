"""Three levels of monitoring at `/metrics`, each over its own span of time that ends now (`monitoring` of the configuration).

| name | type | labels | meaning |
|---|---|---|---|
| cache_hit_ratio | gauge | pool | primary: prompt tokens found in the engines' prefix caches / prompt tokens looked up there, 0 to 1, by the engines' counters |
| batching_efficiency_ratio | gauge | pool | primary: requests sent in gathered batches / places of these batches, 0 to 1; a batch has the places that its backend lacked to the least size |
| batch_idle_ratio | gauge | pool | primary: 1 - batching efficiency, 0 to 1 |
| memory_swing_ratio | gauge | backend pool | primary: the largest change of GPU memory in use between two samples in a row / what was in use before; may be above 1 |
| intent_accuracy_ratio | gauge | | business: agreed / (agreed + disagreed) of the classifier against trusted headers, 0 to 1; where it abstained does not count |
| dialogue_turns_mean | gauge | | business: turns in the windows of sessions that took one / turns taken, in turns |
| abnormal_ratio | gauge | | business: requests that ended in a fault (5xx), were cut, or refused for want of capacity / requests, 0 to 1 |
| gpu_seconds_per_request | gauge | pool | cost: (seconds in which a backend had requests in flight x its `gpus`, summed) / requests answered well, in seconds |
| useful_throughput_ratio | gauge | | cost: tokens of answers that ended well, and in time where they have a target / all tokens, 0 to 1 |
| breaker_loss_requests | gauge | | cost: requests refused for want of a backend while a circuit of their model was open |
| breaker_loss_tokens | gauge | | cost: their prompts and expected answers, in tokens, estimated |
| cost_per_1000_tokens | gauge | pool | cost: (hours x `price_per_hour` of its backends, summed) x 1,000 / tokens, in the currency of the prices; absent where a backend has no price |

What is not known, or a ratio of nothing, is absent and not 0. Tokens are those that engines counted, prompts and answers together.
Limits: time is counted in beats (`degradation.interval_seconds`), a whole one where a backend has requests in flight at its end; a price counts whether or not a backend is up; until a
span has passed once, its metrics are about what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.configuration import backend_name
from gateway.intent_accuracy import IntentAccuracy
from gateway.sessions.turn_metrics import TurnMetrics
from gateway.settings import Settings
from policies.metric_catalogue import Metric as RuleMetric
from policies.metric_catalogue import Scope
from policies.terms import BackendId, PoolName
from routing.router import Router
from routing.trail import Trail


class Monitoring(Collector):
    def __init__(
        self, router: Router, accuracy: IntentAccuracy, turns: TurnMetrics, clock: Callable[[], float]
    ) -> None:
        self._router = router
        self._accuracy = accuracy
        self._turns = turns
        self._clock = clock
        self._gpus: dict[BackendId, int] = {}
        self._prices: dict[PoolName, float] = {}
        """Per hour, of the pools all of whose backends have one."""
        self._busy: dict[PoolName, float] = {}
        """GPU seconds so far."""
        self._spent: dict[PoolName, float] = {}
        self._beat_at: float | None = None
        self._business = Trail(300.0)
        self._fleet = Trail(3600.0)
        self._pools: dict[PoolName, Trail] = {}

    def configure(self, settings: Settings) -> None:
        """Spans that change begin anew, and so does the cost of a pool that was without a price."""
        spans = settings.monitoring
        if self._business.seconds != spans.business_seconds:
            self._business = Trail(spans.business_seconds)
        if self._fleet.seconds != spans.cost_seconds:
            self._fleet, self._pools = Trail(spans.cost_seconds), {}
        before = self._prices
        self._gpus, self._prices = {}, {}
        for pool in settings.pools:
            prices = [backend.price_per_hour for backend in pool.backends]
            known = [price for price in prices if price is not None]
            if len(known) == len(prices):
                self._prices[PoolName(pool.name)] = sum(known)
            for backend in pool.backends:
                self._gpus[BackendId(backend_name(backend))] = backend.gpus
        names = [PoolName(pool.name) for pool in settings.pools]
        self._busy = {name: self._busy.get(name, 0.0) for name in names}
        self._spent = {name: self._spent.get(name, 0.0) for name in names}
        self._pools = {
            name: trail
            for name, trail in self._pools.items()
            if name in names and (name in before) == (name in self._prices)
        }
        self.beat(self._clock())  # so that what comes before the next beat counts

    def beat(self, now: float) -> None:
        router = self._router
        elapsed = 0.0 if self._beat_at is None else now - self._beat_at
        self._beat_at = now
        for backend in router.fleet:
            if backend.in_flight and backend.pool in self._busy:
                self._busy[backend.pool] += elapsed * self._gpus.get(backend.id, 1)
        endings, circuits = router.endings, router.circuits
        for name, busy in self._busy.items():
            self._spent[name] += elapsed / 3600.0 * self._prices.get(name, 0.0)
            trail = self._pools.setdefault(name, Trail(self._fleet.seconds))
            answered, tokens = endings.answered.get(name, 0), endings.tokens_of.get(name, 0)
            trail.note((busy, answered, tokens, self._spent[name]), now)
        self._fleet.note(
            (endings.useful_tokens, endings.tokens, circuits.lost_requests, circuits.lost_tokens), now
        )
        accuracy, turns = self._accuracy, self._turns
        self._business.note(
            (accuracy.agreed, accuracy.agreed + accuracy.disagreed, turns.window_turns, turns.windows), now
        )

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        yield from self._primary()
        yield from self._of_business()
        yield from self._of_cost()

    def _primary(self) -> Iterable[Metric]:
        samples, now = self._router.samples, self._clock()
        hits = _by_pool("cache_hit_ratio", "Prompt tokens found in prefix caches")
        filled = _by_pool("batching_efficiency_ratio", "Places of batches that were filled")
        idle = _by_pool("batch_idle_ratio", "Places of batches that stayed empty")
        for name in self._router.fleet.pools:
            hit = samples.value(RuleMetric.CACHE_HIT_RATIO, Scope.POOL, name, now)
            if hit is not None:
                hits.add_metric((name,), hit)
            empty = samples.value(RuleMetric.BATCH_IDLE_RATIO, Scope.POOL, name, now)
            if empty is not None:
                filled.add_metric((name,), 1.0 - empty)
                idle.add_metric((name,), empty)
        swing = GaugeMetricFamily(
            "headrace_memory_swing_ratio",
            "Of GPU memory, largest between two samples",
            labels=("backend", "pool"),
        )
        for backend in self._router.fleet:
            gpu = samples.gpu_of(backend.id)
            value = None if gpu is None else gpu.swings.largest(now)
            if value is not None:
                swing.add_metric((backend.id, backend.pool), value)
        return hits, filled, idle, swing

    def _of_business(self) -> Iterable[Metric]:
        gained = self._business.gained() or (0.0, 0.0, 0.0, 0.0)
        abnormal = self._router.samples.value(RuleMetric.ABNORMAL_RATIO, Scope.FLEET, "", self._clock())
        return (
            _single("intent_accuracy_ratio", "Classifier against headers", _ratio(gained[0], gained[1])),
            _single("dialogue_turns_mean", "Turns of sessions", _ratio(gained[2], gained[3])),
            _single("abnormal_ratio", "Requests that ended abnormally", abnormal),
        )

    def _of_cost(self) -> Iterable[Metric]:
        gpu_seconds = _by_pool("gpu_seconds_per_request", "GPU time of an answered request")
        cost = _by_pool("cost_per_1000_tokens", "By the backends' prices")
        for name, trail in self._pools.items():
            busy, answered, tokens, spent = trail.gained() or (0.0, 0.0, 0.0, 0.0)
            if answered:
                gpu_seconds.add_metric((name,), busy / answered)
            if name in self._prices and tokens:
                cost.add_metric((name,), spent * 1000.0 / tokens)
        gained = self._fleet.gained()
        useful = lost_requests = lost_tokens = None
        if gained is not None:
            useful, lost_requests, lost_tokens = _ratio(gained[0], gained[1]), gained[2], gained[3]
        return (
            gpu_seconds,
            _single("useful_throughput_ratio", "Useful / all tokens", useful),
            _single("breaker_loss_requests", "Refused for open circuits", lost_requests),
            _single("breaker_loss_tokens", "Of these, estimated", lost_tokens),
            cost,
        )


def _by_pool(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headrace_{name}", about, labels=("pool",))


def _single(name: str, about: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"headrace_{name}", about, labels=())
    if value is not None:
        family.add_metric((), value)
    return family


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
