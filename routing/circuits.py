"""The circuit breaker: what the answers of each backend say of it, by model, and what follows.

    router.finish / move -> ended(lease, verdict, now)        a call, a failed one, or nothing
    heartbeat            -> beat(now, jitter)                 slow calls, outliers, slow starts, panic
    gateway.canary       -> canary_begins / canary_ended      the way back

Rules: `policies.circuit`, `policies.outlier`; what open circuits do to the fleet: `routing.circuit_effects`. A backend has one circuit per model that it tells, MAX_CIRCUITS at most, and one (model "") for all else.
Results of leases that were granted before a circuit's last change are ignored, so what ran while a backend broke down neither closes nor reopens anything. While a circuit is not closed its calls (panic lets some
through) are counted and change nothing: only canaries close it. After a change of a circuit the caller pumps, as it does after each end of a request.
Where a circuit is open, whatever blocks or frees another backend of the pool is looked at in the same step, so panic never comes too late.
Listener: `on_change(circuit)` at each change of state, when `probe_at` was brought forward, and when a circuit that is not closed is not kept any more (`is_live` false).
Counters: by names and closed enums, never set back. Nothing else is kept of a backend that is not configured, and nothing while the rules are not `enabled`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from math import inf

from policies.circuit import (
    Calls,
    CanaryOutcome,
    CircuitRules,
    CircuitState,
    TripCause,
    after_failure,
    is_bad,
    is_too_slow,
    less,
    lowered,
    open_seconds,
    raised,
    slow_start_share,
    summed,
)
from policies.members import FAULT, GOOD
from policies.outlier import OutlierRules
from policies.terms import BackendId, PoolName, Tag, Verdict
from routing.backend import Backend, Limiter
from routing.calls_window import CallsWindow
from routing.circuit import Circuit, Source, Watch, source_of
from routing.circuit_effects import CircuitEffects
from routing.decision import Lease
from routing.fleet import Fleet
from routing.forecast import Forecast
from routing.outliers import Outliers

MAX_CIRCUITS = 64
_GOLDEN = 0.618033988749895
_CONNECT_SECONDS = 0.2


def _nobody(circuit: Circuit) -> None:
    """Where nobody probes open circuits."""


class Circuits:
    def __init__(self, fleet: Fleet, forecast: Forecast) -> None:
        self.rules = CircuitRules()
        self.on_change: Callable[[Circuit], None] = _nobody
        self.transitions: defaultdict[tuple[BackendId, CircuitState], int] = defaultdict(int)
        self.trips: defaultdict[tuple[BackendId, TripCause], int] = defaultdict(int)
        self.canaries: defaultdict[tuple[BackendId, CanaryOutcome], int] = defaultdict(int)
        self.lost_requests = 0
        """Refused for want of a backend while a circuit of their model was open."""
        self.lost_tokens = 0.0
        """Of these, prompts and expected answers, as estimated."""
        self._fleet = fleet
        self._forecast = forecast
        self._watches: dict[Backend, Watch] = {}
        self._open: dict[str, int] = {}
        """How many circuits are not closed, by model; of those that have such."""
        self._effects = CircuitEffects(fleet)
        self._outliers = Outliers(fleet)
        self._spread = 0.5
        fleet.on_fate = self._see_fate
        fleet.on_models = self._see_models

    def __iter__(self) -> Iterator[Circuit]:
        return (circuit for watch in self._watches.values() for circuit in watch.circuits.values())

    @property
    def watches(self) -> Iterator[Watch]:
        return iter(self._watches.values())

    def fails(self, backend: Backend) -> bool:
        """Whether every circuit of it is open or only tried: what it is used for all the same is for want of others."""
        watch = self._watches.get(backend)
        return (
            watch is not None
            and bool(watch.circuits)
            and not any(one.is_closed for one in watch.circuits.values())
        )

    def panics(self, pool: PoolName) -> bool:
        """Whether it uses backends whose circuits are open, for want of others."""
        return pool in self._effects.panics

    def configure(self, rules: CircuitRules, outlier: OutlierRules) -> None:
        """To be called when the fleet is configured. Circuits of backends that stay go on; a longer or shorter window begins empty."""
        seconds = _kept_seconds(rules)
        is_resized = seconds != _kept_seconds(self.rules)
        self.rules, self._outliers.rules = rules, outlier
        for backend in [
            one for one in self._watches if not rules.enabled or self._fleet.get(one.id) is not one
        ]:
            self._drop(self._watches.pop(backend))
        for backend in self._fleet if rules.enabled else ():
            watch = self._watches.setdefault(backend, Watch(backend))
            watch.has_peers = len(self._fleet.pools[backend.pool].backends) > 1
            if is_resized:
                for circuit in watch.circuits.values():
                    circuit.window = CallsWindow(seconds)
        self._apply()

    # --- calls ----------------------------------------------------------------------------------------------------------------

    def ended(self, lease: Lease, verdict: Verdict, now: float) -> None:
        """An attempt on `lease.backend`; once for each."""
        if verdict is GOOD:
            backend = lease.backend
            watch = self._watches.get(backend)
            if watch is None:
                return
            model = lease.line.model
            circuit = watch.circuits.get(model) or self._circuit_of(watch, model)
            if lease.circuit_changes < circuit.since:
                return
            is_slow = False
            seconds = lease.service_seconds
            if seconds and watch.has_peers:
                expected = self._forecast.service_seconds(backend.pool, lease.tag)
                if expected:
                    pace = seconds / expected
                    watch.pace_sum += pace
                    watch.pace_calls += 1
                    others = watch.others_pace
                    if others is not None and pace > self.rules.slow_factor * others:
                        is_slow = circuit.has_slow = True
            circuit.window.note(now, False, is_slow)
            circuit.in_a_row = 0
            circuit.served = lease.intent
        elif verdict is FAULT:
            self._failed(lease, now)

    def refused(self, model: str, tag: Tag) -> None:
        """No backend was left for this request; counts as lost if a circuit could have something to do with it."""
        if self._open and (not model or "" in self._open or model in self._open):
            self.lost_requests += 1
            self.lost_tokens += tag.prompt_tokens + tag.output_tokens

    def _failed(self, lease: Lease, now: float) -> None:
        watch = self._watches.get(lease.backend)
        if watch is None:
            return
        model = lease.line.model
        circuit = watch.circuits.get(model) or self._circuit_of(watch, model)
        if lease.circuit_changes < circuit.since:
            return
        source = source_of(lease.intent)
        circuit.failed(source, now)
        if not circuit.is_closed:
            return
        rules = self.rules
        cause = after_failure(
            circuit.window.last(rules.fast_seconds, now),
            circuit.in_a_row,
            circuit.row_has_two_sources,
            now - circuit.other_source_at <= rules.fast_seconds,
            lambda: self._is_served(source, lease.backend.pool),
            rules,
        )
        if cause is not None:
            self._trip(circuit, cause, now)

    def _is_served(self, source: Source, pool: PoolName) -> bool:
        return any(
            one.served is not None and one.backend.pool == pool and source_of(one.served) == source
            for one in self
        )

    def _circuit_of(self, watch: Watch, model: str) -> Circuit:
        told = watch.backend.models
        # A name that the engine has not told is a client's string: keeping it would let clients grow the table.
        if told is None or model not in told or len(watch.circuits) >= MAX_CIRCUITS:
            model = ""
        circuit = watch.circuits.get(model)
        if circuit is None:
            circuit = watch.circuits[model] = Circuit(watch.backend, model, _kept_seconds(self.rules))
            circuit.since = watch.backend.circuit_changes
        return circuit

    # --- time -----------------------------------------------------------------------------------------------------------------

    def beat(self, now: float, jitter: float | None = None) -> None:
        """Once a second or so. `jitter` 0..1, by chance, so that many gateways do not probe in step."""
        if jitter is not None:
            self._spread = jitter
        if self._fleet.has_absent:
            self._fleet.pass_time(now)
        for watch in self._watches.values():
            self._see_absence(watch, now)
            if watch.slow_start_at is not None:
                share = slow_start_share(now - watch.slow_start_at, self.rules)
                self._fleet.use_share(watch.backend, Limiter.SLOW_START, share)
                if share >= 1.0:
                    watch.slow_start_at = None
        recent: dict[PoolName, Calls] = {}
        for circuit in list(self):
            if not circuit.is_closed:
                circuit.look_back(self.rules.slow_seconds, now)
            elif circuit.has_slow:
                self._see_slow(circuit, recent, now)
        self._outliers.pass_time(self._watches.values(), now)
        if self._open:
            self._apply()

    def _see_absence(self, watch: Watch, now: float) -> None:
        """An engine that can be reached again is most likely another one: no use to wait for the end of a long pause."""
        is_absent = not watch.backend.is_present()
        if watch.was_absent and not is_absent:
            for circuit in watch.circuits.values():
                if circuit.state is CircuitState.OPEN and circuit.probe_at > now:
                    circuit.probe_at = now
                    self.on_change(circuit)
        watch.was_absent = is_absent

    def _see_slow(self, circuit: Circuit, recent: dict[PoolName, Calls], now: float) -> None:
        """`recent`: what is known already of whole pools at this time."""
        calls = circuit.window.last(self.rules.slow_seconds, now)
        if not calls.slow:
            circuit.has_slow = False
        elif is_too_slow(calls, lambda: self._calls_of_others(circuit.backend, recent, now), self.rules):
            self._trip(circuit, TripCause.SLOW_CALLS, now)

    def _calls_of_others(self, backend: Backend, recent: dict[PoolName, Calls], now: float) -> Calls:
        """Of the pool's other backends, in the slow window."""
        pool = backend.pool
        if pool not in recent:
            members = self._fleet.pools[pool].backends
            recent[pool] = summed([self._calls_of(one, now) for one in members])
        return less(recent[pool], self._calls_of(backend, now))

    def _calls_of(self, backend: Backend, now: float) -> Calls:
        circuits = self._watches[backend].circuits.values()
        return summed([one.window.last(self.rules.slow_seconds, now) for one in circuits])

    def _see_fate(self, pool: PoolName) -> None:
        """One of its backends rests or is held, or does so no more."""
        if self._open:
            self._effects.apply(pool, self._watches, self.rules)

    def _see_models(self, backend: Backend) -> None:
        watch, told, before = self._watches.get(backend), backend.models, bool(self._open)
        if watch is not None:
            for model in [one for one in watch.circuits if one and (told is None or one not in told)]:
                self._gone(watch.circuits.pop(model))
        if before:
            self._effects.apply(backend.pool, self._watches, self.rules)

    # --- canaries -------------------------------------------------------------------------------------------------------------

    def canary_begins(self, circuit: Circuit, now: float) -> bool:
        """Whether one may be sent now: only one at a time, and none before its time."""
        if not circuit.is_live or circuit.is_closed or circuit.is_probing or now < circuit.probe_at:
            return False
        circuit.is_probing = True
        if circuit.state is CircuitState.OPEN:
            circuit.good_canaries = 0
            self._turn(circuit, CircuitState.HALF_OPEN, frees_or_blocks=False)
        return True

    def canary_ended(self, circuit: Circuit, outcome: CanaryOutcome, now: float, jitter: float) -> None:
        if not circuit.is_live or not circuit.is_probing:
            return
        circuit.is_probing = False
        self.canaries[circuit.backend.id, outcome] += 1
        if outcome is CanaryOutcome.NEUTRAL:
            circuit.probe_at = now + open_seconds(0, jitter, self.rules)
        elif is_bad(outcome, circuit.cause):
            self._opened(circuit, now, jitter)
        else:
            circuit.good_canaries += 1
            circuit.probe_at = now
            if circuit.good_canaries >= self.rules.good_canaries:
                self._close(circuit, now)

    def canary_given_up(self, circuit: Circuit) -> None:
        """It was broken off on this side."""
        circuit.is_probing = False

    def canary_limit_seconds(self, backend: Backend) -> float:
        """Until its first byte: what takes longer is slow. It has to connect first."""
        quickest = self._forecast.quickest_seconds(backend.pool)
        return inf if quickest is None else self.rules.slow_factor * quickest + _CONNECT_SECONDS

    # --- changes --------------------------------------------------------------------------------------------------------------

    def _trip(self, circuit: Circuit, cause: TripCause, now: float) -> None:
        circuit.next_k = lowered(circuit.next_k, now - circuit.closed_at, self.rules)
        circuit.cause = cause
        circuit.look_back(self.rules.slow_seconds, now)
        self.trips[circuit.backend.id, cause] += 1
        self._spread = (self._spread + _GOLDEN) % 1.0
        self._count_open(circuit, 1)
        self._opened(circuit, now, self._spread)

    def _opened(self, circuit: Circuit, now: float, jitter: float) -> None:
        circuit.k = circuit.next_k
        circuit.next_k = raised(circuit.k, self.rules)
        circuit.probe_at = now + open_seconds(circuit.k, jitter, self.rules)
        watch = self._watches[circuit.backend]
        watch.was_absent = not circuit.backend.is_present()
        self._turn(circuit, CircuitState.OPEN, frees_or_blocks=circuit.is_closed)
        if watch.is_open(watch.open_models()):
            watch.slow_start_at = None
            self._fleet.use_share(circuit.backend, Limiter.SLOW_START, 1.0)

    def _close(self, circuit: Circuit, now: float) -> None:
        watch = self._watches[circuit.backend]
        was_open = watch.is_open(watch.open_models())
        circuit.closed_at, circuit.probe_at = now, inf
        circuit.forget_calls()
        self._count_open(circuit, -1)
        circuit.state = CircuitState.CLOSED
        share = slow_start_share(0.0, self.rules)
        if was_open and not watch.is_open(watch.open_models()) and share < 1.0:
            watch.slow_start_at = now
            self._fleet.use_share(circuit.backend, Limiter.SLOW_START, share)
        self._turn(circuit, CircuitState.CLOSED, frees_or_blocks=True)

    def _turn(self, circuit: Circuit, state: CircuitState, frees_or_blocks: bool) -> None:
        backend = circuit.backend
        circuit.state = state
        backend.circuit_changes += 1
        circuit.since = backend.circuit_changes
        self.transitions[backend.id, state] += 1
        if frees_or_blocks:
            self._effects.apply(backend.pool, self._watches, self.rules)
        self.on_change(circuit)

    def _apply(self) -> None:
        for pool in self._fleet.pools:
            self._effects.apply(pool, self._watches, self.rules)

    def _drop(self, watch: Watch) -> None:
        for circuit in watch.circuits.values():
            self._gone(circuit)
        watch.circuits.clear()
        self._effects.clear(watch)

    def _gone(self, circuit: Circuit) -> None:
        circuit.is_live = circuit.is_probing = False
        if not circuit.is_closed:
            self._count_open(circuit, -1)
            self.on_change(circuit)

    def _count_open(self, circuit: Circuit, by: int) -> None:
        count = self._open.get(circuit.model, 0) + by
        if count:
            self._open[circuit.model] = count
        else:
            del self._open[circuit.model]


def _kept_seconds(rules: CircuitRules) -> int:
    return max(rules.fast_seconds, rules.slow_seconds)
