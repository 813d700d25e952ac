"""Circuits and what they do to the backends, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| circuit_state | gauge | backend model | 0 closed, 1 half open, 2 open; model is empty for what has no circuit of its own |
| circuit_transitions_total | counter | backend state | changes to `closed`, `half_open`, `open` |
| circuit_trips_total | counter | backend cause | openings by `failures`, `slow_calls`, `consecutive`, or a bad `canary` |
| canaries_total | counter | backend outcome | calls of the gateway's own to open circuits: `good`, `slow`, `bad`, `neutral` |
| backend_share | gauge | backend pool limiter | of its window that is used, where below 1: `slow_start`, `outlier`, `panic`, `rule` |
| backend_held | gauge | backend pool hold | 1 where nothing new is sent: `circuit`, `rule`, `operator`, `standby` |
| pool_panic | gauge | pool | 1 while backends with open circuits are used for want of others |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.circuit import CircuitState
from routing.router import Router

_NUMBER = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


class BreakerNow(Collector):
    """Read off the live objects at a scrape."""

    def __init__(self, router: Callable[[], Router]) -> None:
        self._router = router

    def describe(self) -> Iterable[Metric]:
        return ()  # the live objects do not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router = self._router()
        circuits = router.circuits
        state = GaugeMetricFamily(
            "headrace_circuit_state", "0 closed, 1 half open, 2 open", labels=("backend", "model")
        )
        for circuit in circuits:
            state.add_metric((circuit.backend.id, circuit.model), _NUMBER[circuit.state])
        turns = CounterMetricFamily(
            "headrace_circuit_transitions", "Changes of circuits", labels=("backend", "state")
        )
        for (backend_id, to), count in circuits.transitions.items():
            turns.add_metric((backend_id, to), count)
        trips = CounterMetricFamily("headrace_circuit_trips", "Openings", labels=("backend", "cause"))
        for (backend_id, cause), count in circuits.trips.items():
            trips.add_metric((backend_id, cause), count)
        canaries = CounterMetricFamily(
            "headrace_canaries", "Own calls to open circuits", labels=("backend", "outcome")
        )
        for (backend_id, outcome), count in circuits.canaries.items():
            canaries.add_metric((backend_id, outcome), count)
        share = GaugeMetricFamily(
            "headrace_backend_share", "Of its window in use", labels=("backend", "pool", "limiter")
        )
        held = GaugeMetricFamily(
            "headrace_backend_held", "1 where nothing new is sent", labels=("backend", "pool", "hold")
        )
        for backend in router.fleet:
            for limiter, value in backend.shares.items():
                share.add_metric((backend.id, backend.pool, limiter), value)
            for hold in backend.holds:
                held.add_metric((backend.id, backend.pool, hold), 1)
        panic = GaugeMetricFamily("headrace_pool_panic", "1 while open circuits are used", labels=("pool",))
        for name in router.fleet.pools:
            panic.add_metric((name,), float(circuits.panics(name)))
        yield from (state, turns, trips, canaries, share, held, panic)
