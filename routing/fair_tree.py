"""The mechanics of the fair queue's tree: nodes, what waits under them on each line, and their lazy heaps.

A `Node` is a group of lanes, a lane, a tenant or a flow. Its service counter is one for all lines. A `Backlog` is a node's part on one line: a heap of its
children's backlogs or, at a flow, of its requests; it exists only while something waits there.
How the heaps stay right: an entry of a child carries the counter of the time when it was pushed (`key`) and the child's `turn`. Counters that grew
since are corrected when the entry comes to the top, so a refund of what was charged since costs the heap nothing; one that fell below its entry
is pushed anew (`enters`) with a new turn, which makes the old entry void. What is void is dropped at the top, and all of it when a heap has grown
to `_SLACK` times what is valid. So every operation is O(log n) amortised.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from policies.fairness import FairnessRules, caught_up, charged, rested
from policies.terms import TicketId

_SLACK = 4
_SPARE = 16
VOID = -1
"""The turn of a backlog that is gone."""


class Node:
    __slots__ = (
        "at",
        "children",
        "cost",
        "largest",
        "lines",
        "owed",
        "parent",
        "service",
        "virtual_time",
        "waiting",
        "weight",
        "weight_waiting",
    )

    def __init__(self, parent: Node | None, weight: float, now: float) -> None:
        self.parent = parent
        self.weight = weight
        self.service = 0.0
        self.virtual_time = 0.0
        """Of its children."""
        self.at = now
        """When it was last charged."""
        self.largest = 0.0
        """The largest cost it was charged for one request."""
        self.owed = 0.0
        """Of a flow that waits: what its next dispatch is charged beyond its own cost."""
        self.waiting = 0
        """How many of its children have something waiting; of a flow: its requests."""
        self.weight_waiting = 0.0
        """Of these children together."""
        self.cost = 0.0
        """Of all that waits below; kept by the owner, and not for groups of lanes."""
        self.children: dict[str, Node] = {}
        self.lines: dict[Line, Backlog] = {}

    def weigh(self, weight: float) -> None:
        if self.parent is not None and self.waiting:
            self.parent.weight_waiting += weight - self.weight
        self.weight = weight

    def begins_to_wait(self) -> None:
        """The first request of this flow waits."""
        node = self
        while True:
            node.waiting += 1
            parent = node.parent
            if node.waiting > 1 or parent is None:
                return
            parent.weight_waiting += node.weight
            node = parent

    def waits_no_more(self) -> None:
        """The last request of this flow is gone."""
        node = self
        while True:
            node.waiting -= 1
            if node.waiting:
                return
            # Exactly nothing, so that rounding does not add up over the years.
            node.cost = node.weight_waiting = 0.0
            parent = node.parent
            if parent is None:
                return
            parent.weight_waiting -= node.weight
            node = parent

    def rest(self, floor: float, now: float, rules: FairnessRules) -> None:
        self.service = rested(self.service, floor, now - self.at, self.largest, self.weight, rules)

    def dispatched(self, cost: float, now: float, in_turn: bool, rules: FairnessRules) -> None:
        """One of its waiting requests goes: it and all above it are charged. Out of turn it says nothing of how far its siblings are."""
        charge = cost + self.owed
        if charge > 0.0:
            self.owed = 0.0
        else:
            charge = cost  # a counter that falls has to be told to the heaps
        node = self
        parent = node.parent
        while parent is not None:
            service = node.service
            if service < parent.virtual_time:
                service = caught_up(service, parent.virtual_time, now - node.at, rules)
            elif in_turn:
                parent.virtual_time = service
            node.service = service + charge / node.weight
            node.at = now
            if cost > node.largest:
                node.largest = cost
            node, parent = parent, parent.parent

    def started(self, before: float, last: float, largest: float, now: float, rules: FairnessRules) -> None:
        """Requests of it started without waiting, of costs `before` and, the last one, `last`; `largest` of one.

        Where siblings wait, for slots that it could not take from them, the virtual time stays theirs.
        """
        node = self
        parent = node.parent
        while parent is not None:
            if not node.waiting:
                node.rest(parent.virtual_time, now, rules)
                if before:
                    node.service = max(charged(node.service, before, node.weight), parent.virtual_time)
                if not parent.waiting:
                    parent.virtual_time = node.service
            node.service = charged(node.service, last, node.weight)
            node.at = now
            if largest > node.largest:
                node.largest = largest
            node, parent = parent, parent.parent

    def trued_up(self, difference: float, now: float, turn: int, rules: FairnessRules) -> int:
        """Charge or give back a difference here and above. `turn` is the last that was used; returns the last used now."""
        is_refund = difference < 0.0
        node = self
        parent = node.parent
        while parent is not None:
            if not node.waiting and node.service > parent.virtual_time:
                node.rest(parent.virtual_time, now, rules)
                node.at = now
            # As `charged` has it; a call at each level of each request is too dear.
            service = node.service = node.service + difference / node.weight
            if is_refund:
                for backlog in node.lines.values():
                    if service < backlog.key and (above := backlog.parent) is not None:
                        turn += 1
                        backlog.enters(above, turn)
            node, parent = parent, parent.parent
        return turn


class Line:
    """All that waits for the same model on the same pools. Ranks are those of the lanes."""

    __slots__ = ("deadlines", "express", "key", "lanes", "quiet_until", "ranks", "unserved", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.waiting = 0
        self.deadlines = 0
        """How many of these have one."""
        self.lanes: list[Backlog | None] = [None, None, None, None]
        self.ranks: tuple[int, ...] = ()
        """Of the lanes that have something waiting here."""
        self.express: list[Requests | None] = [None, None, None, None]
        """Outside the tree: emergencies, and requests that go before everybody because they have waited once."""
        self.unserved: list[list[tuple[float, int, Backlog]]] = [[], [], [], []]
        """For each lane its flows, the one that was not served for longest first."""
        self.quiet_until = inf
        """Nobody starves before."""

    def has(self, rank: int) -> bool:
        return self.lanes[rank] is not None or self.express[rank] is not None

    def set_lane(self, rank: int, lane: Backlog | None) -> None:
        self.lanes[rank] = lane
        self.ranks = tuple([one for one, lane in enumerate(self.lanes) if lane is not None])

    def longest_unserved(self, rank: int) -> Backlog | None:
        heap = self.unserved[rank]
        while heap:
            since, turn, flow = heap[0]
            if not flow.members:
                heappop(heap)
            elif since != flow.since:
                heapreplace(heap, (flow.since, turn, flow))
            else:
                return flow
        return None

    def begins(self, flow: Backlog, rank: int, turn: int, starves_at: float) -> None:
        if starves_at < self.quiet_until:
            self.quiet_until = starves_at
        heap = self.unserved[rank]
        if len(heap) > _SLACK * self.waiting + _SPARE:
            heap[:] = [entry for entry in heap if entry[2].members]
            heapify(heap)
        heappush(heap, (flow.since, turn, flow))


class Standing:
    """A request's place in a heap."""

    __slots__ = ("alive",)

    alive: bool


Entry = tuple[float, TicketId, int, Standing]


class Requests:
    """In order of (due, id). A removed one keeps its entry until that comes to the top or is swept."""

    __slots__ = ("members", "requests")

    def __init__(self) -> None:
        self.members = 0
        """Valid ones; of a node above the flows, its children's."""
        self.requests: list[Entry] = []

    def first(self) -> Entry:
        heap = self.requests
        while not heap[0][3].alive:
            heappop(heap)
        return heap[0]

    def sweep(self) -> None:
        heap = self.requests
        if len(heap) > _SLACK * self.members + _SPARE:
            heap[:] = [entry for entry in heap if entry[3].alive]
            heapify(heap)


class Backlog(Requests):
    """A node's part of one line."""

    __slots__ = ("children", "key", "node", "parent", "since", "turn")

    def __init__(self, node: Node, parent: Backlog | None, since: float) -> None:
        self.members = 0
        self.requests = []
        self.node = node
        self.parent = parent
        self.children: list[tuple[float, int, Backlog]] = []
        self.turn = VOID
        self.key = -inf
        """Of its valid entry in its parent's heap, never above its counter; lanes have none."""
        self.since = since
        """When it was last served, or began to wait."""

    def first_child(self) -> Backlog:
        heap = self.children
        if len(heap) == 1:
            return heap[0][2]
        while True:
            key, turn, child = heap[0]
            if child.turn != turn:
                heappop(heap)
                continue
            service = child.node.service
            if service == key:
                return child
            child.key = service
            heapreplace(heap, (service, turn, child))

    def joins(self, turn: int) -> None:
        """It has something waiting now: its parent's heap is to know."""
        parent = self.parent
        assert parent is not None, "lanes are in no heap"
        parent.members += 1
        self.enters(parent, turn)

    def enters(self, parent: Backlog, turn: int) -> None:
        """The heap of its parent with its counter as it is now: it has something waiting since, or the counter fell below its entry."""
        self.turn = turn
        key = self.key = self.node.service
        heap = parent.children
        heappush(heap, (key, turn, self))
        if len(heap) > _SLACK * parent.members + _SPARE:
            parent.sweep_children()

    def sweep_children(self) -> None:
        heap = self.children
        heap[:] = [entry for entry in heap if entry[2].turn == entry[1]]
        heapify(heap)

    def empties(self, line: Line) -> bool:
        """The last request of this flow is gone. True: it was the last of its lane on this line."""
        self.members = 0
        backlog = self
        while True:
            backlog.turn = VOID
            del backlog.node.lines[line]
            parent = backlog.parent
            if parent is None:
                return True
            parent.members -= 1
            if parent.members:
                if len(parent.children) > _SLACK * parent.members + _SPARE:
                    parent.sweep_children()
                return False
            backlog = parent
