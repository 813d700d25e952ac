"""The backends' GPUs at `/metrics`, as `gpu` of a backend was read last.

| name | type | labels | meaning |
|---|---|---|---|
| gpu_temperature_celsius | gauge | backend pool | of the hottest |
| gpu_memory_used_ratio | gauge | backend pool | of the fullest, 0 to 1 |
| gpu_utilisation_ratio | gauge | backend pool | their mean, 0 to 1 |
| gpu_sample_age_seconds | gauge | backend pool | since it was asked for |

What is not told, or older than `gpu.stale_seconds`, is absent and not 0; the age is shown all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from routing.router import Router

_BACKEND = ("backend", "pool")


class GpusNow(Collector):
    def __init__(self, now_state: Callable[[], tuple[Router, float]]) -> None:
        self._now_state = now_state

    def describe(self) -> Iterable[Metric]:
        return ()  # the live objects do not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router, now = self._now_state()
        warmth = GaugeMetricFamily("headrace_gpu_temperature_celsius", "Of the hottest", labels=_BACKEND)
        memory = GaugeMetricFamily("headrace_gpu_memory_used_ratio", "Of the fullest", labels=_BACKEND)
        busy = GaugeMetricFamily("headrace_gpu_utilisation_ratio", "Their mean", labels=_BACKEND)
        age = GaugeMetricFamily("headrace_gpu_sample_age_seconds", "Since asked for", labels=_BACKEND)
        for backend in router.fleet:
            gpu = router.samples.gpu_of(backend.id)
            if gpu is None:
                continue
            labels = (backend.id, backend.pool)
            age.add_metric(labels, max(0.0, now - gpu.at))
            if now <= gpu.until:
                for family, value in zip((warmth, memory, busy), gpu.report, strict=True):
                    if value is not None:
                        family.add_metric(labels, value)
        yield from (warmth, memory, busy, age)
