"""Limits of tokens under any sequence of events: what is held is given back, nobody is passed, everybody is served in the end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.capacity_tokens import TokenRules
from policies.circuit import CircuitRules
from policies.dialects import EngineReport
from policies.emergency_budget import EmergencyBudgetRules
from policies.lengths import TextSize
from policies.terms import BackendId, Lane, PoolName, Tag, TicketId, Verdict
from routing.backend import Backend, BackendPlan
from routing.decision import Intent, Lease, Ticket
from routing.router import Router
from routing.rules import Rules
from routing.tagger import TaggerRules
from routing.token_room import TokenRoom

MODELS = st.sampled_from(["x", "y"])
IDS = st.sampled_from(["b0", "b1", "b2"]).map(BackendId)
LANES = st.sampled_from([Lane.STANDARD, Lane.STANDARD, Lane.STANDARD, Lane.EMERGENCY])
PROMPTS = st.sampled_from([0, 5, 30, 500])
ANSWERS = st.sampled_from([1, 10, 200])
LIMITS = st.none() | st.sampled_from([20, 100])
RULES = Rules(
    tagger=TaggerRules(budget=EmergencyBudgetRules(burst=1_000_000)), circuit=CircuitRules(enabled=False)
)


@st.composite
def token_plans(draw: st.DrawFn) -> list[BackendPlan]:
    ids = draw(st.lists(IDS, unique=True, min_size=1, max_size=3))
    windows = st.none() | st.integers(1, 3)
    tokens = st.none() | st.builds(TokenRules, LIMITS, LIMITS, prefill_seconds=st.none() | st.just(1.0))
    return [BackendPlan(id, PoolName("p"), draw(windows), tokens=draw(tokens)) for id in ids]


def order(ticket: Ticket) -> tuple[bool, bool, float, int]:
    """Emergencies go first; among its like does a request that has had a slot before."""
    return ticket.tag.lane is not Lane.EMERGENCY, ticket.lease is None, ticket.arrived, ticket.id


class TokenMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router(RULES)
        self.now = 0.0
        self.leases: list[Lease] = []
        self.waiting: dict[TicketId, Ticket] = {}
        self.rooms: list[TokenRoom] = []

    @initialize(plans=token_plans())
    def begin(self, plans: list[BackendPlan]) -> None:
        self.configure(plans)

    @rule(plans=token_plans())
    def configure(self, plans: list[BackendPlan]) -> None:
        self.router.configure(plans, RULES)
        self.pump()

    @rule(id=IDS, tokens=LIMITS)
    def reported(self, id: BackendId, tokens: int | None) -> None:
        self.router.engines.reported(id, EngineReport(token_capacity=tokens), self.now)
        self.pump()

    @rule(model=MODELS, lane=LANES, prompt=PROMPTS, answer=ANSWERS, streamed=st.booleans())
    def arrive(self, model: str, lane: Lane, prompt: int, answer: int, streamed: bool) -> None:
        self.now += 1.0
        intent = Intent(lane=lane, size=TextSize(token_ids=prompt), max_tokens=answer, streamed=streamed)
        decision = self.router.arrive(model, self.now, intent)
        if isinstance(decision, Lease):
            rivals = [one for one in self.waiting.values() if one.model == model]
            assert lane is Lane.EMERGENCY or not rivals, "somebody was overtaken"
            self.granted(decision)
        else:
            assert isinstance(decision, Ticket), decision
            assert not any(self.is_free(one, decision) for one in self.router.fleet) or self.waiting
            self.waiting[decision.id] = decision
        self.pump()

    def pump(self) -> None:
        served: list[tuple[Ticket, Lease]] = []
        for ticket, grant in self.router.pump(self.now):
            assert self.waiting.pop(ticket.id) is ticket
            if not isinstance(grant, Lease):
                assert ticket.lease is not None
                assert not any(self.may_use(ticket, backend) for backend in self.router.fleet)
                self.leases.remove(ticket.lease)
                self.router.finish(ticket.lease, self.now)
                continue
            served.append((ticket, grant))
            self.granted(grant)
        for model in {ticket.model for ticket in self.waiting.values()}:
            first = min((one for one in self.waiting.values() if one.model == model), key=order)
            assert not any(self.is_free(one, first) for one in self.router.fleet), "it could run"
            later = [lease for one, lease in served if order(one) > order(first)]
            for lease in later:
                if self.may_use(first, lease.backend):
                    assert not has_tokens(lease.backend, first.tag, later), "a later one has its tokens"

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def produced(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.running()))
        prefill = lease.prefill_held
        assert self.router.produced(lease, 1, self.now) == (prefill > 0)
        assert not lease.prefill_held
        self.pump()

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.running()))
        if self.router.move(lease, Verdict.FAULT, False, True, self.now):
            if lease.ticket is not None:
                assert lease.room is None
                self.waiting[lease.ticket.id] = lease.ticket
            self.pump()

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        self.leases.remove(lease)
        if lease.ticket is not None:
            del self.waiting[lease.ticket.id]
        self.router.finish(lease, self.now)
        self.pump()

    @precondition(lambda self: any(ticket.lease is None for ticket in self.waiting.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        new = sorted(id for id, ticket in self.waiting.items() if ticket.lease is None)
        assert self.router.cancel(self.waiting.pop(data.draw(st.sampled_from(new))))
        self.pump()

    # --- what was promised ------------------------------------------------------------------------------------------------

    def running(self) -> list[Lease]:
        return [lease for lease in self.leases if lease.ticket is None]

    def granted(self, lease: Lease) -> None:
        backend = lease.backend
        assert backend.window is None or backend.in_flight <= backend.window
        room = backend.room
        if room is not None and backend.in_flight > 1:
            assert room.reserved <= room.max_tokens
        if lease not in self.leases:
            self.leases.append(lease)

    def may_use(self, ticket: Ticket, backend: Backend) -> bool:
        return ticket.lease is None or backend not in ticket.lease.tried

    def is_free(self, backend: Backend, ticket: Ticket) -> bool:
        """A slot, the tokens, and nobody else for whom they are kept."""
        room = backend.room
        kept_for = None if room is None else room.kept_for
        return (
            self.may_use(ticket, backend)
            and (backend.window is None or backend.in_flight < backend.window)
            and (kept_for == ticket.id or kept_for not in self.waiting or ticket.tag.lane is Lane.EMERGENCY)
            and has_tokens(backend, ticket.tag, [])
        )

    @invariant()
    def tokens_are_conserved(self) -> None:
        for backend in self.router.fleet:
            if backend.room is not None and backend.room not in self.rooms:
                self.rooms.append(backend.room)
        for room in self.rooms:
            held = [lease for lease in self.leases if lease.room is room]
            assert room.reserved == sum(one.tokens_held for one in held)
            assert room.backlog == sum(one.prefill_held for one in held)
        assert not [lease for lease in self.leases if lease.ticket is not None and lease.room is not None]

    def teardown(self) -> None:
        """Whoever waits is served as the others end."""
        for _ in range(len(self.waiting) + 2):
            for lease in self.running():
                self.leases.remove(lease)
                self.router.finish(lease, self.now)
            self.pump()
        assert not self.waiting and not self.leases
        assert not [room for room in self.rooms if (room.reserved, room.backlog) != (0, 0)]


def has_tokens(backend: Backend, tag: Tag, later: list[Lease]) -> bool:
    """Whether it has them, or had them before `later` came."""
    room = backend.room
    if room is None:
        return True
    gone = [lease for lease in later if lease.backend is backend]
    held = [lease for lease in gone if lease.room is room]
    before = TokenRoom()
    before.limit(room.max_tokens, room.max_prefill_tokens)
    before.reserved = room.reserved - sum(one.tokens_held for one in held)
    before.backlog = room.backlog - sum(one.prefill_held for one in held)
    return before.fits(tag, backend.in_flight - len(gone))


TokenMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTokens = TokenMachine.TestCase
