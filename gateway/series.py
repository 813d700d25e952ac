"""Counts and latencies of requests, kept as plain numbers and shown to Prometheus at a scrape.

The client library's counters and histograms take a lock and check their labels at each of five updates per request: 15 % of a request's
CPU in this gateway, measured. Here one `Series` per label set is found by one dictionary look-up, and a latency costs one bisection. Only
the event loop's thread updates and reads them, so there is no lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily

from policies.terms import LengthClass
from routing.counts import Histogram


class Latency(Histogram):
    """One histogram of seconds."""

    __slots__ = ()

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        show(self, family, labels)


class PoolSeries:
    """What is counted per pool."""

    __slots__ = ("cached_tokens", "completion_tokens", "first_byte", "prompt_tokens", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.first_byte = Latency(bounds)
        self.total = Latency(bounds)
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0


class PathSeries:
    """What is counted per path."""

    __slots__ = ("cached_tokens", "first_byte", "prompt_tokens", "requests")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.first_byte = Latency(bounds)
        self.requests = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0


class Series:
    """One label set of `headrace_requests_total`, and its requests by length class."""

    __slots__ = ("lengths", "pool")

    def __init__(self, pool: PoolSeries) -> None:
        self.pool = pool
        self.lengths: dict[LengthClass, int] = dict.fromkeys(LengthClass, 0)

    @property
    def requests(self) -> int:
        return sum(self.lengths.values())


def show(histogram: Histogram, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
    cumulated = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip([*map(str, map(float, histogram.bounds)), "+Inf"], histogram.counts, strict=True):
        cumulated += count
        buckets.append((bound, cumulated))
    family.add_metric(labels, buckets, histogram.sum)
