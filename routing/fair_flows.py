"""Who has been served how much: the tree of flows with its fixed upper part, without the requests that wait.

root -> sensitive (interactive), throughput (standard, batch) -> tenants -> business types, which are the flows. Emergencies have no part in it.
Keeps a flow while something of it waits and as long as its counter means something: it is forgotten, two for each one that is new, when it is idle
and not ahead of the others, or was not charged for ten half-lives; and the longest idle, beyond `max_flows`.
Small true-ups of a flow that waits are charged with its next dispatch: one walk up the tree less for each request, and a counter is off by no more
than `GATHERED_SHARE` of a request meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from policies.fairness import FairnessRules, served_meanwhile
from policies.lanes import RANK
from policies.terms import Lane, Tag
from routing.fair_tree import Backlog, Node

FlowKey = tuple[str, str, str]
"""Lane, tenant, business type."""
_HALF_LIVES = 10.0
GATHERED_SHARE = 0.25
"""Of what a flow's waiting requests cost on the average: what is owed below that goes with the next of them."""
_RANK_OF: Mapping[str, int] = {lane.value: rank for lane, rank in RANK.items()}


def flow_key(tag: Tag) -> FlowKey:
    return (tag.lane, tag.tenant, tag.business)


class Flows:
    def __init__(self, rules: FairnessRules) -> None:
        self.rules = rules
        self.root = root = Node(None, 1.0, 0.0)
        sensitive, throughput = Node(root, 1.0, 0.0), Node(root, 1.0, 0.0)
        root.children = {"sensitive": sensitive, "throughput": throughput}
        interactive, standard, batch = (
            Node(sensitive, 1.0, 0.0),
            Node(throughput, 1.0, 0.0),
            Node(throughput, 1.0, 0.0),
        )
        sensitive.children = {Lane.INTERACTIVE: interactive}
        throughput.children = {Lane.STANDARD: standard, Lane.BATCH: batch}
        self.lanes = (root, interactive, standard, batch)
        """By rank; the root stands in for the emergency lane."""
        self._flows: dict[FlowKey, Node] = {}
        self._idle: OrderedDict[FlowKey, Node] = OrderedDict()
        """With nothing waiting, the longest idle first."""
        self.configure(rules)

    def __len__(self) -> int:
        return len(self._flows)

    def configure(self, rules: FairnessRules) -> None:
        self.rules = rules
        sensitive, throughput = self.root.children.values()
        sensitive.weigh(rules.fairness_weight)
        throughput.weigh(1.0 - rules.fairness_weight)
        self.lanes[RANK[Lane.STANDARD]].weigh(rules.standard_weight)
        self.lanes[RANK[Lane.BATCH]].weigh(rules.batch_weight)

    def find(self, flow: FlowKey) -> Node | None:
        return self._flows.get(flow)

    def waiting(self) -> Iterator[tuple[FlowKey, int]]:
        return ((flow, node.waiting) for flow, node in self._flows.items() if node.waiting)

    def node(self, flow: FlowKey, rank: int, weight: float, now: float) -> Node:
        """The flow's, made if it is new. `weight` is its tenant's from now on."""
        leaf = self._flows.get(flow)
        if leaf is not None:
            tenant = leaf.parent
            if tenant is not None and tenant.weight != weight:
                tenant.weigh(weight)
            return leaf
        self._forget(now)
        lane = self.lanes[rank]
        tenant = lane.children.get(flow[1])
        if tenant is None:
            tenant = lane.children[flow[1]] = Node(lane, weight, now)
        leaf = tenant.children[flow[2]] = self._flows[flow] = self._idle[flow] = Node(tenant, 1.0, now)
        return leaf

    def begins(
        self, flow: FlowKey, leaf: Node, of_tenant: Backlog | None, of_lane: Backlog | None, now: float
    ) -> None:
        """A flow that has nothing waiting will: lift it and whoever above it was idle. The backlogs are those of its line, where there are any."""
        self._idle.pop(flow, None)
        node, parent, beside = leaf, leaf.parent, of_tenant
        while parent is not None and not node.waiting:
            # Not above those that wait on the same line, where refunds have put all of them below the virtual time.
            floor = parent.virtual_time
            if beside is not None:
                floor = min(floor, beside.first_child().node.service)
            node.rest(floor, now, self.rules)
            beside = of_lane if node is leaf else None
            node, parent = parent, parent.parent

    def ends(self, flow: FlowKey, leaf: Node, turn: int) -> int:
        """The last request of the flow goes. `turn` as for `trued_up`."""
        if leaf.owed:
            turn = leaf.trued_up(leaf.owed, leaf.at, turn, self.rules)
            leaf.owed = 0.0
        leaf.waits_no_more()
        self._idle[flow] = leaf
        return turn

    def gathered(
        self, flow: FlowKey, weight: float, before: float, last: float, largest: float, now: float
    ) -> None:
        """Requests of a flow started without waiting: `before` is what was charged up to the last one's start, `last` what since."""
        rank = _RANK_OF[flow[0]]
        if rank:
            leaf = self.node(flow, rank, weight, now)
            leaf.started(before, last, largest, now, self.rules)
            if not leaf.waiting:
                self._idle.move_to_end(flow)

    def trued_up(
        self, flow: FlowKey, weight: float, difference_cost: float, now: float, turn: int = 0
    ) -> int:
        """`turn` is the last that was used, nothing where nothing waits; returns the last used now."""
        node = self._flows.get(flow)
        if node is not None and node.waiting:
            difference_cost += node.owed
            if abs(difference_cost) * node.waiting < GATHERED_SHARE * node.cost:
                node.owed = difference_cost
                return turn
            node.owed = 0.0
        elif node is None:
            rank = _RANK_OF[flow[0]]
            if rank == 0:
                return turn
            if difference_cost > 0.0:
                node = self.node(flow, rank, weight, now)
            else:
                # A flow that is forgotten has no debt left to forgive; its tenant and its lane may.
                node = self.lanes[rank].children.get(flow[1], self.lanes[rank])
        return node.trued_up(difference_cost, now, turn, self.rules)

    def cost_ahead(self, tag: Tag) -> float:
        """Dispatched before a newcomer with this tag, of all that waits in the tree: its own flow's, and what the others get in the meantime."""
        rank = RANK[tag.lane]
        lane = self.lanes[rank]
        node = self._flows.get(flow_key(tag))
        ahead = 0.0
        if node is not None:
            ahead = node.cost
        else:
            # Who is new starts level with its siblings and is next among them.
            node = lane.children.get(tag.tenant, lane)
        parent = node.parent
        while parent is not None:
            others_cost = _cost(parent) - _cost(node)
            others_weight = parent.weight_waiting - (node.weight if node.waiting else 0.0)
            debt = node.service - parent.virtual_time
            ahead += served_meanwhile(ahead, node.weight, debt, others_cost, others_weight)
            node, parent = parent, parent.parent
        return ahead

    def _forget(self, now: float) -> None:
        for _ in range(2):
            if not self._idle:
                return
            flow = next(iter(self._idle))
            if len(self._flows) < self.rules.max_flows and self._means_something(self._idle[flow], now):
                return
            leaf = self._flows.pop(flow)
            del self._idle[flow]
            tenant = leaf.parent
            assert tenant is not None and tenant.parent is not None
            del tenant.children[flow[2]]
            if not tenant.children:
                del tenant.parent.children[flow[1]]

    def _means_something(self, leaf: Node, now: float) -> bool:
        tenant = leaf.parent
        assert tenant is not None and tenant.parent is not None
        if now - leaf.at > _HALF_LIVES * self.rules.half_life_seconds:
            return False
        if tenant.waiting:
            return leaf.service > tenant.virtual_time
        return tenant.service > tenant.parent.virtual_time


def comes_before(lane: Node, other: Node) -> bool:
    """By their groups, or by themselves where these are one."""
    group, others = lane.parent, other.parent
    assert group is not None and others is not None
    return lane.service < other.service if group is others else group.service < others.service


def _cost(node: Node) -> float:
    """Groups of lanes keep none."""
    if node.parent is None or node.parent.parent is None:
        return sum([_cost(child) for child in node.children.values()])
    return node.cost
