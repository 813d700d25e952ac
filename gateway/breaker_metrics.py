"""Circuits and what keeps traffic from backends, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| circuit_state | gauge | backend model | 0 closed, 1 half open, 2 open; model is empty for what has no circuit of its own |
| circuit_transitions_total | counter | backend state | changes of a circuit to `closed`, `half_open`, `open` |
| circuit_trips_total | counter | backend cause | openings of a closed circuit by `failures`, `slow_calls`, `consecutive` |
| canaries_total | counter | backend outcome | the gateway's own calls to backends whose circuit is open: `good`, `slow`, `bad`, `neutral` |
| backend_share | gauge | backend pool limiter | what is used of its window, only where that is below 1; several multiply |
| backend_held | gauge | backend pool hold | 1 where nothing new is sent there for that reason, else absent |
| pool_panic | gauge | pool | 1 while backends with open circuits are used for want of others |

Label values come from the configuration, closed enums and the names of models that engines tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.circuit import CircuitState
from routing.router import Router

_STATES = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


class Breaker(Collector):
    def __init__(self, now_router: Callable[[], Router]) -> None:
        self._now_router = now_router

    def describe(self) -> Iterable[Metric]:
        return ()  # the router does not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        router = self._now_router()
        yield from _circuits(router)
        yield from _fleet(router)


def _circuits(router: Router) -> Iterable[Metric]:
    circuits = router.circuits
    state = GaugeMetricFamily("headrace_circuit_state", "Now", labels=("backend", "model"))
    for circuit in circuits:
        state.add_metric((circuit.backend.id, circuit.model), _STATES[circuit.state])
    yield state
    counters = (
        ("circuit_transitions", "Changes of circuits", "state", circuits.transitions),
        ("circuit_trips", "Openings of closed circuits", "cause", circuits.trips),
        ("canaries", "Probes of open circuits", "outcome", circuits.canaries),
    )
    for name, text, label, counts in counters:
        family = CounterMetricFamily(f"headrace_{name}", text, labels=("backend", label))
        for (backend, value), count in counts.items():
            family.add_metric((backend, value), count)
        yield family


def _fleet(router: Router) -> Iterable[Metric]:
    share = GaugeMetricFamily(
        "headrace_backend_share", "Used of its window, where not all", labels=("backend", "pool", "limiter")
    )
    held = GaugeMetricFamily(
        "headrace_backend_held", "1 where nothing new is sent there", labels=("backend", "pool", "hold")
    )
    panic = GaugeMetricFamily("headrace_pool_panic", "1 while open ones are used", labels=("pool",))
    for backend in router.fleet:
        for limiter, value in backend.shares.items():
            share.add_metric((backend.id, backend.pool, limiter), value)
        for hold in backend.holds:
            held.add_metric((backend.id, backend.pool, hold), 1)
    for pool in router.fleet.pools:
        panic.add_metric((pool,), float(router.circuits.panics(pool)))
    return share, held, panic
