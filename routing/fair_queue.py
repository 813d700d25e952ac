"""All requests that wait for a slot, and which of them is next.

Order of `head`: emergencies, by deadline; then requests that go before everybody of their line because they have waited once (`first`), by deadline;
then down the tree of `routing.fair_flows` by `policies.fairness`; inside a flow by deadline. Equal deadlines go by id. One dispatch in
`starving_every` goes to the starving flow that was not served for longest, where there is one.
A *line* is a ticket's hashable key of its model and eligible pools. `head` looks only at the lines that it is given, those that a free slot can serve, so
a request that nobody can take never holds up another line. Service counts over all lines together: who is served on one line comes later on
the others. Models that share no backends may each have a queue of their own; then their shares are apart.
Contract: a ticket is pushed once and ends by one `take` or `remove`. `take` charges the predicted cost, except of a `first` one, which was charged when
it first started; `charge` does for a request that did not wait; `settle` adds what the prediction was wrong by. Who puts a started request back
gives its charge back first. Emergencies are charged to nobody. Ids are unique; who is put back keeps its id and with it its place.
Costs: `push`, `take`, `remove` O(log n), `head` O(lines * log n), all amortised. Bounds are asked for with `bound_hit`, not enforced.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, KeysView, Sequence
from heapq import heappush, nlargest
from math import inf
from typing import Generic

from policies.fairness import FairnessRules, QueueBound, bound_hit, due, is_starving, starving_seconds
from policies.lanes import RANK
from policies.terms import Lane, Tag, TicketId
from routing.fair_charges import Charges
from routing.fair_express import Express
from routing.fair_flows import FlowKey, Flows, comes_before, flow_key
from routing.fair_place import Place, T
from routing.fair_tree import Backlog, Line, Requests
from routing.queue_view import FlowView, LaneView, QueueView

_LANES = tuple(Lane)
_RANKS = (1, 2, 3)
"""Of the lanes in the tree."""
_SHOWN_FLOWS = 20


class FairQueue(Generic[T]):
    def __init__(self, rules: FairnessRules) -> None:
        self._tree = Flows(rules)
        self._charges = Charges(self._tree)
        self._lines: dict[Hashable, Line] = {}
        self.lines_version = 0
        """Changes with the set of lines that have something waiting."""
        self._places: dict[TicketId, Place[T]] = {}
        self.waiting = 0
        self.has_express = False
        """Whether an emergency waits, or one that goes before everybody of its line."""
        self._in_lane = [0] * len(_LANES)
        self._newest: list[list[Place[T]]] = [[] for _ in _LANES]
        self._express = Express(len(_LANES))
        self._turn = 0
        self._since_starving = 0
        self._taken = self._removed = self._started = self._for_starving = 0
        self.configure(rules)

    def configure(self, rules: FairnessRules) -> None:
        self.rules = rules
        self._charges.post()
        self._tree.configure(rules)
        self._starving_seconds = [starving_seconds(lane, rules) for lane in _LANES]
        # Where fewer wait in all, no flow and no lane can be full.
        self._no_bound_below = min(rules.max_waiting_per_flow, rules.max_waiting_per_lane, rules.max_waiting)

    # --- the events -----------------------------------------------------------------------------------------------------------

    def push(self, ticket: T, now: float, first: bool = False) -> bool:
        """Whether nothing of its flow waited before."""
        tag = ticket.tag
        lane, cost = tag.lane, tag.cost
        rank = RANK[lane]
        id = ticket.id
        assert id not in self._places, "a ticket waits once"
        if not self.waiting:
            self._charges.post()
        line = self._lines.get(ticket.line)
        if line is None:
            line = self._lines[ticket.line] = Line(ticket.line)
            self.lines_version += 1
        line.waiting += 1
        deadline = tag.deadline
        if deadline != inf:
            line.deadlines += 1
        else:
            deadline = due(deadline, ticket.arrived, self._starving_seconds[rank])
        self._turn = turn = self._turn + 1
        flow = (lane, tag.tenant, tag.business)
        leaf: Backlog | None = None
        queue: Requests
        if rank and not first:
            queue = leaf = self._backlog(line, flow, rank, tag.weight, cost, now)
        else:
            queue = self._express.joins(line, flow, rank, cost)
            self.has_express = True
            if first and rank == 0:
                deadline = -inf  # before the other emergencies
        self.waiting += 1
        place = self._places[id] = Place(ticket, cost, rank, flow, line, queue, leaf)
        # The turn keeps a ticket that is put back apart from its own void entry.
        heappush(queue.requests, (deadline, id, turn, place))
        queue.members += 1
        self._in_lane[rank] += 1
        begins = (self.waiting_of_flow(tag) if leaf is None or self.has_express else leaf.node.waiting) == 1
        if not first:
            newest = self._newest[rank]
            newest.append(place)
            if len(newest) > 2 * self._in_lane[rank] + 16:
                newest[:] = [one for one in newest if one.alive]
        return begins

    def remove(self, ticket: T) -> bool:
        """Whether it was still waiting."""
        place = self._places.get(ticket.id)
        if place is None or place.ticket is not ticket:
            return False
        self._leave(place)
        if place.queue.members:
            place.queue.sweep()
        self._removed += 1
        return True

    def head(self, lines: Iterable[Hashable], now: float, lanes: Container[Lane] | None = None) -> T | None:
        """The next of these lines, and of these lanes where given. Nothing that could be seen changes by asking."""
        found: list[Line] = []
        starving = False
        for key in lines:
            line = self._lines.get(key)
            if line is not None:
                found.append(line)
                if now >= line.quiet_until:
                    starving = True
        if not found:
            return None
        if self.has_express:
            for rank, lane in enumerate(_LANES):
                if self._express.waiting[rank] and (lanes is None or lane in lanes):
                    queues = [queue for line in found if (queue := line.express[rank]) is not None]
                    if queues:
                        return self._first_of(queues)
        if starving and self._since_starving >= self.rules.starving_every - 1:
            flow = self._starving(found, now, lanes)
            if flow is not None:
                return self._first_of([flow])
        if len(found) == 1:
            return self._next_of_line(found[0], lanes)
        rank = self._next_lane(found, lanes)
        if rank == 0:
            return None
        backlogs = [backlog for line in found if (backlog := line.lanes[rank]) is not None]
        for _ in ("tenant", "business type"):
            best = backlogs[0].first_child()
            for backlog in backlogs:
                child = backlog.first_child()
                if (child.node.service, child.turn) < (best.node.service, best.turn):
                    best = child
            of_line = best.node.lines
            backlogs = [backlog for line in found if (backlog := of_line.get(line)) is not None]
        return self._first_of(backlogs)

    def take(self, ticket: T, now: float) -> None:
        """It is dispatched."""
        place = self._places[ticket.id]
        leaf = place.leaf
        if leaf is not None:
            self._since_starving += 1
            due_turn = self._since_starving >= self.rules.starving_every
            starving = due_turn and is_starving(now - leaf.since, _LANES[place.rank], self.rules)
            if starving:
                self._since_starving = 0
                self._for_starving += 1
            leaf.since = now
            leaf.node.dispatched(place.cost, now, not starving, self.rules)
        self._leave(place)
        self._taken += 1

    def charge(self, tag: Tag, now: float) -> None:
        """A request started without waiting."""
        self._started += 1
        if self.waiting:
            self._tree.gathered(flow_key(tag), tag.weight, 0.0, tag.cost, tag.cost, now)
        else:
            self._charges.started(tag, now)

    def settle(self, tag: Tag, difference_cost: float, now: float) -> None:
        """What a request has consumed beyond what was charged for it so far; negative where it is less."""
        if self.waiting:
            flow = (tag.lane, tag.tenant, tag.business)
            self._turn = self._tree.trued_up(flow, tag.weight, difference_cost, now, self._turn)
        else:
            self._charges.trued_up(tag, difference_cost, now)

    # --- what waits -----------------------------------------------------------------------------------------------------------

    def holds(self, ticket_id: TicketId) -> bool:
        """Whether it waits here."""
        return ticket_id in self._places

    def waiting_in_lane(self, lane: Lane) -> int:
        return self._in_lane[RANK[lane]]

    def waiting_of_flow(self, tag: Tag) -> int:
        flow = (tag.lane, tag.tenant, tag.business)
        node = self._tree.find(flow)
        waiting = 0 if node is None else node.waiting
        return waiting + self._express.of_flows.get(flow, 0) if self.has_express else waiting

    def waiting_in_line(self, line: Hashable) -> int:
        found = self._lines.get(line)
        return found.waiting if found is not None else 0

    def has_waiting(self, line: Hashable) -> bool:
        return line in self._lines

    def has_waiting_in_lane(self, line: Hashable, lane: Lane) -> bool:
        return (found := self._lines.get(line)) is not None and found.has(RANK[lane])

    def has_deadline(self, line: Hashable) -> bool:
        """Whether something with a deadline waits in it."""
        return (found := self._lines.get(line)) is not None and found.deadlines > 0

    def tickets(self) -> list[T]:
        """All that wait, in the order in which they were pushed."""
        return [place.ticket for place in self._places.values()]

    def lines(self) -> KeysView[Hashable]:
        """Those with something waiting. A live view: copy it before anything changes."""
        return self._lines.keys()

    def bound_hit(self, tag: Tag) -> QueueBound | None:
        """Which bound one more with this tag would exceed."""
        if self.waiting < self._no_bound_below:
            return None
        return bound_hit(self.waiting_of_flow(tag), self._in_lane[RANK[tag.lane]], self.waiting, self.rules)

    def newest_of_lowest_lane(self) -> T | None:
        """Who makes room for somebody of a higher lane: the last that was pushed, never one that goes first."""
        for newest in reversed(self._newest):
            while newest and not newest[-1].alive:
                newest.pop()
            if newest:
                return newest[-1].ticket
        return None

    def cost_waiting(self, lane: Lane) -> float:
        """Of this lane and the more urgent ones."""
        upto = RANK[lane] + 1
        return sum(self._express.costs[:upto]) + sum([node.cost for node in self._tree.lanes[1:upto]])

    def cost_ahead(self, tag: Tag) -> float:
        """What is predicted to be dispatched before a newcomer with this tag.

        A prediction over all lines together: without deadlines inside the flow, without what others have in credit, and without who comes later.
        """
        if tag.lane is Lane.EMERGENCY:
            return self._express.costs[0]
        self._charges.post()
        return sum(self._express.costs) + self._tree.cost_ahead(tag)

    def snapshot(self, now: float) -> QueueView:
        """Looks at everything that waits: for a scrape, not for each request."""
        self._charges.post()
        flows = dict(self._tree.waiting())
        for flow, waiting in self._express.of_flows.items():
            flows[flow] = flows.get(flow, 0) + waiting
        most = nlargest(_SHOWN_FLOWS, flows.items(), key=lambda item: item[1])
        costs = [self._express.costs[0]]
        costs += [self._express.costs[rank] + self._tree.lanes[rank].cost for rank in _RANKS]
        oldest = [0.0] * len(_LANES)
        for place in self._places.values():
            oldest[place.rank] = max(oldest[place.rank], now - place.ticket.arrived)
        return QueueView(
            self.waiting,
            len(self._lines),
            len(self._tree),
            len(flows),
            tuple(map(LaneView, _LANES, self._in_lane, costs, oldest)),
            tuple(FlowView(*flow, waiting) for flow, waiting in most),
            self._taken,
            self._removed,
            self._started,
            self._for_starving,
        )

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _backlog(
        self, line: Line, flow: FlowKey, rank: int, weight: float, cost: float, now: float
    ) -> Backlog:
        """The flow's part of the line, with one request more counted in the tree."""
        tree = self._tree
        leaf, lane = tree.node(flow, rank, weight, now), tree.lanes[rank]
        tenant = leaf.parent
        assert tenant is not None
        backlog = leaf.lines.get(line)
        if backlog is None:
            of_lane, of_tenant = line.lanes[rank], tenant.lines.get(line)
            if not leaf.waiting:
                tree.begins(flow, leaf, of_tenant, of_lane, now)
            if of_lane is None:
                of_lane = lane.lines[line] = Backlog(lane, None, now)
                line.set_lane(rank, of_lane)
            if of_tenant is None:
                of_tenant = tenant.lines[line] = Backlog(tenant, of_lane, now)
                of_tenant.joins(self._turn)
            backlog = leaf.lines[line] = Backlog(leaf, of_tenant, now)
            backlog.joins(self._turn)
            line.begins(backlog, rank, self._turn, now + self._starving_seconds[rank])
        if leaf.waiting:
            leaf.waiting += 1
        else:
            leaf.begins_to_wait()
        leaf.cost += cost
        tenant.cost += cost
        lane.cost += cost
        return backlog

    def _leave(self, place: Place[T]) -> None:
        line, rank, cost, leaf, ticket = place.line, place.rank, place.cost, place.leaf, place.ticket
        place.alive = False
        if ticket.tag.deadline != inf:
            line.deadlines -= 1
        del self._places[ticket.id]
        self.waiting -= 1
        del place.ticket  # entries that are dropped later must not keep it
        self._in_lane[rank] -= 1
        if not self._in_lane[rank]:
            self._newest[rank].clear()
        if leaf is None:
            self._express.leaves(line, place.flow, rank, cost)
            self.has_express = bool(self._express.of_flows)
        else:
            node = leaf.node
            tenant = node.parent
            assert tenant is not None
            node.cost -= cost
            tenant.cost -= cost
            self._tree.lanes[rank].cost -= cost
            if node.waiting > 1:
                node.waiting -= 1
            else:
                self._turn = self._tree.ends(place.flow, node, self._turn)
            if leaf.members > 1:
                leaf.members -= 1
            elif leaf.empties(line):
                line.set_lane(rank, None)
        line.waiting -= 1
        if not line.waiting:
            del self._lines[line.key]
            self.lines_version += 1

    def _first_of(self, queues: Sequence[Requests]) -> T:
        first = queues[0].first() if len(queues) == 1 else min([queue.first() for queue in queues])
        return self._places[first[1]].ticket

    def _next_of_line(self, line: Line, lanes: Container[Lane] | None) -> T | None:
        """As for many lines, without what it takes to compare them."""
        next_lane: Backlog | None = None
        for rank in line.ranks:
            if lanes is None or _LANES[rank] in lanes:
                lane = line.lanes[rank]
                assert lane is not None
                if next_lane is None or comes_before(lane.node, next_lane.node):
                    next_lane = lane
        if next_lane is None:
            return None
        return self._places[next_lane.first_child().first_child().first()[1]].ticket

    def _next_lane(self, lines: list[Line], lanes: Container[Lane] | None) -> int:
        """The rank of the lane that is next in the tree, 0 if there is none."""
        rank, nodes = 0, self._tree.lanes
        for one in _RANKS:
            for line in lines:
                if line.lanes[one] is not None:
                    if (lanes is None or _LANES[one] in lanes) and (
                        rank == 0 or comes_before(nodes[one], nodes[rank])
                    ):
                        rank = one
                    break
        return rank

    def _starving(self, lines: list[Line], now: float, lanes: Container[Lane] | None) -> Backlog | None:
        """The flow that has starved for longest beyond what its lane allows."""
        worst, found = now, None
        for line in lines:
            line.quiet_until = inf
            for rank in _RANKS:
                flow = line.longest_unserved(rank)
                if flow is not None:
                    starves_at = flow.since + self._starving_seconds[rank]
                    line.quiet_until = min(line.quiet_until, starves_at)
                    if starves_at <= worst and (lanes is None or _LANES[rank] in lanes):
                        worst, found = starves_at, flow
        return found
