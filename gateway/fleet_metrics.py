"""The backends as the gateway sees them now, and their engines as they say of themselves, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| backend_up, backend_in_flight | gauge | backend pool | 1 if requests are sent there; requests that hold a slot of it |
| backend_window | gauge | backend pool | how many may; absent where there is no limit |
| backend_reserved_tokens, backend_prefill_tokens | gauge | backend pool | tokens that its requests hold, and those of prompts before their first byte; absent where neither has a limit |
| backend_max_tokens, backend_max_prefill_tokens | gauge | backend pool | how many may be of each; absent where there is no limit |
| backend_prefill_tokens_per_second | gauge | backend pool | as measured, absent while unknown or where nothing follows from it |
| backend_absences_total | counter | backend pool | times that it went out of use |
| engine_requests_running, engine_requests_waiting | gauge | backend pool | in the engine, from whomever they came |
| engine_kv_usage_ratio | gauge | backend pool | of its KV cache, 0 to 1 |
| upstream_connections | gauge | backend state | now, busy or idle |
| upstream_connections_opened_total | counter | backend | since the backend was configured |

An engine's numbers are those of its last report; what it does not tell, and all of a backend that is out of use, is absent and not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.upstream.client import Upstream
from routing.fleet import Fleet
from routing.router import Router

_BACKEND = ("backend", "pool")


class FleetNow(Collector):
    """Read off the live objects at a scrape, so nothing has to keep them up to date."""

    def __init__(self, now_state: Callable[[], tuple[Router, Upstream]]) -> None:
        self._now_state = now_state

    def describe(self) -> Iterable[Metric]:
        return ()  # the live objects do not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router, upstream = self._now_state()
        yield from _backends(router.fleet)
        yield from _tokens(router.fleet)
        yield from _engines(router.fleet)
        yield from _connections(upstream)


def _backends(fleet: Fleet) -> Iterable[Metric]:
    up = GaugeMetricFamily("headrace_backend_up", "1 if requests are sent there", labels=_BACKEND)
    load = GaugeMetricFamily("headrace_backend_in_flight", "Leases on it now", labels=_BACKEND)
    window = GaugeMetricFamily("headrace_backend_window", "Leases it may have now", labels=_BACKEND)
    absences = CounterMetricFamily("headrace_backend_absences", "Times it went out of use", labels=_BACKEND)
    for backend in fleet:
        labels = (backend.id, backend.pool)
        up.add_metric(labels, float(backend.is_present()))
        load.add_metric(labels, backend.in_flight)
        if backend.window is not None:
            window.add_metric(labels, backend.window)
        absences.add_metric(labels, backend.absences)
    return up, load, window, absences


def _tokens(fleet: Fleet) -> Iterable[Metric]:
    reserved = GaugeMetricFamily("headrace_backend_reserved_tokens", "Held by its requests", labels=_BACKEND)
    prefill = GaugeMetricFamily("headrace_backend_prefill_tokens", "Of prompts under way", labels=_BACKEND)
    limit = GaugeMetricFamily("headrace_backend_max_tokens", "That may be reserved", labels=_BACKEND)
    prefill_limit = GaugeMetricFamily(
        "headrace_backend_max_prefill_tokens", "Of prompts that may be under way", labels=_BACKEND
    )
    rate = GaugeMetricFamily(
        "headrace_backend_prefill_tokens_per_second", "Of prompts, as measured", labels=_BACKEND
    )
    for backend in fleet:
        room = backend.room
        if room is not None:
            labels = (backend.id, backend.pool)
            reserved.add_metric(labels, room.reserved)
            prefill.add_metric(labels, room.backlog)
            if room.max_tokens < inf:
                limit.add_metric(labels, room.max_tokens)
            if room.max_prefill_tokens < inf:
                prefill_limit.add_metric(labels, room.max_prefill_tokens)
            if (per_second := room.prefill_tokens_per_second) is not None:
                rate.add_metric(labels, per_second)
    return reserved, prefill, limit, prefill_limit, rate


def _engines(fleet: Fleet) -> Iterable[Metric]:
    running = GaugeMetricFamily(
        "headrace_engine_requests_running", "In the engine, as it says", labels=_BACKEND
    )
    waiting = GaugeMetricFamily(
        "headrace_engine_requests_waiting", "In the engine's queue, as it says", labels=_BACKEND
    )
    kv_usage = GaugeMetricFamily(
        "headrace_engine_kv_usage_ratio", "Of the engine's KV cache, as it says", labels=_BACKEND
    )
    for backend in fleet:
        report = backend.report
        if report is None or not backend.is_present():
            continue
        told = ((running, report.running), (waiting, report.waiting), (kv_usage, report.kv_usage))
        for family, value in told:
            if value is not None:
                family.add_metric((backend.id, backend.pool), value)
    return running, waiting, kv_usage


def _connections(upstream: Upstream) -> Iterable[Metric]:
    connections = GaugeMetricFamily(
        "headrace_upstream_connections", "Connections to engines now", labels=("backend", "state")
    )
    opened = CounterMetricFamily(
        "headrace_upstream_connections_opened", "Connections opened to engines", labels=("backend",)
    )
    for id, pool in upstream.pools():
        connections.add_metric((id, "busy"), pool.busy)
        connections.add_metric((id, "idle"), pool.idle)
        opened.add_metric((id,), pool.opened)
    return connections, opened
