"""Metrics at `/metrics`, names starting with `headrace_`: of requests that ended, and of this process.

| name | type | labels | meaning |
|---|---|---|---|
| requests_total | counter | business lane pool backend route status | requests ended; status is 1xx..5xx, or `none` where the client left before an answer |
| requests_by_length_total | counter | length pool | the same by length class; `unknown` where there was no prompt, or it was refused |
| refusals_total | counter | reason lane | answers made here instead of by an engine; lane is `none` where it was not known yet |
| aborts_total | counter | cause | clients that left or stalled before their answer ended |
| cut_answers_total | counter | backend | answers that began and could not be finished |
| retries_total | counter | backend | attempts that failed there and were taken to another backend |
| tokens_total | counter | pool kind | prompt, cached and completion tokens that engines reported |
| first_byte_seconds, request_seconds | histogram | pool | from the whole request's arrival to the first byte, to the end |
| path_requests_total | counter | path | requests that reached a backend, hot or cold |
| path_tokens_total | counter | path kind | prompt tokens that engines reported, and those of them that were cached |
| path_first_byte_seconds | histogram | path | from the whole request's arrival to the first byte |
| queue_seconds | histogram | lane | waiting for a slot, of those that waited |
| overhead_seconds | histogram | | work of this process before an attempt, waiting left out |
| requests_in_flight | gauge | | now |
| request_body_bytes | gauge | | of request bodies above 64 KB that are held now, see `gateway.body_room` |
| ignored_hints_total | counter | hint | requests that named a lane above their tenant's ceiling, or a business type, tenant, path, pool, backend or fairness id that they are not trusted to name |
| config_reloads_total | counter | result | reloads, `ok` or `failed` |
| asyncio_tasks | gauge | | now |

What is decided about them: `gateway.decision_metrics`, `gateway.affinity_metrics`, `gateway.breaker_metrics`. Backends and their engines: `gateway.fleet_metrics`.
The trained classifier against trusted headers, where there is one: `gateway.intent_accuracy`.
Label values come from the configuration and closed enums, never from a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from prometheus_client import (
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.affinity_metrics import Affinity
from gateway.breaker_metrics import Breaker
from gateway.decision_metrics import Decisions
from gateway.fleet_metrics import FleetNow
from gateway.metrics_page import Registry, pieces
from gateway.record import Outcome, Record
from gateway.series import Latency, PathSeries, PoolSeries, Series
from gateway.upstream.client import Upstream
from policies.terms import UNTAGGED, CachePath, Lane, Refusal
from policies.trust import CONDITIONAL_HINTS
from routing.router import Router

_LATENCY_BOUNDS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30, 60, 120, 600)
_OVERHEAD_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25)
_COUNTED_TOGETHER = 32
_STATUS_CLASS = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
_NO_LANE = "none"
_LABELS = ("business", "lane", "pool", "backend", "route", "status")

_Key = tuple[str, str, str, str, str, int]


class Telemetry:
    def __init__(self, now_state: Callable[[], tuple[Router, Upstream, int, float]]) -> None:
        """`now_state` gives what is read at a scrape: router, upstream, requests in flight, the router's time."""
        self._now_state = now_state
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library; else a second series per counter that no dashboard reads
        self.registry = Registry()
        registry = self.registry
        self._refusals = Counter(
            "headrace_refusals", "Answers made by the gateway", ("reason", "lane"), registry=registry
        )
        self._aborts = Counter(
            "headrace_aborts", "Requests whose client did not wait", ("cause",), registry=registry
        )
        self._cut = Counter(
            "headrace_cut_answers", "Answers that could not be finished", ("backend",), registry=registry
        )
        self._retries = Counter(
            "headrace_retries", "Failed attempts taken elsewhere", ("backend",), registry=registry
        )
        ignored = Counter("headrace_ignored_hints", "Hints that did not count", ("hint",), registry=registry)
        self._ignored = {hint: ignored.labels(hint) for hint in CONDITIONAL_HINTS}
        self._reloads = Counter(
            "headrace_config_reloads", "Configuration reloads", ("result",), registry=registry
        )
        tasks = Gauge("headrace_asyncio_tasks", "Tasks of the event loop", registry=registry)
        tasks.set_function(lambda: float(len(asyncio.all_tasks())))
        in_flight = Gauge("headrace_requests_in_flight", "Requests in this process now", registry=registry)
        in_flight.set_function(lambda: float(now_state()[2]))
        self.series: dict[_Key, Series] = {}
        self.pools: dict[str, PoolSeries] = {}
        self.paths = {path: PathSeries(_LATENCY_BOUNDS) for path in CachePath}
        self.queue = {lane: Latency(_LATENCY_BOUNDS) for lane in Lane}
        self.overhead = Latency(_OVERHEAD_BOUNDS)
        self._uncounted: list[Record] = []
        registry.register(_Ended(self))
        registry.register(Decisions(lambda: (now_state()[0], now_state()[3])))
        registry.register(Affinity(lambda: now_state()[0]))
        registry.register(Breaker(lambda: now_state()[0]))
        registry.register(FleetNow(lambda: now_state()[:2]))
        ProcessCollector(registry=registry)

    def ended(self, record: Record) -> None:
        """Counted together with those after it, which costs less than one by one, and before anything is shown or judged: `count`."""
        self._uncounted.append(record)
        if len(self._uncounted) >= _COUNTED_TOGETHER:
            self.count()
        if record.outcome is not Outcome.OK:
            self._count_ending(record)

    def count(self) -> None:
        records, self._uncounted = self._uncounted, []
        for record in records:
            self._count(record)

    def _count(self, record: Record) -> None:
        tag = record.tag
        key = (
            tag.business,
            tag.lane,
            record.pool,
            record.backend,
            record.route,
            min(record.status // 100, 5),
        )
        series = self.series.get(key)
        if series is None:
            series = self._new_series(key)
        series.lengths[tag.length] += 1
        self._count_work(record)
        if record.backend:
            pool, path = series.pool, self.paths[tag.path]
            ready_at = record.ready_at
            path.requests += 1
            if record.first_byte_at:
                pool.first_byte.observe(record.first_byte_at - ready_at)
                path.first_byte.observe(record.first_byte_at - ready_at)
            pool.total.observe(record.ended_at - ready_at)
            if record.queue_seconds:
                self.queue[tag.lane].observe(record.queue_seconds)
            # The loop's clock, which times the wait, may be milliseconds behind the record's: never below zero.
            self.overhead.observe(max(0.0, record.sent_at - ready_at - record.queue_seconds))
            usage = record.usage
            if usage is not None:
                path.prompt_tokens += usage.prompt
                path.cached_tokens += usage.cached
                pool.prompt_tokens += usage.prompt
                pool.cached_tokens += usage.cached
                pool.completion_tokens += usage.completion

    def _count_work(self, record: Record) -> None:
        tag, usage, status = record.tag, record.usage, record.status
        over_target = 0.0
        if record.first_byte_at and tag.target_seconds < inf:
            over_target = max(1e-9, record.first_byte_at - record.ready_at) / tag.target_seconds
        is_cut = record.outcome is Outcome.CUT
        self._now_state()[0].endings.ended(
            record.pool,
            is_cut or status >= 500 or record.reason is Refusal.OVER_SHARE,
            0 if usage is None else usage.prompt + usage.completion,
            record.outcome is Outcome.OK and 200 <= status < 400,
            over_target,
            tag.lane is Lane.INTERACTIVE,
        )

    def _new_series(self, key: _Key) -> Series:
        pool = self.pools.get(key[2])
        if pool is None:
            pool = self.pools[key[2]] = PoolSeries(_LATENCY_BOUNDS)
        series = self.series[key] = Series(pool)
        return series

    def _count_ending(self, record: Record) -> None:
        if record.outcome is Outcome.ABORTED:
            self._aborts.labels(record.cause).inc()
        elif record.outcome is Outcome.CUT:
            self._cut.labels(record.backend).inc()
        if record.reason is not None:
            # By identity: who was refused before it had a lane carries this very tag.
            self.refused(record.reason, _NO_LANE if record.tag is UNTAGGED else record.tag.lane)

    def refused(self, reason: Refusal, lane: str = _NO_LANE) -> None:
        """An answer of the gateway's own; the front calls it for what never became a request."""
        self._refusals.labels(reason.value, lane).inc()

    def retried(self, backend: str) -> None:
        self._retries.labels(backend).inc()

    def ignored(self, hints: Iterable[str]) -> None:
        for hint in hints:
            self._ignored[hint].inc()

    def reloaded(self, ok: bool) -> None:
        self._reloads.labels("ok" if ok else "failed").inc()

    def page(self) -> bytes:
        """All at once."""
        return b"".join(pieces(self.registry))


class _Ended(Collector):
    """The numbers of ended requests, as families."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterable[Metric]:
        telemetry = self._telemetry
        telemetry.count()
        requests = CounterMetricFamily("headrace_requests", "Requests ended", labels=_LABELS)
        lengths: dict[tuple[str, str], int] = {}
        for key, series in telemetry.series.items():
            business, lane, pool_name, backend, route, status = key
            status_class = _STATUS_CLASS[status]
            requests.add_metric((business, lane, pool_name, backend, route, status_class), series.requests)
            for length, count in series.lengths.items():
                if count:
                    lengths[length, pool_name] = lengths.get((length, pool_name), 0) + count
        yield requests
        by_length = CounterMetricFamily(
            "headrace_requests_by_length", "Requests ended, by length class", labels=("length", "pool")
        )
        for labels, count in lengths.items():
            by_length.add_metric(labels, count)
        yield by_length
        first_byte = HistogramMetricFamily(
            "headrace_first_byte_seconds", "To the first byte", labels=("pool",)
        )
        total = HistogramMetricFamily("headrace_request_seconds", "To the end", labels=("pool",))
        tokens = CounterMetricFamily("headrace_tokens", "Tokens engines reported", labels=("pool", "kind"))
        for name, pool in telemetry.pools.items():
            if not name:
                continue  # requests that never reached a pool
            pool.first_byte.add_to(first_byte, (name,))
            pool.total.add_to(total, (name,))
            tokens.add_metric((name, "prompt"), pool.prompt_tokens)
            tokens.add_metric((name, "cached"), pool.cached_tokens)
            tokens.add_metric((name, "completion"), pool.completion_tokens)
        yield from (first_byte, total, tokens)
        yield from self._paths()
        queue = HistogramMetricFamily("headrace_queue_seconds", "Waiting for a slot", labels=("lane",))
        for lane, waits in telemetry.queue.items():
            waits.add_to(queue, (lane,))
        overhead = HistogramMetricFamily("headrace_overhead_seconds", "Work before an attempt", labels=())
        telemetry.overhead.add_to(overhead, ())
        yield from (queue, overhead)

    def _paths(self) -> Iterable[Metric]:
        requests = CounterMetricFamily("headrace_path_requests", "Requests on a backend", labels=("path",))
        tokens = CounterMetricFamily(
            "headrace_path_tokens", "Tokens engines reported", labels=("path", "kind")
        )
        first_byte = HistogramMetricFamily(
            "headrace_path_first_byte_seconds", "To the first byte", labels=("path",)
        )
        for path, series in self._telemetry.paths.items():
            requests.add_metric((path,), series.requests)
            tokens.add_metric((path, "prompt"), series.prompt_tokens)
            tokens.add_metric((path, "cached"), series.cached_tokens)
            series.first_byte.add_to(first_byte, (path,))
        return requests, tokens, first_byte
