"""The store that gateways share, at `/metrics`; all zero where sessions are in this process's memory.

| name | type | labels | meaning |
|---|---|---|---|
| session_store_calls_total | counter | call outcome | calls that requests, writes and probes made, by how they ended: `ok` or the reason, `open` where the breaker kept one back |
| session_store_seconds | histogram | call | time of those that went |
| session_store_breaker_open | gauge | | 1 while the store is left alone |
| session_writes_queued | gauge | | homes, responses and turns that are still to be written |
| session_writes_dropped_total | counter | kind | of these, given up: `home`, `response` or `turn` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.sessions.backing import Backing
from gateway.sessions.guarded_store import CALLS, LATENCY_BOUNDS_SECONDS, OK
from gateway.sessions.store import StoreFault
from gateway.sessions.write_behind import KINDS

_BOUNDS = (*map(str, LATENCY_BOUNDS_SECONDS), "+Inf")


class StoreMetrics(Collector):
    def __init__(self, now_backing: Callable[[], Backing]) -> None:
        self._now_backing = now_backing

    def describe(self) -> Iterable[Metric]:
        return ()  # the backing does not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        shared = self._now_backing().shared
        calls = CounterMetricFamily("headrace_session_store_calls", "By end", labels=("call", "outcome"))
        seconds = HistogramMetricFamily("headrace_session_store_seconds", "Of calls", labels=("call",))
        for call in CALLS:
            for outcome in (OK, *StoreFault):
                calls.add_metric(
                    (call, str(outcome)), 0 if shared is None else shared[0].outcomes[call, str(outcome)]
                )
            counts = [0] * len(_BOUNDS) if shared is None else shared[0].seconds[call]
            buckets = list(zip(_BOUNDS, map(float, accumulate(counts)), strict=True))
            seconds.add_metric((call,), buckets, 0.0 if shared is None else shared[0].seconds_sum[call])
        is_open = shared is not None and shared[0].breaker.is_open
        breaker = GaugeMetricFamily(
            "headrace_session_store_breaker_open", "The store is left alone", float(is_open)
        )
        queued = GaugeMetricFamily(
            "headrace_session_writes_queued", "To be written", 0.0 if shared is None else shared[1].queued
        )
        dropped = CounterMetricFamily("headrace_session_writes_dropped", "Given up", labels=("kind",))
        for kind in KINDS:
            dropped.add_metric((kind,), 0 if shared is None else shared[1].dropped[kind])
        return calls, seconds, breaker, queued, dropped
