"""What started and ended while nobody waited, gathered per flow and posted to the tree of shares together.

Nobody reads the counters while nobody waits, so going through the tree twice for each request would be wasted. Posted are the charges of
`POST_SECONDS` at once, or all there are when somebody begins to wait or looks.
Of the requests that a flow started the last one is kept apart: the virtual time stands at its start, as if each had been posted by itself.
Between flows the order inside a gathering is lost: each one is ahead by its last request, whoever of them came last.
Bounds: `MAX_GATHERED` flows.
"""

from __future__ import annotations

from policies.terms import Tag
from routing.fair_flows import FlowKey, Flows

POST_SECONDS = 1.0
MAX_GATHERED = 1024


class _Owed:
    __slots__ = ("at", "before", "is_started", "largest", "last", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.before = 0.0
        """What came before the start of the last request."""
        self.last = 0.0
        self.largest = 0.0
        self.is_started = False
        self.at = 0.0


class Charges:
    def __init__(self, tree: Flows) -> None:
        self._tree = tree
        self._owed: dict[FlowKey, _Owed] = {}
        self._post_at = 0.0

    def started(self, tag: Tag, now: float) -> None:
        owed = self._of(tag, now)
        cost = tag.cost
        owed.before += owed.last
        owed.last = cost
        owed.is_started = True
        if cost > owed.largest:
            owed.largest = cost

    def trued_up(self, tag: Tag, difference_cost: float, now: float) -> None:
        self._of(tag, now).last += difference_cost

    def post(self) -> None:
        if self._owed:
            owed, self._owed = self._owed, {}
            for flow, each in owed.items():
                if each.is_started:
                    self._tree.gathered(flow, each.weight, each.before, each.last, each.largest, each.at)
                else:
                    self._tree.trued_up(flow, each.weight, each.last, each.at)

    def _of(self, tag: Tag, now: float) -> _Owed:
        if now >= self._post_at:
            self.post()
            self._post_at = now + POST_SECONDS
        flow = (tag.lane, tag.tenant, tag.business)
        owed = self._owed.get(flow)
        if owed is None:
            if len(self._owed) >= MAX_GATHERED:
                self.post()
            owed = self._owed[flow] = _Owed(tag.weight)
        owed.at = now
        return owed
