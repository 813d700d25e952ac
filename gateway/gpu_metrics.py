"""The backends' GPUs at `/metrics`, as `gpu` of a backend was read last.

| name | type | labels | meaning |
|---|---|---|---|
| gpu_temperature_celsius | gauge | backend pool | of the hottest |
| gpu_memory_used_ratio | gauge | backend pool | of the fullest, 0 to 1 |
| gpu_utilisation_ratio | gauge | backend pool | their mean, 0 to 1 |
| gpu_sample_age_seconds | gauge | backend pool | since the last sample was asked for; before the first, since the first was |

What is not told, or older than `gpu.stale_seconds`, is absent and not 0; the age is shown all the same, also where nothing was ever told. Of a backend without `gpu` there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.terms import BackendId
from routing.router import Router

_BACKEND = ("backend", "pool")


class GpusNow(Collector):
    def __init__(self, now_state: Callable[[], tuple[Router, Mapping[BackendId, float], float]]) -> None:
        """`now_state` gives what is read at a scrape: the router, since when GPUs are asked for by backend, the router's time."""
        self._now_state = now_state

    def describe(self) -> Iterable[Metric]:
        return ()  # the live objects do not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router, asked_since, now = self._now_state()
        warmth = GaugeMetricFamily("headrace_gpu_temperature_celsius", "Of the hottest", labels=_BACKEND)
        memory = GaugeMetricFamily("headrace_gpu_memory_used_ratio", "Of the fullest", labels=_BACKEND)
        busy = GaugeMetricFamily("headrace_gpu_utilisation_ratio", "Their mean", labels=_BACKEND)
        age = GaugeMetricFamily("headrace_gpu_sample_age_seconds", "Since asked for", labels=_BACKEND)
        for backend in router.fleet:
            if backend.id not in asked_since:
                continue
            gpu = router.samples.gpu_of(backend.id)
            labels = (backend.id, backend.pool)
            age.add_metric(labels, max(0.0, now - (asked_since[backend.id] if gpu is None else gpu.at)))
            if gpu is not None and now <= gpu.until:
                for family, value in zip((warmth, memory, busy), gpu.report, strict=True):
                    if value is not None:
                        family.add_metric(labels, value)
        yield from (warmth, memory, busy, age)
