"""The value of every metric that degradation rules may be about, for each backend, pool and the fleet: what `policies.metric_catalogue` defines.

`take` looks once a beat; `value` says what is known then. What is not told, was told too long ago (`gpu.stale_seconds`; `REPORT_SECONDS` for what an engine says of itself), or is of a backend that
is absent, is None and never 0; so is a ratio of nothing.
State: the last GPU reports of each backend, and trails of counters (`routing.trail`) per backend, per pool and for the fleet; those of what left the configuration go.
Settings: `primary_seconds` and `abnormal_seconds` are `monitoring.primary_seconds` and `monitoring.business_seconds`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from policies.gpu_report import NO_GPU, GpuReport
from policies.metric_catalogue import Metric, Scope
from policies.terms import BackendId, Lane, PoolName
from routing.admission import Admission
from routing.backend import Backend, open_ratio
from routing.counts import Counts
from routing.endings import Endings, upper_quantile
from routing.fleet import Fleet
from routing.path_shares import PathShares
from routing.peak import Peak
from routing.pool import Pool
from routing.trail import Trail

REPORT_SECONDS = 15.0
RECENT_SECONDS = 10.0
_LATE_SHARE = 0.95
_BACKEND = Scope.BACKEND


class Gpu:
    """`report` holds until `until`; `swing` is of the last two reports if both told of memory, `swings` the largest of them in a span."""

    __slots__ = ("at", "report", "swing", "swings", "until")

    def __init__(self, swing_seconds: float) -> None:
        self.report: GpuReport = NO_GPU
        self.at = self.until = -inf
        self.swing: float | None = None
        self.swings = Peak(swing_seconds)

    def told(self, report: GpuReport, at: float, until: float) -> None:
        used, before = report.memory_used_ratio, self.report.memory_used_ratio
        is_followed = self.until >= at  # after a gap there is nothing to compare with
        self.swing = abs(used - before) / before if is_followed and used is not None and before else None
        if self.swing is not None:
            self.swings.note(self.swing, at)
        self.report, self.at, self.until = report, at, until


class _Cache:
    """Of one backend: prompt tokens found and looked up, over restarts of its engine."""

    __slots__ = ("hits", "queries", "seen", "trail")

    def __init__(self, seconds: float) -> None:
        self.hits = self.queries = 0
        self.seen: tuple[int, int] | None = None
        self.trail = Trail(seconds)

    def take(self, backend: Backend, now: float) -> None:
        report = backend.report
        if report is not None and report.prefix_hits is not None and report.prefix_queries is not None:
            told = report.prefix_hits, report.prefix_queries
            if self.seen is not None and told[0] >= self.seen[0] and told[1] >= self.seen[1]:
                self.hits += told[0] - self.seen[0]
                self.queries += told[1] - self.seen[1]
            self.seen = told
        self.trail.note((self.hits, self.queries), now)


class Samples:
    def __init__(
        self,
        fleet: Fleet,
        counts: Counts,
        endings: Endings,
        paths: Callable[[], PathShares],
        admission: Admission,
    ) -> None:
        self._fleet = fleet
        self._counts = counts
        self._endings = endings
        self._paths = paths
        self._admission = admission
        self._gpus: dict[BackendId, Gpu] = {}
        self._caches: dict[BackendId, _Cache] = {}
        self._gathering: dict[PoolName, Trail] = {}
        self._recent = Trail(RECENT_SECONDS)
        self._hot = self._abnormal = Trail(0.0)
        self._taken_at = -inf
        self.configure(60.0, 300.0)

    def configure(self, primary_seconds: float, abnormal_seconds: float) -> None:
        """Spans that change begin anew. For the fleet as it is configured now."""
        if self._hot.seconds != primary_seconds:
            self._hot, self._caches, self._gathering = Trail(primary_seconds), {}, {}
            for gpu in self._gpus.values():
                gpu.swings = Peak(primary_seconds)
        if self._abnormal.seconds != abnormal_seconds:
            self._abnormal = Trail(abnormal_seconds)
        known, pools = {backend.id for backend in self._fleet}, self._fleet.pools
        self._gpus = {id: gpu for id, gpu in self._gpus.items() if id in known}
        self._caches = {id: cache for id, cache in self._caches.items() if id in known}
        self._gathering = {name: trail for name, trail in self._gathering.items() if name in pools}

    def gpu(self, backend_id: BackendId, report: GpuReport, at: float, until: float) -> None:
        if self._fleet.get(backend_id) is not None:
            gpu = self._gpus.get(backend_id)
            if gpu is None:
                gpu = self._gpus[backend_id] = Gpu(self._hot.seconds)
            gpu.told(report, at, until)

    def gpu_of(self, backend_id: BackendId) -> Gpu | None:
        return self._gpus.get(backend_id)

    def take(self, now: float) -> None:
        self._taken_at = now
        for backend in self._fleet:
            cache = self._caches.get(backend.id)
            if cache is None:
                cache = self._caches[backend.id] = _Cache(self._hot.seconds)
            cache.take(backend, now)
        for pool in self._fleet.pools.values():
            trail = self._gathering.get(pool.name)
            if trail is None:
                trail = self._gathering[pool.name] = Trail(self._hot.seconds)
            sizes = self._counts.batches.get(pool.name)
            trail.note((0.0 if sizes is None else sizes.sum, self._counts.batch_places[pool.name]), now)
        endings, paths = self._endings, self._paths()
        self._hot.note((paths.hot_requests, paths.requests), now)
        self._abnormal.note((endings.abnormal, endings.requests), now)
        asked, shed = endings.asked, endings.shed
        self._recent.note(
            (
                sum(shed.values()),
                sum(asked.values()),
                shed[Lane.INTERACTIVE],
                asked[Lane.INTERACTIVE],
                *endings.over_target,
            ),
            now,
        )

    def value(self, metric: Metric, scope: Scope, subject: str, now: float) -> float | None:
        if scope is _BACKEND:
            backend = self._fleet.get(subject)  # type: ignore[arg-type]  # a cast costs as much as the look
            return None if backend is None else self._of_backend(metric, backend, now)
        if scope is Scope.FLEET:
            return self._of_fleet(metric)
        pool = self._fleet.pools.get(PoolName(subject))
        return None if pool is None else self._of_pool(metric, pool)

    def sampled_at(self, metric: Metric, scope: Scope, subject: str) -> float:
        """When the sample that `value` goes by was taken."""
        if scope is not Scope.BACKEND:
            return self._taken_at
        if metric in _OF_GPU:
            gpu = self._gpus.get(BackendId(subject))
            return -inf if gpu is None else gpu.at
        backend = self._fleet.get(BackendId(subject))
        return backend.reported_at if backend is not None and metric in _OF_ENGINE else self._taken_at

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _of_backend(self, metric: Metric, backend: Backend, now: float) -> float | None:
        field = _OF_GPU.get(metric)
        if field is not None:
            gpu = self._gpus.get(backend.id)
            if gpu is None or now > gpu.until:
                return None
            value: float | None = getattr(gpu.report, field) if field else gpu.swing
            return value
        field = _OF_ENGINE.get(metric)
        if field is not None:
            report = backend.report
            if report is None or not backend.is_present() or backend.report_age(now) > REPORT_SECONDS:
                return None
            told = getattr(report, field)
            return None if told is None else float(told)
        if metric is Metric.SATURATION_RATIO:
            return None if not backend.window else backend.in_flight / backend.window
        return self._hit_ratio([backend]) if metric is Metric.CACHE_HIT_RATIO else None

    def _of_pool(self, metric: Metric, pool: Pool) -> float | None:
        if metric is Metric.SATURATION_RATIO:
            return _saturation([pool])
        if metric is Metric.CACHE_HIT_RATIO:
            return self._hit_ratio(pool.backends)
        if metric is Metric.OPEN_RATIO:
            return open_ratio(pool.backends)
        if metric is Metric.BATCH_IDLE_RATIO and (trail := self._gathering.get(pool.name)) is not None:
            filled = _ratio(trail, 0, 1)
            return None if filled is None else max(0.0, 1.0 - filled)
        return None

    def _of_fleet(self, metric: Metric) -> float | None:
        if metric is Metric.SATURATION_RATIO:
            return _saturation(list(self._fleet.pools.values()))
        if metric is Metric.CACHE_HIT_RATIO:
            return self._hit_ratio(list(self._fleet))
        if metric is Metric.OPEN_RATIO:
            return open_ratio(self._fleet)
        if metric is Metric.HOT_RATIO:
            return _ratio(self._hot, 0, 1)
        if metric is Metric.ABNORMAL_RATIO:
            return _ratio(self._abnormal, 0, 1)
        if metric is Metric.SHED_RATIO:
            return _ratio(self._recent, 0, 1)
        if metric is Metric.INTERACTIVE_SHED_RATIO:
            return _ratio(self._recent, 2, 3)
        if metric is Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET:
            gained = self._recent.gained()
            return None if gained is None else upper_quantile(gained[4:], _LATE_SHARE)
        if metric is Metric.STANDING_QUEUE:
            return float(any(share > 0.0 for share in self._admission.overload.shares().values()))
        return None

    def _hit_ratio(self, backends: list[Backend]) -> float | None:
        hits = queries = 0.0
        for backend in backends:
            cache = self._caches.get(backend.id)
            gained = None if cache is None else cache.trail.gained()
            if gained is not None:
                hits += gained[0]
                queries += gained[1]
        return hits / queries if queries else None


_OF_GPU = {
    Metric.GPU_TEMPERATURE_CELSIUS: "temperature_celsius",
    Metric.GPU_MEMORY_USED_RATIO: "memory_used_ratio",
    Metric.GPU_UTILISATION_RATIO: "utilisation_ratio",
    Metric.MEMORY_SWING_RATIO: "",
}
_OF_ENGINE = {
    Metric.KV_USAGE_RATIO: "kv_usage",
    Metric.ENGINE_RUNNING: "running",
    Metric.ENGINE_WAITING: "waiting",
}


def _ratio(trail: Trail, part: int, whole: int) -> float | None:
    gained = trail.gained()
    return gained[part] / gained[whole] if gained is not None and gained[whole] else None


def _saturation(pools: list[Pool]) -> float | None:
    capacity = sum(pool.capacity for pool in pools)
    return sum(pool.in_flight for pool in pools) / capacity if 0.0 < capacity < inf else None
