"""The router under any sequence of events, against a plain record of what was promised to whom."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.fairness import FairnessRules
from policies.retries import RetryRules
from policies.terms import BackendId, Refusal, TicketId, Verdict
from routing.decision import Lease, Ticket
from routing.fleet import Backend, BackendPlan
from routing.router import Router, Rules
from tests.routing.reachable import kept_by
from tests.strategies import fleet_plans

MODELS = st.sampled_from(["x", "y", "unknown", ""])
IDS = st.sampled_from(["b0", "b1", "b2", "b3"]).map(BackendId)
VERDICTS = st.sampled_from(Verdict)
RULES = st.builds(
    Rules,
    fairness=st.builds(FairnessRules, max_waiting=st.integers(0, 4)),
    probe_failures=st.integers(1, 3),
    retries=st.builds(RetryRules, st.integers(0, 3)),
)


def order(ticket: Ticket) -> tuple[bool, float, int]:
    """A request that has waited once goes first."""
    return ticket.lease is None, ticket.arrived, ticket.id


@dataclass
class Held:
    lease: Lease
    backends: list[Backend]


class RouterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router(Rules())
        self.now = 0.0
        self.held: list[Held] = []
        self.waiting: dict[TicketId, Ticket] = {}
        self.ended: set[TicketId] = set()
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

    @rule(model=MODELS)
    def arrive(self, model: str) -> None:
        had_line = any(ticket.model == model for ticket in self.waiting.values())
        present = self.serving(model)
        decision = self.router.arrive(model, self.now)
        match decision:
            case Lease():
                assert not had_line, "somebody was overtaken"
                self.granted(decision, model, 0.0)
            case Ticket():
                assert decision.id not in self.waiting and decision.id not in self.ended
                assert len(self.waiting) < self.router.rules.fairness.max_waiting
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

    @rule()
    def pump(self) -> None:
        before = dict(self.waiting)
        grants = self.router.pump(self.now)
        served = []
        for ticket, grant in grants:
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
        # Nobody still waits for a slot that one who came later got: inside a model and across models.
        for ticket, grant in served:
            for other in self.waiting.values():
                assert order(other) > order(ticket) or grant.backend not in self.open_to(other)
        # And no first of a line waits while there is a slot.
        for model in {ticket.model for ticket in self.waiting.values()}:
            first = min((ticket for ticket in self.waiting.values() if ticket.model == model), key=order)
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
        had_room = {one for one in self.usable(lease.model) if self.has_room(one)}
        lease.verdict = verdict
        if self.router.move(lease, verdict, sent, repeatable, self.now):
            assert not sent and repeatable and verdict in (Verdict.FAULT, Verdict.BACKPRESSURE)
            assert before[1] <= self.router.rules.retries.max_retries
            assert lease.verdict is Verdict.IGNORED
            if lease.ticket is not None:
                assert lease.attempts == before[1] and not had_room - set(held.backends)
                self.waiting[lease.ticket.id] = lease.ticket
                return
            assert lease.backend not in held.backends
            assert lease.backend in had_room
            assert lease.attempts == before[1] + 1
            held.backends.append(lease.backend)
        else:
            assert (lease.backend, lease.attempts, lease.verdict) == (*before, verdict)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), verdict=VERDICTS)
    def finish(self, data: st.DataObject, verdict: Verdict) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        held.lease.verdict = verdict
        lease = held.lease
        was_present = lease.backend.is_present()
        holds_slot = lease.ticket is None
        if lease.ticket is not None:
            del self.waiting[lease.ticket.id]
            self.ended.add(lease.ticket.id)
        self.router.finish(lease, self.now)
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
        self.router.probed(id, healthy, refused, self.now)
        backend = self.router.fleet.get(id)
        if backend is not None and (healthy or refused):
            assert backend.is_present() == healthy

    @rule(id=IDS, models=st.frozensets(st.sampled_from("xyz")))
    def learn_models(self, id: BackendId, models: frozenset[str]) -> None:
        self.router.learn_models(id, models)

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

    def serving(self, model: str) -> list[Backend]:
        fleet = self.router.fleet
        return [one for one in fleet if not model or one.models is None or model in one.models]

    def usable(self, model: str) -> list[Backend]:
        return [one for one in self.serving(model) if not one.absence.blocks(self.now)]

    def open_to(self, ticket: Ticket) -> list[Backend]:
        tried = ticket.lease.tried if ticket.lease is not None else []
        return [one for one in self.usable(ticket.model) if one not in tried]

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
        tried = [one for ticket in self.waiting.values() if ticket.lease for one in ticket.lease.tried]
        assert not [
            one for one in kept if isinstance(one, Backend) and one in self.retired and one not in tried
        ]
        assert sum(isinstance(one, Ticket) for one in kept) == len(self.waiting)

    def teardown(self) -> None:
        """When everything has ended, every slot is free and nobody waits."""
        for held in self.held:
            self.router.finish(held.lease, self.now)
        for ticket in self.waiting.values():
            assert self.router.cancel(ticket) == (ticket.lease is None)
        assert self.router.waiting == 0
        assert [one for one in (*self.router.fleet, *self.retired) if one.in_flight] == []


RouterMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestRouter = RouterMachine.TestCase
