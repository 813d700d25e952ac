"""Circuits of a whole router under any sequence of calls, probes, absences, configurations and pauses, against what was promised."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.circuit import CanaryOutcome, CircuitRules, CircuitState, TripCause
from policies.retries import RetryRules
from policies.terms import BackendId, Lane, PoolName, Refusal, Verdict
from routing.backend import Backend, BackendPlan, Hold, Limiter
from routing.circuit import Circuit
from routing.decision import Intent, Lease, Ticket
from routing.router import Router
from routing.rules import Rules

POOL = PoolName("p")
IDS = st.sampled_from(["b0", "b1", "b2", "b3"]).map(BackendId)
MODELS = st.sampled_from(["x", "y", "unknown", ""])
VERDICTS = st.sampled_from([Verdict.FAULT, Verdict.FAULT, Verdict.FAULT, *Verdict])
NEUTRAL = (Verdict.IGNORED, Verdict.BACKPRESSURE)
CIRCUIT = CircuitRules(min_calls=4, failures_in_a_row=3, slow_min_calls=4, slow_seconds=20)
RULES = st.builds(
    Rules,
    circuit=st.builds(
        replace,
        st.just(CIRCUIT),
        panic_share=st.sampled_from([0.0, 0.5, 0.5, 0.9]),
        slow_start_seconds=st.sampled_from([0.0, 30.0]),
        enabled=st.sampled_from([True, True, True, True, False]),
    ),
    retries=st.builds(RetryRules, st.integers(0, 2)),
)


class CircuitMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router(Rules())
        self.router.circuits.on_change = self.changed
        self.now = 0.0
        self.jitter = 0.0
        self.held: list[Lease] = []
        self.waiting: list[Ticket] = []
        self.states: dict[Circuit, CircuitState] = {}
        """Of those that are not closed, as listeners heard of it."""
        self.probing: list[Circuit] = []
        self.verdict: Verdict | None = None
        """Of the call that ends now."""
        self.stale = False
        """It was dispatched before its circuit changed last."""
        self.openings: dict[Circuit, int] = {}

    # --- what happens -----------------------------------------------------------------------------------------------------

    @initialize(count=st.integers(1, 4), rules=RULES, told=st.booleans())
    def begin(self, count: int, rules: Rules, told: bool) -> None:
        self.configure(count, 3, rules)
        if told:
            for backend in self.router.fleet:
                self.router.engines.learn_models(backend.id, frozenset("xy"))

    @rule(count=st.integers(1, 4), window=st.none() | st.integers(1, 20), rules=RULES)
    def configure(self, count: int, window: int | None, rules: Rules) -> None:
        plans = [BackendPlan(BackendId(f"b{number}"), POOL, window) for number in range(count)]
        self.router.configure(plans, rules)
        self.pump()

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 11.0, 61.0, 400.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(jitter=st.floats(0, 1))
    def beat(self, jitter: float) -> None:
        self.router.circuits.beat(self.now, jitter)
        self.pump()

    @rule(model=MODELS, lane=st.sampled_from([Lane.STANDARD, Lane.EMERGENCY]), tenant=st.sampled_from("ab"))
    def arrive(self, model: str, lane: Lane, tenant: str) -> None:
        decision = self.router.arrive(model, self.now, Intent(lane=lane, tenant=tenant, streamed=True))
        if isinstance(decision, Lease):
            self.granted(decision)
        elif isinstance(decision, Ticket):
            self.waiting.append(decision)
        elif decision is Refusal.NO_BACKEND:
            self.no_circuit_is_to_blame(model)

    @rule(
        id=IDS,
        model=st.sampled_from(["x", ""]),
        verdicts=st.lists(VERDICTS, min_size=3, max_size=12),
        seconds=st.sampled_from([0.1, 0.1, 5.0]),
    )
    def run_of_calls(self, id: BackendId, model: str, verdicts: list[Verdict], seconds: float) -> None:
        """One after the other on one backend, of two clients in turn."""
        for number, verdict in enumerate(verdicts):
            intent = Intent(tenant="ab"[number % 2], streamed=True, backend=id)
            decision = self.router.arrive(model, self.now, intent)
            if not isinstance(decision, Lease):
                if isinstance(decision, Ticket):
                    assert self.router.cancel(decision)
                return
            self.ends(decision, verdict, seconds)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), verdict=VERDICTS, seconds=st.sampled_from([0.0, 0.1, 5.0]))
    def finish(self, data: st.DataObject, verdict: Verdict, seconds: float) -> None:
        lease = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if lease.ticket is not None and lease.ticket in self.waiting:
            self.waiting.remove(lease.ticket)
        self.ends(lease, verdict, seconds)

    @precondition(lambda self: any(lease.ticket is None for lease in self.held))
    @rule(data=st.data(), verdict=st.sampled_from([Verdict.FAULT, Verdict.BACKPRESSURE]))
    def move(self, data: st.DataObject, verdict: Verdict) -> None:
        lease = data.draw(st.sampled_from([one for one in self.held if one.ticket is None]))
        before = lease.backend
        lease.verdict = verdict
        self.judged(lease, verdict)
        if self.router.move(lease, verdict, False, True, self.now):
            if lease.ticket is not None:
                self.waiting.append(lease.ticket)
            else:
                assert lease.backend is not before
                self.is_allowed(lease)
        self.verdict = None
        self.pump()

    @rule(id=IDS)
    def unreachable(self, id: BackendId) -> None:
        backend = self.router.fleet.get(id)
        if backend is not None:
            self.router.unreachable(backend, self.now)
            self.pump()

    @rule(id=IDS, healthy=st.booleans())
    def probed(self, id: BackendId, healthy: bool) -> None:
        self.router.engines.probed(id, healthy, True, self.now)
        self.pump()

    @rule(id=IDS, models=st.frozensets(st.sampled_from("xy"), min_size=1))
    def learn_models(self, id: BackendId, models: frozenset[str]) -> None:
        self.router.engines.learn_models(id, models)
        self.pump()

    @rule(id=IDS, hold=st.booleans())
    def operator(self, id: BackendId, hold: bool) -> None:
        backend = self.router.fleet.get(id)
        if backend is not None:
            (self.router.fleet.hold if hold else self.router.fleet.release)(backend, Hold.OPERATOR)
            self.pump()

    @precondition(lambda self: self.states)
    @rule(data=st.data(), at_its_time=st.booleans())
    def canary_begins(self, data: st.DataObject, at_its_time: bool) -> None:
        circuit = data.draw(st.sampled_from(list(self.states)))
        if at_its_time:
            self.now = max(self.now, circuit.probe_at)
        may = circuit not in self.probing and self.now >= circuit.probe_at
        assert self.router.circuits.canary_begins(circuit, self.now) == may
        if may:
            self.probing.append(circuit)
            assert circuit.state is CircuitState.HALF_OPEN

    @precondition(lambda self: self.probing)
    @rule(
        data=st.data(), outcome=st.sampled_from(CanaryOutcome), jitter=st.floats(0, 1), given_up=st.booleans()
    )
    def canary_ends(self, data: st.DataObject, outcome: CanaryOutcome, jitter: float, given_up: bool) -> None:
        circuit = data.draw(st.sampled_from(self.probing))
        self.probing.remove(circuit)
        if given_up:
            self.router.circuits.canary_given_up(circuit)
            return
        good, k, cause = circuit.good_canaries, circuit.k, circuit.cause
        self.jitter = jitter
        self.router.circuits.canary_ended(circuit, outcome, self.now, jitter)
        is_bad = outcome is CanaryOutcome.BAD or (
            outcome is CanaryOutcome.SLOW and cause is TripCause.SLOW_CALLS
        )
        if is_bad:
            assert circuit.state is CircuitState.OPEN and circuit.k in (k, k + 1) and circuit.k <= 6
            whole = min(5.0 * 2**circuit.k, 300.0)
            assert abs(circuit.probe_at - self.now - whole / 2 * (1 + jitter)) < 1e-6
        elif outcome is CanaryOutcome.NEUTRAL:
            assert circuit.state is CircuitState.HALF_OPEN and circuit.good_canaries == good
        else:
            assert circuit.is_closed == (good + 1 >= 3)
        self.pump()

    # --- what was promised ------------------------------------------------------------------------------------------------

    def changed(self, circuit: Circuit) -> None:
        """The listener's side: closed circuits open by calls that say something, and all else goes by canaries."""
        if not circuit.is_live or circuit.is_closed:
            assert self.states.pop(circuit) is not None
            self.probing = [one for one in self.probing if one is not circuit]
            return
        if circuit not in self.states:
            assert circuit.state is CircuitState.OPEN
            if circuit.cause is not TripCause.SLOW_CALLS:
                assert self.verdict is Verdict.FAULT and not self.stale
            assert self.now + 2.5 * 2**circuit.k - 1e-6 <= max(circuit.probe_at, self.now + 150.0)
            assert circuit.probe_at - self.now <= 300.0 + 1e-6
        self.states[circuit] = circuit.state

    def judged(self, lease: Lease, verdict: Verdict) -> None:
        """Before the call ends."""
        self.verdict = verdict
        model = lease.line.model
        known = [one for one in self.circuits() if one.backend is lease.backend and one.model in (model, "")]
        newest = max(
            [one.since for one in known if one.model == model] or [one.since for one in known] or [0]
        )
        self.stale = lease.circuit_changes < newest and len(known) == 1

    def ends(self, lease: Lease, verdict: Verdict, seconds: float) -> None:
        before = {one: (one.state, one.in_a_row) for one in self.circuits()}
        trips = sum(self.router.circuits.trips.values())
        self.judged(lease, verdict)
        lease.verdict, lease.service_seconds = verdict, seconds
        self.router.finish(lease, self.now)
        if verdict is not Verdict.FAULT or self.stale:
            assert sum(self.router.circuits.trips.values()) == trips
        if verdict in NEUTRAL:
            assert {one: (one.state, one.in_a_row) for one in self.circuits()} == before
        self.verdict = None
        self.pump()

    def granted(self, lease: Lease) -> None:
        self.held.append(lease)
        self.is_allowed(lease)

    def is_allowed(self, lease: Lease) -> None:
        """No request probes an open circuit, but where panic says so, and then no emergency that could go elsewhere."""
        backend, model = lease.backend, lease.model
        if lease.is_trial:  # it rests again at once, and is no choice of panic's then
            assert backend.is_resting
        else:
            assert Hold.CIRCUIT not in backend.holds and model not in backend.open_models
        for circuit in self.circuits():
            if (
                circuit.backend is backend
                and circuit.model == model
                and not (circuit.is_closed or lease.is_trial)
            ):
                assert self.router.circuits.panics(POOL)
        if lease.tag.lane is Lane.EMERGENCY and (lease.is_trial or Limiter.PANIC in backend.shares):
            broken = {circuit.backend for circuit in self.states}
            for other in self.router.fleet:
                is_well = other.is_present() and not other.is_blocked and other not in broken
                serves = not model or other.models is None or model in other.models
                assert not (is_well and serves and other not in lease.tried)

    def no_circuit_is_to_blame(self, model: str) -> None:
        """Panic comes before refusals."""
        for backend in self.router.fleet:
            if not model or (backend.models is not None and model in backend.models):
                assert backend.is_resting or backend.holds - {Hold.CIRCUIT}

    def circuits(self) -> list[Circuit]:
        return list(self.router.circuits)

    def pump(self) -> None:
        for ticket, grant in self.router.pump(self.now):
            self.waiting.remove(ticket)
            if isinstance(grant, Lease):
                if grant not in self.held:
                    self.held.append(grant)
                self.is_allowed(grant)
            elif grant is Refusal.NO_BACKEND and ticket.lease is None:
                self.no_circuit_is_to_blame(ticket.model)

    @invariant()
    def listeners_know_the_state_of_all(self) -> None:
        assert self.states == {one: one.state for one in self.circuits() if not one.is_closed}
        assert {one for one in self.circuits() if one.is_probing} == set(self.probing)

    @invariant()
    def circuits_are_of_what_is_configured(self) -> None:
        fleet = set(self.router.fleet)
        for watch in self.router.circuits.watches:
            assert watch.backend in fleet and self.router.rules.circuit.enabled
            assert set(watch.circuits) <= {"", *(watch.backend.models or ())}

    @invariant()
    def nobody_is_held_without_a_circuit(self) -> None:
        by_backend: dict[Backend, list[Circuit]] = {}
        for circuit in self.states:
            by_backend.setdefault(circuit.backend, []).append(circuit)
        for backend in self.router.fleet:
            is_held = Hold.CIRCUIT in backend.holds or Limiter.PANIC in backend.shares
            assert not is_held or backend in by_backend
            share = backend.shares.get(Limiter.SLOW_START, 1.0)
            assert 0.1 <= share <= 1.0

    @invariant()
    def so_many_are_used_as_panic_promises(self) -> None:
        rules = self.router.rules.circuit
        usable = [one for one in self.router.fleet if not one.is_resting and one.holds <= {Hold.CIRCUIT}]
        out = [one for one in usable if Hold.CIRCUIT in one.holds]
        assert len(out) <= rules.panic_share * len(usable)
        if usable:
            assert len(out) < len(usable)

    def teardown(self) -> None:
        """When all is well again nothing is left of it."""
        for backend in list(self.router.fleet):
            self.router.fleet.release(backend, Hold.OPERATOR)
            self.probed(backend.id, True)
        for circuit in list(self.states):
            self.router.circuits.canary_given_up(circuit)
            for _ in range(3):
                if not circuit.is_closed and circuit.is_live:
                    self.now = max(self.now, circuit.probe_at)
                    assert self.router.circuits.canary_begins(circuit, self.now)
                    self.router.circuits.canary_ended(circuit, CanaryOutcome.GOOD, self.now, 0.5)
            assert circuit.is_closed
        for _ in range(200):
            self.now += 10.0
            self.router.circuits.beat(self.now)
        for backend in self.router.fleet:
            assert not backend.holds and not backend.shares and not backend.open_models
        assert not self.router.circuits.panics(POOL)


CircuitMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCircuits = CircuitMachine.TestCase
