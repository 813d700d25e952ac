"""The router under any sequence of events, against a plain record of what was promised to whom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.emergency_budget import EmergencyBudgetRules
from policies.fairness import FairnessRules
from policies.preemption import PreemptionRules
from policies.retries import RetryRules
from policies.terms import BackendId, Lane, PoolName, Refusal, TicketId, Verdict
from routing.backend import Backend, BackendPlan
from routing.decision import Intent, Lease, Ticket
from routing.preemption import Running
from routing.router import Router
from routing.rules import Rules
from routing.tagger import TaggerRules
from tests.routing.reachable import kept_by
from tests.strategies import fleet_plans

MODELS = st.sampled_from(["x", "y", "unknown", ""])
IDS = st.sampled_from(["b0", "b1", "b2", "b3"]).map(BackendId)
VERDICTS = st.sampled_from(Verdict)
LANES = st.sampled_from([Lane.STANDARD, Lane.EMERGENCY])
PREEMPTION = PreemptionRules(wait_seconds=0.5)
RULES = st.builds(
    Rules,
    fairness=st.builds(FairnessRules, max_waiting=st.integers(0, 8), starving_every=st.just(1_000_000)),
    probe_failures=st.integers(1, 3),
    retries=st.builds(RetryRules, st.integers(0, 3)),
    tagger=st.just(TaggerRules(budget=EmergencyBudgetRules(burst=1_000_000))),
    preemption=st.just(PREEMPTION),
)


def order(ticket: Ticket) -> tuple[bool, bool, float, int]:
    """Emergencies go first; among its like does a request that has had a slot before."""
    return ticket.tag.lane is not Lane.EMERGENCY, ticket.lease is None, ticket.arrived, ticket.id


def spared(backends: list[Backend], lane: Lane) -> list[Backend]:
    """An emergency is no trial of an absent backend whose pool has another for it."""
    if lane is not Lane.EMERGENCY:
        return backends
    pools = {one.pool for one in backends if one.is_present()}
    return [one for one in backends if one.is_present() or one.pool not in pools]


@dataclass
class Held:
    lease: Lease
    backends: list[Backend]
    """Those that it may not have again: where it failed, and where it is."""


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router(Rules())
        self.now = 0.0
        self.held: list[Held] = []
        self.waiting: dict[TicketId, Ticket] = {}
        self.evicted: dict[TicketId, Ticket] = {}
        self.ended: set[TicketId] = set()
        self.settled_at = -inf
        self.retired: list[Backend] = []

    # --- what a caller may do ---------------------------------------------------------------------------------------------

    @initialize(plans=fleet_plans(), rules=RULES)
    def begin(self, plans: list[BackendPlan], rules: Rules) -> None:
        self.configure(plans, rules)

    @rule(plans=fleet_plans(), rules=RULES)
    def configure(self, plans: list[BackendPlan], rules: Rules) -> None:
        known = {one.id: one for one in self.router.fleet}
        gone = self.router.configure(plans, rules)
        assert {one.id for one in gone} == known.keys() - {plan.id for plan in plans}
        self.retired += gone

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(model=MODELS, lane=LANES)
    def arrive(self, model: str, lane: Lane) -> None:
        had_line = any(
            ticket.model == model and lane in (Lane.STANDARD, ticket.tag.lane)
            for ticket in self.waiting.values()
        )
        present = self.serving(model)
        may_have = spared(self.usable(model), lane)
        decision = self.router.arrive(model, self.now, Intent(lane=lane))
        match decision:
            case Lease():
                assert not had_line, "somebody was overtaken"
                assert decision.backend in may_have
                self.granted(decision, model, 0.0)
            case Ticket():
                assert decision.id not in self.waiting and decision.id not in self.ended
                if len(self.waiting) >= self.router.rules.fairness.max_waiting:
                    self.makes_room(lane)
                self.waiting[decision.id] = decision
            case Refusal.QUEUE_FULL:
                assert len(self.waiting) >= self.router.rules.fairness.max_waiting
            case Refusal.NO_BACKEND:
                assert present or not model
                assert not self.usable(model)
            case Refusal.UNKNOWN_MODEL:
                assert model and not present
            case _:
                raise AssertionError(decision)

    @rule(
        windows=st.lists(st.integers(1, 2), min_size=1, max_size=2),
        model=st.sampled_from(["x", ""]),
        standard=st.integers(2, 6),
        emergencies=st.integers(1, 3),
    )
    def rush(self, windows: list[int], model: str, standard: int, emergencies: int) -> None:
        """More than a small fleet in good health has slots for."""
        plans = [
            BackendPlan(BackendId(f"b{number}"), PoolName("p"), window)
            for number, window in enumerate(windows)
        ]
        self.configure(
            plans, replace(self.router.rules, fairness=FairnessRules(max_waiting=8, starving_every=1_000_000))
        )
        for plan in plans:
            self.learn_models(plan.id, frozenset("xyz"))
            self.probed(plan.id, True, False)
        self.pump()
        for _ in range(standard):
            self.arrive(model, Lane.STANDARD)
        for _ in range(emergencies):
            self.arrive(model, Lane.EMERGENCY)

    @rule()
    def pump(self) -> None:
        before = {**self.waiting, **self.evicted}
        grants = self.router.pump(self.now)
        served = []
        for ticket, grant in grants:
            if self.evicted.pop(ticket.id, None) is not None:
                assert grant is Refusal.QUEUE_FULL
                continue
            assert self.waiting.pop(ticket.id) is ticket
            assert ticket.id not in self.ended
            self.ended.add(ticket.id)
            if not isinstance(grant, Lease):
                assert grant in (Refusal.NO_BACKEND, Refusal.UNKNOWN_MODEL)
                assert not any(self.has_room(one) for one in self.open_to(ticket))
                continue
            served.append((ticket, grant))
            if ticket.lease is None:
                self.granted(grant, ticket.model, self.now - ticket.arrived)
            else:
                assert grant is ticket.lease and grant.ticket is None
                held = next(held for held in self.held if held.lease is grant)
                assert grant.backend not in held.backends
                held.backends.append(grant.backend)
        # One that has failed somewhere holds up its line where it may not go again, and with it those behind it.
        failed = [ticket for ticket in before.values() if ticket.lease is not None and ticket.lease.tried]
        held_up = {ticket.model: order(ticket) for ticket in sorted(failed, key=order, reverse=True)}
        # Nobody still waits for a slot that one who came later got: inside a model and across models.
        for ticket, grant in served:
            for other in self.waiting.values():
                assert (
                    order(other) > order(ticket)
                    or grant.backend not in self.open_to(other)
                    or order(other) > held_up.get(other.model, order(other))
                )
        # And no first of a line waits while there is a slot.
        for model in {ticket.model for ticket in self.waiting.values()}:
            first = min((ticket for ticket in self.waiting.values() if ticket.model == model), key=order)
            if not any(ticket.model == model and ticket in failed for ticket, _ in served):
                assert not any(self.has_room(one) for one in self.open_to(first))
        assert [ticket for ticket, _ in grants if ticket.id not in before] == []

    @precondition(lambda self: any(ticket.lease is None for ticket in self.waiting.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        arrived = sorted(id for id, ticket in self.waiting.items() if ticket.lease is None)
        ticket = self.waiting.pop(data.draw(st.sampled_from(arrived)))
        self.ended.add(ticket.id)
        assert self.router.cancel(ticket)
        assert not self.router.cancel(ticket)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), verdict=VERDICTS, sent=st.booleans(), repeatable=st.booleans())
    def move(self, data: st.DataObject, verdict: Verdict, sent: bool, repeatable: bool) -> None:
        held = data.draw(st.sampled_from(self.running()))
        lease = held.lease
        before = lease.backend, lease.attempts
        gave_way = lease.gives_way
        others = [one for one in self.usable(lease.model) if one not in held.backends]
        had_room = {one for one in spared(others, lease.tag.lane) if self.has_room(one)}
        lease.verdict = verdict
        if self.router.move(lease, verdict, sent, repeatable, self.now):
            assert not sent and repeatable and verdict in (Verdict.FAULT, Verdict.BACKPRESSURE)
            assert before[1] - lease.preemptions <= self.router.rules.retries.max_retries
            assert lease.verdict is Verdict.IGNORED
            self.slot_is_back(gave_way)
            if lease.ticket is not None:
                assert lease.attempts == before[1] and not had_room
                self.waiting[lease.ticket.id] = lease.ticket
                return
            assert lease.backend not in held.backends
            assert lease.backend in had_room
            assert lease.attempts == before[1] + 1
            held.backends.append(lease.backend)
        else:
            assert (lease.backend, lease.attempts, lease.verdict) == (*before, verdict)

    @precondition(lambda self: self.emergency_waits() and self.running())
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 0.5]), at_once=st.booleans())
    def choose_victims(self, data: st.DataObject, seconds: float, at_once: bool) -> None:
        self.now += seconds
        silent = data.draw(st.sets(st.sampled_from(range(len(self.running())))) | st.none())
        told = [held for place, held in enumerate(self.running()) if silent is None or place in silent]
        emergencies = [one for one in self.waiting.values() if one.tag.lane is Lane.EMERGENCY]
        long_enough = [one for one in emergencies if self.now >= one.arrived + PREEMPTION.wait_seconds]
        giving_way = [held for held in self.held if held.lease.gives_way]
        chosen = self.router.preemption.choose(lambda: [Running(held.lease, 0.0) for held in told], self.now)
        assert not chosen or not giving_way
        assert not chosen or self.now >= self.settled_at + PREEMPTION.pause_seconds
        assert len(chosen) <= min(PREEMPTION.victims_at_once, len(emergencies))
        for lease in chosen:
            assert lease.gives_way and lease in [held.lease for held in told]
            assert lease.tag.lane is not Lane.EMERGENCY and lease.preemptions < PREEMPTION.max_preemptions
            assert any(lease.backend in self.open_to(one) for one in emergencies)
        # Where an emergency has waited long enough it is helped if it can be.
        is_time = not giving_way and self.now >= self.settled_at + PREEMPTION.pause_seconds
        if is_time and not chosen:
            for one in long_enough:
                for held in told:
                    assert held.lease.backend not in self.open_to(one) or not self.may_give_way(held.lease)
        if at_once:
            for lease in chosen:
                self.step_back(next(held for held in told if held.lease is lease))
            self.pump()

    @precondition(lambda self: any(held.lease.gives_way for held in self.held))
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        self.step_back(data.draw(st.sampled_from([held for held in self.held if held.lease.gives_way])))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), verdict=VERDICTS)
    def finish(self, data: st.DataObject, verdict: Verdict) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        held.lease.verdict = verdict
        lease = held.lease
        was_present = lease.backend.is_present()
        gave_way = lease.gives_way
        holds_slot = lease.ticket is None
        if lease.ticket is not None:
            self.waiting.pop(lease.ticket.id, None)  # it may have been refused
            self.ended.add(lease.ticket.id)
        self.router.finish(lease, self.now)
        self.slot_is_back(gave_way)
        proves = verdict is Verdict.GOOD and lease.is_trial and holds_slot
        assert lease.backend.is_present() == (was_present or proves)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unreachable(self, data: st.DataObject) -> None:
        backend = data.draw(st.sampled_from(self.held)).lease.backend
        self.router.unreachable(backend, self.now)
        assert backend.absence.blocks(self.now)

    @rule(id=IDS, healthy=st.booleans(), refused=st.booleans())
    def probed(self, id: BackendId, healthy: bool, refused: bool) -> None:
        self.router.engines.probed(id, healthy, refused, self.now)
        backend = self.router.fleet.get(id)
        if backend is not None and (healthy or refused):
            assert backend.is_present() == healthy

    @rule(id=IDS, models=st.frozensets(st.sampled_from("xyz")))
    def learn_models(self, id: BackendId, models: frozenset[str]) -> None:
        self.router.engines.learn_models(id, models)

    # --- what was promised ------------------------------------------------------------------------------------------------

    def granted(self, lease: Lease, model: str, queue_seconds: float) -> None:
        backend = lease.backend
        assert backend not in self.retired and self.router.fleet.get(backend.id) is backend
        assert backend.models is None or not model or model in backend.models
        assert backend.window is None or backend.in_flight <= backend.window
        assert lease.queue_seconds == queue_seconds
        if not backend.is_present():  # a trial: it takes the next pause upon itself
            assert backend.absence.blocks(self.now)
        self.held.append(Held(lease, [backend]))

    def makes_room(self, lane: Lane) -> None:
        """Somebody is out of the queue, and will be told."""
        queued = {ticket.id for ticket in self.router.queue.tickets()}
        [gone] = [ticket for ticket in self.waiting.values() if ticket.id not in queued]
        assert lane is Lane.EMERGENCY and gone.tag.lane is not Lane.EMERGENCY and gone.lease is None
        self.evicted[gone.id] = self.waiting.pop(gone.id)
        self.ended.add(gone.id)

    def step_back(self, held: Held) -> None:
        lease, attempts = held.lease, held.lease.attempts
        assert held.backends.pop() is lease.backend
        self.router.put_back(lease, self.now)
        self.slot_is_back(True)
        assert lease.ticket is not None and not lease.gives_way and lease.attempts == attempts
        assert lease.preemptions <= PREEMPTION.max_preemptions
        self.waiting[lease.ticket.id] = lease.ticket

    def emergency_waits(self) -> bool:
        return any(ticket.tag.lane is Lane.EMERGENCY for ticket in self.waiting.values())

    def slot_is_back(self, gave_way: bool) -> None:
        if gave_way:
            self.settled_at = self.now

    def may_give_way(self, lease: Lease) -> bool:
        window = lease.backend.window
        return (
            lease.tag.lane is not Lane.EMERGENCY
            and not lease.backend.is_blocked  # as of the last pump
            and lease.preemptions < PREEMPTION.max_preemptions
            and window is not None
            and lease.backend.in_flight <= window
        )

    def serving(self, model: str) -> list[Backend]:
        fleet = self.router.fleet
        return [one for one in fleet if not model or one.models is None or model in one.models]

    def usable(self, model: str) -> list[Backend]:
        return [one for one in self.serving(model) if not one.absence.blocks(self.now)]

    def open_to(self, ticket: Ticket) -> list[Backend]:
        tried = ticket.lease.tried if ticket.lease is not None else []
        return spared([one for one in self.usable(ticket.model) if one not in tried], ticket.tag.lane)

    def running(self) -> list[Held]:
        return [held for held in self.held if held.lease.ticket is None]

    def has_room(self, backend: Backend) -> bool:
        return backend.window is None or backend.in_flight < backend.window

    @invariant()
    def each_backend_counts_its_open_leases(self) -> None:
        for backend in (*self.router.fleet, *self.retired):
            assert backend.in_flight == sum(held.lease.backend is backend for held in self.running())

    @invariant()
    def as_many_wait_as_were_told_to(self) -> None:
        assert self.router.waiting == len(self.waiting)

    @invariant()
    def nothing_is_kept_of_retired_backends_and_ended_tickets(self) -> None:
        kept = kept_by(self.router)
        left = [ticket.lease for ticket in self.waiting.values() if ticket.lease]
        tried = [one for lease in left for one in (*lease.tried, lease.backend)]
        assert not [
            one for one in kept if isinstance(one, Backend) and one in self.retired and one not in tried
        ]
        assert sum(isinstance(one, Ticket) for one in kept) == len(self.waiting) + len(self.evicted)

    def teardown(self) -> None:
        """Whoever waits is served or told why not, as others end; when everything has ended, every slot is free and nobody waits."""
        for backend in list(self.router.fleet):
            self.probed(backend.id, True, False)
        for _ in range(len(self.waiting) + 1):
            for held in self.running():
                self.held.remove(held)
                self.router.finish(held.lease, self.now)
            self.pump()
        assert not self.waiting and not self.evicted
        for held in self.held:
            self.router.finish(held.lease, self.now)
        assert self.router.waiting == 0
        assert [one for one in (*self.router.fleet, *self.retired) if one.in_flight] == []


RouterMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRouter = RouterMachine.TestCase
