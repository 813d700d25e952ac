"""Where requests are sent for the sake of the engines' caches, how good these guesses are, and how hot and cold share, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| placements_total | counter | by | choices of a backend among several, by what decided: `session`, `prefix`, `rendezvous`, `load` |
| predicted_cached_tokens_total | counter | backend | of the prompts sent there, what was taken for cached |
| found_cached_tokens_total | counter | backend | of the same, what the engine said in `usage` that it had cached |
| cache_trust_ratio | gauge | backend | by which predictions of its cache are multiplied, 0 to 1 |
| cache_restarts_total | counter | backend | times that its engine was seen to have restarted, so that all of its cache was forgotten |
| affinity_prefixes, affinity_prefixes_max | gauge | part | prefixes remembered, and how many may be; `hot` or `cold` |
| affinity_sessions | gauge | | sessions remembered |
| affinity_lifetime_seconds | gauge | | how long a hot prefix or a session is remembered after its last use |
| path_share_ratio | gauge | path | what hot and cold requests may hold of a pool's slots while both wait |
| hot_traffic_ratio | gauge | | of the weighted tokens that arrived lately, the hot part |
| path_in_flight | gauge | pool path | requests that run now |

Prefixes, tokens and sessions are estimates of `policies.prefix_chain` and `policies.lengths`. Paths of ended requests: `gateway.telemetry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.terms import CachePath
from routing.router import Router


class Affinity(Collector):
    def __init__(self, now_router: Callable[[], Router]) -> None:
        self._now_router = now_router

    def describe(self) -> Iterable[Metric]:
        return ()  # the router does not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router = self._now_router()
        yield from _guesses(router)
        yield from _table(router)
        yield from _paths(router)


def _guesses(router: Router) -> Iterable[Metric]:
    placement = router.placement
    placements = CounterMetricFamily("headrace_placements", "Backends chosen among several", labels=("by",))
    for by, count in placement.by.items():
        placements.add_metric((by,), count)
    predicted = CounterMetricFamily(
        "headrace_predicted_cached_tokens", "Of prompts, taken for cached", labels=("backend",)
    )
    found = CounterMetricFamily(
        "headrace_found_cached_tokens", "Of these prompts, as engines said", labels=("backend",)
    )
    trust = GaugeMetricFamily("headrace_cache_trust_ratio", "In predictions", labels=("backend",))
    restarts = CounterMetricFamily("headrace_cache_restarts", "Of engines, as seen", labels=("backend",))
    for home in placement.homes:
        labels = (home.backend.id,)
        predicted.add_metric(labels, home.predicted_tokens)
        found.add_metric(labels, home.found_tokens)
        trust.add_metric(labels, home.trust)
    for backend in router.fleet:
        restarts.add_metric((backend.id,), backend.generation)
    return placements, predicted, found, trust, restarts


def _table(router: Router) -> Iterable[Metric]:
    placement = router.placement
    table = placement.table
    held = GaugeMetricFamily("headrace_affinity_prefixes", "Remembered", labels=("part",))
    most = GaugeMetricFamily("headrace_affinity_prefixes_max", "To be remembered", labels=("part",))
    for part, used, capacity in (
        ("hot", len(table.hot), table.hot.capacity),
        ("cold", table.cold.used, table.cold.capacity),
    ):
        held.add_metric((part,), used)
        most.add_metric((part,), capacity)
    sessions = GaugeMetricFamily("headrace_affinity_sessions", "Remembered", len(placement.sessions))
    lifetime = GaugeMetricFamily(
        "headrace_affinity_lifetime_seconds", "Of hot prefixes", placement.sessions.lifetime_seconds
    )
    return held, most, sessions, lifetime


def _paths(router: Router) -> Iterable[Metric]:
    paths = router.placement.paths
    share = GaugeMetricFamily("headrace_path_share_ratio", "Of slots that both want", labels=("path",))
    for path, value in zip((CachePath.HOT, CachePath.COLD), paths.shares(), strict=True):
        share.add_metric((path,), value)
    traffic = GaugeMetricFamily("headrace_hot_traffic_ratio", "Of what arrives", paths.hot_traffic)
    running = GaugeMetricFamily("headrace_path_in_flight", "Requests that run", labels=("pool", "path"))
    for pool in router.fleet.pools.values():
        running.add_metric((pool.name, CachePath.HOT), pool.in_flight_hot)
        running.add_metric((pool.name, CachePath.COLD), pool.in_flight - pool.in_flight_hot)
    return share, traffic, running
