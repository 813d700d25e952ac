"""The decision core: a request arrives, runs, moves, ends; a slot is free; a backend comes or goes.

Every method is one synchronous step: a decision and its bookkeeping are never apart, so there are no locks and no lost updates.
After any event that may free a slot (`finish`, `cancel`, `configure`, a backend's return) the caller calls `pump` and hands out its grants.

Settings: `Rules` below. Counters are kept by whoever drives the router.
Limits: per process, not shared between gateways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from policies.absence import AbsenceRules
from policies.placement import least_loaded
from policies.retries import RetryRules, may_retry
from policies.terms import UNTAGGED, BackendId, Refusal, Tag, TicketId, Verdict
from routing.decision import Decision, Lease, Ticket
from routing.fleet import Backend, BackendPlan, Fleet
from routing.queues import Queues


@dataclass(frozen=True, slots=True)
class Rules:
    max_waiting: int = 1024
    probe_failures: int = 3
    retries: RetryRules = field(default_factory=RetryRules)
    absence: AbsenceRules = field(default_factory=AbsenceRules)


class Router:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.fleet = Fleet(rules.absence)
        self._queues = Queues()
        self._turn = 0
        self._next_ticket = 0

    @property
    def waiting(self) -> int:
        return len(self._queues)

    def configure(self, plans: Iterable[BackendPlan], rules: Rules) -> list[Backend]:
        """Take over a new configuration; running leases keep their backend. Returns the backends that were retired."""
        self.rules = rules
        self.fleet.absence_rules = rules.absence
        return self.fleet.configure(plans)

    def arrive(self, model: str, now: float, tag: Tag = UNTAGGED) -> Decision:
        """`model` is the name the engine knows, "" where the request names none."""
        # Who comes while others wait for the same model waits behind them, even if a slot was freed since the last pump.
        if not self._queues.has_line(model):
            choice = self._choose(model, (), now)
            if isinstance(choice, Backend):
                return self._start(choice, model, tag, 0.0)
            if choice is not Refusal.QUEUE_FULL:
                return choice
        if len(self._queues) >= self.rules.max_waiting:
            return Refusal.QUEUE_FULL
        self._next_ticket += 1
        ticket = Ticket(TicketId(self._next_ticket), model, tag, now)
        self._queues.push(ticket)
        return ticket

    def pump(self, now: float) -> list[tuple[Ticket, Lease | Refusal]]:
        """Grants for waiting requests: a lease where a slot is free, a refusal where no backend is left to wait for.

        The oldest of all heads comes first, so models that share a backend share its slots in order of arrival. Only heads are looked at.
        """
        grants: list[tuple[Ticket, Lease | Refusal]] = []
        heads = [(ticket.id, ticket) for ticket in self._queues.heads()]
        heapify(heads)
        while heads:
            ticket = heads[0][1]
            lease = ticket.lease
            choice = self._choose(ticket.model, lease.tried if lease is not None else (), now)
            if choice is Refusal.QUEUE_FULL:
                heappop(heads)
                continue
            self._queues.remove(ticket)
            if not isinstance(choice, Backend):
                grants.append((ticket, choice))
            elif lease is None:
                grants.append((ticket, self._start(choice, ticket.model, ticket.tag, now - ticket.arrived)))
            else:
                lease.ticket = None
                lease.queue_seconds += now - ticket.arrived
                self._go_on(lease, choice)
                grants.append((ticket, lease))
            following = self._queues.head(ticket.model)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following.id, following))
        return grants

    def cancel(self, ticket: Ticket) -> bool:
        """Take a waiting request out. False if it had been granted: then its lease has to be finished instead."""
        return self._queues.remove(ticket)

    def move(
        self, lease: Lease, verdict: Verdict, first_byte_sent: bool, repeatable: bool, now: float
    ) -> bool:
        """Give a failed attempt's slot back for one on a backend not tried yet. False: the lease stays as it was.

        Where all of those are full the lease gets a ticket and waits before everybody else: its request has waited once.
        """
        if not may_retry(verdict, lease.attempts, first_byte_sent, repeatable, self.rules.retries):
            return False
        tried = [*lease.tried, lease.backend]
        choice = self._choose(lease.model, tried, now)
        if not isinstance(choice, Backend) and choice is not Refusal.QUEUE_FULL:
            return False
        lease.backend.in_flight -= 1
        lease.tried = tried
        lease.verdict = Verdict.IGNORED  # what was said so far is not about the next backend
        if isinstance(choice, Backend):
            self._go_on(lease, choice)
        else:
            self._next_ticket += 1
            # Below all others: the pump takes the lowest of the heads first.
            lease.ticket = Ticket(TicketId(-self._next_ticket), lease.model, lease.tag, now, lease)
            self._queues.push(lease.ticket, first=True)
        return True

    def finish(self, lease: Lease) -> None:
        """The request has ended, however it did, be it while it waited for its next backend. Exactly once per lease."""
        assert lease.open, "a lease is given back once"
        lease.open = False
        if lease.ticket is not None:
            self._queues.remove(lease.ticket)
            return
        lease.backend.in_flight -= 1
        # A request that was running when its backend went absent proves nothing by ending well.
        if lease.verdict is Verdict.GOOD and lease.is_trial and not lease.backend.is_present():
            self.fleet.mark_reachable(lease.backend)

    def unreachable(self, backend: Backend, now: float) -> None:
        """A connection to this backend could not be made."""
        self.fleet.mark_unreachable(backend, now)

    def probed(self, backend_id: BackendId, healthy: bool, refused: bool, now: float) -> None:
        """A health probe's result; `refused`: nobody listens there, which needs no second opinion."""
        backend = self.fleet.get(backend_id)
        if backend is None:
            return
        if healthy:
            self.fleet.mark_reachable(backend)
            return
        backend.probe_failures += 1
        if refused or backend.probe_failures >= self.rules.probe_failures:
            self.fleet.mark_unreachable(backend, now)

    def learn_models(self, backend_id: BackendId, models: frozenset[str]) -> None:
        backend = self.fleet.get(backend_id)
        if backend is not None:
            self.fleet.learn_models(backend, models)

    def _choose(self, model: str, tried: Sequence[Backend], now: float) -> Backend | Refusal:
        usable = self.fleet.usable(model, now)
        if tried:
            usable = [backend for backend in usable if backend not in tried]
        if not usable:
            return Refusal.NO_BACKEND if self.fleet.serving(model) or not model else Refusal.UNKNOWN_MODEL
        index = least_loaded(usable, self._turn)
        if index is None:
            return Refusal.QUEUE_FULL
        self._turn += 1
        backend = usable[index]
        if not backend.is_present():
            self.fleet.claim_trial(backend, now)
        return backend

    def _start(self, backend: Backend, model: str, tag: Tag, queue_seconds: float) -> Lease:
        backend.in_flight += 1
        return Lease(backend, model, tag, queue_seconds)

    def _go_on(self, lease: Lease, backend: Backend) -> None:
        lease.backend = backend
        lease.is_trial = not backend.is_present()
        lease.attempts += 1
        backend.in_flight += 1
