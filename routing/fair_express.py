"""What goes before the tree of shares: emergencies, and requests that go first in their line because they have waited once.

Their queues stand in the lines, one for each lane; here is what they hold together.
"""

from __future__ import annotations

from routing.fair_flows import FlowKey
from routing.fair_tree import Line, Requests


class Express:
    def __init__(self, lanes: int) -> None:
        self.waiting = [0] * lanes
        self.costs = [0.0] * lanes
        self.of_flows: dict[FlowKey, int] = {}
        """How many of each flow wait, where any do."""

    def joins(self, line: Line, flow: FlowKey, rank: int, cost: float) -> Requests:
        """The queue of one more."""
        self.waiting[rank] += 1
        self.costs[rank] += cost
        self.of_flows[flow] = self.of_flows.get(flow, 0) + 1
        queue = line.express[rank]
        if queue is None:
            queue = line.express[rank] = Requests()
        return queue

    def leaves(self, line: Line, flow: FlowKey, rank: int, cost: float) -> None:
        self.waiting[rank] -= 1
        # Exactly nothing, so that rounding does not add up over the years.
        self.costs[rank] = self.costs[rank] - cost if self.waiting[rank] else 0.0
        self.of_flows[flow] -= 1
        if not self.of_flows[flow]:
            del self.of_flows[flow]
        queue = line.express[rank]
        assert queue is not None
        queue.members -= 1
        if not queue.members:
            line.express[rank] = None
