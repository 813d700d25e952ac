"""Which running requests give way to emergencies that wait, and when to look again.

Rules: `policies.preemption`. Any slot that the emergency could use is looked at, wherever it is; who holds it is told by whoever drives the router,
for it alone knows which clients have got nothing yet. A chosen lease is marked `gives_way` until its slot is back: by `Router.put_back`
once its attempt has been ended, or by whatever else ended it in the same moment.
Costs: nothing while no emergency waits; a look at everything that waits and runs at most once in a pause.
Limits: an emergency's turn is predicted from the whole fleet's ends, so in a fleet of many models it may be too hopeful; then it waits for
`wait_seconds` first. An emergency whose tokens need the room of several is helped by none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from policies.capacity_tokens import fits
from policies.pool_choice import PoolChoiceRules, is_realtime
from policies.preemption import PreemptionRules, may_preempt, victim
from policies.terms import Lane
from routing.decision import Lease, Line, Ticket
from routing.fair_queue import FairQueue
from routing.fleet import Fleet
from routing.forecast import Forecast
from routing.slots import Slots

_SHORTEST_PAUSE_SECONDS = 0.01
"""Between two looks, whatever the rules say."""


class Running(NamedTuple):
    """A lease that has a slot and whose client has got nothing; `dispatched_at` is compared with the others' alone."""

    lease: Lease
    dispatched_at: float

    @property
    def lane(self) -> Lane:
        return self.lease.tag.lane

    @property
    def preemptions(self) -> int:
        return self.lease.preemptions


class Preemption:
    def __init__(self, fleet: Fleet, slots: Slots, queue: FairQueue[Ticket], forecast: Forecast) -> None:
        self._rules = PreemptionRules()
        self._pool_choice = PoolChoiceRules()
        self._fleet = fleet
        self._slots = slots
        self._queue = queue
        self._forecast = forecast
        self._giving_way = 0
        self._settled_at = -inf
        self.look_at = inf
        """When to choose again if nothing else happens."""

    def configure(self, rules: PreemptionRules, pool_choice: PoolChoiceRules) -> None:
        self._rules, self._pool_choice = rules, pool_choice

    def choose(self, running: Callable[[], Iterable[Running]], now: float) -> list[Lease]:
        """Those whose attempts have to be ended now. `running` is asked only if somebody has to give way."""
        rules = self._rules
        self.look_at = inf
        if not self._queue.waiting_in_lane(Lane.EMERGENCY) or not rules.max_preemptions:
            return []
        pause = max(rules.pause_seconds, _SHORTEST_PAUSE_SECONDS)
        self.look_at = now + pause
        if self._giving_way:
            return []
        if now - self._settled_at < rules.pause_seconds:
            self.look_at = max(self._settled_at + rules.pause_seconds, now + _SHORTEST_PAUSE_SECONDS)
            return []
        chosen: list[Lease] = []
        candidates: list[Running] | None = None
        in_vain: set[Line] = set()
        place = 0
        for ticket in self._queue.tickets():
            if ticket.tag.lane is not Lane.EMERGENCY:
                continue
            place += 1
            if ticket.line in in_vain:
                continue
            rest = self._forecast.turn_seconds(place, now)
            if not may_preempt(now - ticket.arrived, rest, self._settled_at, now, rules):
                due = max(ticket.arrived + rules.wait_seconds, now + _SHORTEST_PAUSE_SECONDS)
                self.look_at = min(self.look_at, due)
                continue
            if candidates is None:
                candidates = list(running())
            useful = [one for one in candidates if self._serves(one.lease, ticket)]
            index = victim(useful, rules)
            if index is None:
                in_vain.add(ticket.line)
                continue
            candidates.remove(useful[index])
            lease = useful[index].lease
            lease.gives_way = lease.has_moved = True
            chosen.append(lease)
            if len(chosen) >= rules.victims_at_once:
                break
        self._giving_way = len(chosen)
        chosen.reverse()  # the first that was dispatched is put back first, and so keeps its place before the others
        return chosen

    def settled(self, lease: Lease, now: float) -> None:
        """The slot of a lease is back; of any."""
        if lease.gives_way:
            lease.gives_way = False
            self._giving_way -= 1
            self._settled_at = max(self._settled_at, now)

    def _serves(self, lease: Lease, ticket: Ticket) -> bool:
        """Whether its slot is one that the ticket could use."""
        backend, line, tag = lease.backend, ticket.line, ticket.tag
        if lease.gives_way or backend.is_blocked or (line.backend is not None and line.backend != backend.id):
            return False
        # Of a window that shrank nothing is free yet.
        if backend.window is not None and backend.in_flight > backend.window:
            return False
        room = lease.room
        if room is not None and not fits(
            backend.in_flight - 1,
            room.reserved - lease.tokens_held,
            room.max_tokens,
            tag.prompt_tokens + tag.output_tokens_p90,
            room.backlog - lease.prefill_held,
            room.max_prefill_tokens,
            tag.prompt_tokens,
        ):
            return False
        groups = self._fleet.groups(line.model, line.pools)
        tried = ticket.lease.tried if ticket.lease is not None else ()
        realtime = is_realtime(tag.lane, tag.prompt_tokens, tag.output_tokens, self._pool_choice)
        return any(
            group is not None
            and backend in group.members
            and backend not in self._slots.to_avoid(group, line, tag, tried)
            and self._slots.order.may_enter(place, groups, realtime)
            for place, group in enumerate(groups)
        )
