"""The decision core: a request arrives, runs, moves, ends; a slot is free; a backend comes or goes.

Every method is one synchronous step: a decision and its bookkeeping are never apart, so there are no locks and no lost updates.
After any event that may free a slot (`finish`, `cancel`, `configure`, a backend's return), after an arrival that waits, and at `look_at`, the
caller calls `pump` and hands out its grants.

A request is tagged (`tagger`), tried on the pools that may take it (`slots`), else queued (`fair_queue`) if it can still meet its deadline
(`forecast`). After each pump no slot is free that a waiting request may use; so one that arrives and finds a slot overtakes nobody.

Settings: `routing.rules`. Counters: `routing.counts`.
Limits: per process, not shared between gateways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from math import inf
from typing import cast

from policies.absence import PRESENT
from policies.cost import OUTPUT_WEIGHT
from policies.fairness import QueueBound
from policies.members import BACKPRESSURE, BATCH, EMERGENCY, GOOD, NO_BACKEND, QUEUE_FULL
from policies.pool_choice import PoolFacts
from policies.retries import may_retry
from policies.terms import Refusal, Tag, TicketId, Verdict
from routing.admission import Admission
from routing.backend import Backend, BackendPlan
from routing.circuits import Circuits
from routing.clamps import Clamps
from routing.counts import Counts
from routing.decision import NO_INTENT, Decision, Intent, Lease, Line, Ticket
from routing.degradation import Degradation
from routing.endings import Endings
from routing.enforcement import Enforcement
from routing.engines import Engines
from routing.entrance import Entrance
from routing.fair_queue import FairQueue
from routing.fleet import Fleet, PoolPlan
from routing.forecast import Forecast
from routing.placement import Placement
from routing.preemption import Preemption
from routing.rules import Rules
from routing.samples import Samples
from routing.second_tries import NO_SECOND_TRIES, SecondTries
from routing.slots import Slots
from routing.tagger import Tagger

Grant = Lease | Refusal
_LIVE_TOKENS = 32
"""How often the tokens of a running answer are charged beyond what was expected."""


class Router:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.fleet = Fleet(rules.absence)
        self.queue: FairQueue[Ticket] = FairQueue(rules.fairness)
        self.forecast = Forecast()
        self.counts = Counts()
        self.placement = Placement(rules.affinity)
        self.tagger = Tagger(rules.tagger, self.counts, self.placement)
        self.slots = Slots(self.fleet, self.queue, self.forecast, self.counts, self.placement)
        self.admission = Admission(self.queue, self.forecast, self.slots, self.counts)
        self.preemption = Preemption(self.fleet, self.slots, self.queue, self.forecast)
        self.engines = Engines(self.fleet, self.placement)
        self.endings = Endings()
        self.samples = Samples(
            self.fleet, self.counts, self.endings, lambda: self.placement.paths, self.admission
        )
        self.circuits = Circuits(self.fleet, self.forecast)
        self.entrance = Entrance()
        self.clamps = Clamps(self.tagger.lengths)
        self.degradation = Degradation(
            self.fleet,
            self.samples,
            lambda: self.forecast.served_per_second,
            Enforcement(
                self.fleet, self.tagger, self.slots.reserve, self.entrance, self.clamps,
                self.admission.overload, self._line_up_anew,
            ),
        )  # fmt: skip
        self.in_flight = 0
        self.preempted = 0
        """Requests that were put back for an emergency."""
        self._second_tries = SecondTries()
        self._arrived = 0
        self._ticket_ids = cast(Iterator[TicketId], count(1))
        self._evicted: list[tuple[Ticket, Grant]] = []

    @property
    def waiting(self) -> int:
        return self.queue.waiting

    @property
    def has_evicted(self) -> bool:
        """Whether somebody was put out of the queue who does not know yet."""
        return bool(self._evicted)

    @property
    def look_at(self) -> float:
        """When a pump may grant something though nothing happens: the end of a gathering."""
        return self.slots.look_at

    def configure(
        self, plans: Iterable[BackendPlan], rules: Rules, pools: Iterable[PoolPlan] = ()
    ) -> list[Backend]:
        """Take over a new configuration; running leases keep their backend. Returns the backends that were retired.

        A pool that only `plans` name takes everything.
        """
        plans = list(plans)
        known = {pool.facts.name: pool for pool in pools}
        for plan in plans:
            known.setdefault(plan.pool, PoolPlan(PoolFacts(plan.pool)))
        self.rules = rules
        self.entrance.configure(rules.affinity.paths.cold_open)
        self.queue.configure(rules.fairness)
        self.tagger.configure([pool.facts for pool in known.values()], rules.tagger)
        self.slots.configure(rules.reserve, rules.tagger.pool_choice, rules.shedding)
        self.preemption.configure(rules.preemption, rules.tagger.pool_choice)
        self.admission.configure(rules.shedding, rules.overload)
        self.fleet.absence_rules = rules.absence
        self.engines.probe_failures = rules.probe_failures
        retired = self.fleet.configure(plans, known.values())
        self.circuits.configure(rules.circuit, rules.outlier)
        self.placement.configure(rules.affinity, self.fleet)
        self.samples.configure(rules.primary_seconds, rules.business_seconds)
        self.degradation.configure(rules.degradation)
        self._line_up_anew()
        return retired

    def _line_up_anew(self) -> None:
        """Who waits may go where the new configuration would send it."""
        for ticket in self.queue.tickets():
            pools = self.tagger.pools_of(ticket.intent, ticket.tag)
            if pools != ticket.line.pools:
                self.queue.remove(ticket)
                ticket.tag = ticket.tag._replace(pools=pools)
                ticket.line = ticket.line._replace(pools=pools)
                self.queue.push(ticket, ticket.arrived, ticket.lease is not None)
                if ticket.lease is not None:
                    ticket.lease.line = ticket.line

    # --- a request ------------------------------------------------------------------------------------------------------------

    def arrive(self, model: str, now: float, intent: Intent = NO_INTENT) -> Decision:
        """`model` is the name the engine knows, "" where the request names none."""
        fleet, queue = self.fleet, self.queue
        if fleet.has_absent:
            fleet.pass_time(now)
        self._arrived += 1
        tag = self.tagger.tag(model, intent, now, self.forecast.served_per_second)
        if not tag.pools:
            if fleet.pools:
                return Refusal.NO_POOL
            return Refusal.UNKNOWN_MODEL if model else Refusal.NO_BACKEND
        if not self.entrance.is_open and (closed := self.entrance.objection(tag, now)) is not None:
            return closed
        line = Line(model, tag.pools, tag.backend, tag.path)
        # Who comes while others wait for the same slots waits behind them, even if one was freed since the last pump.
        if tag.lane is EMERGENCY:
            others_wait = queue.waiting_in_lane(tag.lane) > 0
        else:
            others_wait = queue.waiting > 0 and (
                queue.has_waiting(line) or queue.has_waiting(line.on_other_path())
            )
        choice = self.slots.choose(line, tag, (), now, others_wait)
        if isinstance(choice, Backend):
            self.counts.at_once[tag.lane] += 1
            lease = self._lease(choice, line, tag, intent, 0.0, now)
            if choice.window is None and choice.room is None:
                lease.charged = 0.0  # nobody ever waits there
            elif lease.charged:
                queue.charge(tag, now)
            return lease
        if choice is not QUEUE_FULL:
            if choice is NO_BACKEND:
                self.circuits.refused(model, tag)
            return choice
        wait = self.admission.predicted_wait_seconds(tag, now)
        objection = self.admission.objection(line, tag, wait, now)
        if objection is not None:
            if not intent.relegate or self.entrance.refuses(BATCH):
                return objection
            tag, wait = self._relegated(tag), None
        bound = queue.bound_hit(tag)
        if bound is not None and not self._makes_room(tag, bound):
            return Refusal.OVER_SHARE if bound is QueueBound.FLOW else Refusal.QUEUE_FULL
        ticket = self._ticket(line, tag, intent, now)
        ticket.predicted_seconds = wait
        self._push(ticket, now)
        return ticket

    def pump(self, now: float) -> list[tuple[Ticket, Grant]]:
        """Grants for waiting requests: a lease where a slot is free, a refusal where no backend is left or its time is over."""
        self.fleet.pass_time(now)
        grants, self._evicted = self._evicted, []
        if not self.queue.waiting:
            return grants
        for ticket, choice in self.slots.granted(now):
            if isinstance(choice, Backend):
                self.forecast.flow_served(ticket.tag, now)
                grants.append((ticket, self._grant(ticket, choice, now)))
                continue
            if choice is Refusal.DEADLINE:
                self.admission.waited(ticket, False, now)
                relegates = ticket.intent.relegate and not self.entrance.refuses(BATCH)
                if relegates and ticket.tag.lane is not BATCH:
                    ticket.tag, ticket.predicted_seconds = self._relegated(ticket.tag), None
                    self.queue.push(ticket, now)
                    continue
            elif choice is NO_BACKEND:
                self.circuits.refused(ticket.model, ticket.tag)
            grants.append((ticket, choice))
        return grants

    def cancel(self, ticket: Ticket) -> bool:
        """Take a waiting request out. False if it had been granted: then its lease has to be finished instead."""
        return self.queue.remove(ticket)

    def move(
        self, lease: Lease, verdict: Verdict, first_byte_sent: bool, repeatable: bool, now: float
    ) -> bool:
        """Give a failed attempt's slot back for one on a backend not tried yet. False: the lease stays as it was.

        Where all of those are full the lease gets a ticket and waits before everybody else: its request has waited once.
        """
        if not may_retry(verdict, lease.tries, first_byte_sent, repeatable, self.rules.retries):
            return False
        self.tagger.line_up(lease)
        tried = [*lease.tried, lease.backend]
        self.fleet.pass_time(now)
        choice = self.slots.choose(lease.line, lease.tag, tried, now)
        if not isinstance(choice, Backend) and choice is not QUEUE_FULL:
            return False
        budget = self.rules.retry_budget
        if self.degradation.effects.has_no_retries:
            budget = NO_SECOND_TRIES
        if lease.found_nobody and budget is not NO_SECOND_TRIES:
            self._second_tries.free(lease)
        elif self._second_tries.afford(lease, self._arrived, self.in_flight, now, budget):
            self._arrived = 0
        else:
            self.counts.retries_over_budget += 1
            return False
        if verdict is BACKPRESSURE:
            self.fleet.pushed_back(lease.backend, now)
        self.circuits.ended(lease, verdict, now)
        self._step_aside(lease, now)
        lease.tried = tried
        if isinstance(choice, Backend):
            self._go_on(lease, choice, now)
        else:
            self._wait_again(lease, now)
        return True

    def put_back(self, lease: Lease, now: float) -> None:
        """Its attempt was ended for an emergency, see `preemption`: the slot is free, and it waits before all others but those."""
        lease.preemptions += 1
        self.preempted += 1
        self.tagger.line_up(lease)
        self._step_aside(lease, now)
        self._wait_again(lease, now)

    def produced(self, lease: Lease, tokens: int, now: float) -> bool:
        """Tokens of a running answer came out; those beyond what was expected are charged while they come.

        The first of them end its prefill. Whether that freed tokens of its backend.
        """
        lease.produced += tokens
        beyond = lease.produced - max(lease.tag.output_tokens, 0.0)
        if lease.charged and beyond >= _LIVE_TOKENS:
            owed = lease.tag.cost + OUTPUT_WEIGHT * beyond - lease.charged
            if owed >= OUTPUT_WEIGHT * _LIVE_TOKENS:
                lease.charged += owed
                self.queue.settle(lease.tag, owed, now)
        if lease.prefilling:
            self.fleet.begun(lease)
        if not lease.prefill_held:
            return False
        self.fleet.prefilled(lease, now)
        return True

    def finish(self, lease: Lease, now: float) -> None:
        """The request has ended, however it did, be it while it waited for its next backend. Exactly once per lease."""
        assert lease.open, "a lease is given back once"
        lease.open = False
        self.in_flight -= 1
        backend, tag, fleet = lease.backend, lease.tag, self.fleet
        if lease.has_moved:
            self._second_tries.ended(lease)
            self.preemption.settled(lease, now)
        is_good = lease.verdict is GOOD
        if lease.ticket is not None:
            self.queue.remove(lease.ticket)
        else:
            seconds = lease.service_seconds if is_good else 0.0
            if seconds and backend.adaptive is not None:
                fleet.served(lease, now)
            elif lease.verdict is BACKPRESSURE:
                fleet.pushed_back(backend, now)
            fleet.give_back(lease)
            self.circuits.ended(lease, lease.verdict, now)
            # A request that was running when its backend went absent proves nothing by ending well.
            if lease.is_trial and is_good and not backend.is_present():
                fleet.mark_reachable(backend)
            if seconds:
                self.forecast.served(backend.pool, tag, seconds, now)
        somebody_waits = self.queue.waiting > 0
        if lease.charged or somebody_waits:
            cost = lease.consumed()
            if lease.charged:
                self.counts.charged[tag.tenant] += cost
                difference = cost - lease.charged
                lease.charged = cost
                if difference:
                    self.queue.settle(tag, difference, now)
            if somebody_waits:
                self.forecast.drained(cost, now)
        self.forecast.ended(now)
        usage = lease.usage
        if usage is not None and is_good:
            self.tagger.learned(lease, usage[0], usage[1])
            self.placement.ended(lease, usage[2])

    # --- the fleet ------------------------------------------------------------------------------------------------------------

    def unreachable(self, backend: Backend, now: float) -> None:
        """A connection to this backend could not be made."""
        self.fleet.mark_unreachable(backend, now)

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _makes_room(self, tag: Tag, bound: QueueBound) -> bool:
        victim = self.admission.makes_room(tag, bound)
        if victim is None:
            return False
        self.queue.remove(victim)
        self.counts.evicted[victim.tag.lane] += 1
        self._evicted.append((victim, Refusal.QUEUE_FULL))
        return True

    def _ticket(self, line: Line, tag: Tag, intent: Intent, now: float, lease: Lease | None = None) -> Ticket:
        return Ticket(next(self._ticket_ids), line, tag, intent, now, lease)

    def _push(self, ticket: Ticket, now: float, first: bool = False) -> None:
        if not self.queue.waiting:
            self.forecast.queue_began(now)
        if self.queue.push(ticket, now, first):
            self.forecast.flow_began(ticket.tag, now)

    def _step_aside(self, lease: Lease, now: float) -> None:
        """Give the slot back before the end of the request."""
        self.fleet.give_back(lease)
        lease.leaves()
        self.preemption.settled(lease, now)

    def _wait_again(self, lease: Lease, now: float) -> None:
        """As it had begun before all that wait it goes first. Its flow has paid for it and does not pay again."""
        ticket = lease.ticket = self._ticket(lease.line, lease.tag, lease.intent, now, lease)
        self._push(ticket, now, first=True)

    def _lease(
        self, backend: Backend, line: Line, tag: Tag, intent: Intent, queue_seconds: float, now: float
    ) -> Lease:
        lease = Lease(backend, line, tag, intent, queue_seconds, backend.absence is not PRESENT)
        self.in_flight += 1
        self.fleet.take(lease, now)
        self.placement.sent(lease, now)
        if tag.lane is EMERGENCY:
            lease.charged = 0.0  # outside of all shares
        return lease

    def _grant(self, ticket: Ticket, backend: Backend, now: float) -> Lease:
        lease = ticket.lease
        if lease is None:
            self.counts.after_wait[ticket.tag.lane] += 1
            self.admission.waited(ticket, True, now)
            waited = now - ticket.arrived
            return self._lease(backend, ticket.line, ticket.tag, ticket.intent, waited, now)
        lease.ticket = None
        lease.queue_seconds += now - ticket.arrived
        self._go_on(lease, backend, now)
        return lease

    def _go_on(self, lease: Lease, backend: Backend, now: float) -> None:
        lease.backend = backend
        lease.is_trial = not backend.is_present()
        lease.attempts += 1
        self.fleet.take(lease, now)
        self.placement.sent(lease, now)

    def _relegated(self, tag: Tag) -> Tag:
        self.counts.relegated += 1
        return tag._replace(lane=BATCH, target_seconds=inf, deadline=inf)
