"""Whether a request that finds no slot may wait: its queue does not stand, it can still be in time, and the queue has room for it or makes some.

Rules: `policies.overload` with `policies.heaviest_first`, then `policies.shedding`. `MARGIN` and `DEVIATIONS`: what is promised at arrival is
promised with a reserve, so that few are given up after they have waited.
"""

from __future__ import annotations

from math import inf

from policies.fairness import QueueBound
from policies.lanes import RANK
from policies.overload import OverloadRules
from policies.shedding import SheddingRules, admit
from policies.terms import Lane, Refusal, Tag
from routing.counts import Counts
from routing.decision import Line, Ticket
from routing.fair_queue import FairQueue
from routing.forecast import Forecast
from routing.overload import Overload
from routing.slots import Slots

MARGIN = 1.4
DEVIATIONS = 2.0


class Admission:
    def __init__(self, queue: FairQueue[Ticket], forecast: Forecast, slots: Slots, counts: Counts) -> None:
        self.shedding = SheddingRules()
        self.overload = Overload(OverloadRules())
        self._queue = queue
        self._forecast = forecast
        self._slots = slots
        self._counts = counts

    def configure(self, shedding: SheddingRules, overload: OverloadRules) -> None:
        self.shedding = shedding
        self.overload.rules = overload

    def predicted_wait_seconds(self, tag: Tag, now: float) -> float | None:
        """Of a newcomer with a deadline; None while no rate is known, and where nothing depends on it."""
        if tag.deadline == inf:
            return None
        queue, forecast = self._queue, self._forecast
        wait = forecast.wait_of_flow(tag, queue.waiting_of_flow(tag), now)
        if wait is None:
            wait = forecast.wait_seconds(queue.cost_ahead(tag) + tag.cost, queue.waiting > 0, now)
        return wait

    def objection(self, line: Line, tag: Tag, wait_seconds: float | None, now: float) -> Refusal | None:
        """To a newcomer that is predicted to wait so long: others have to go first, or it would not be in time."""
        if tag.target_seconds == inf or not self.shedding.enabled:
            return None  # without a target nothing can be late
        others_wait = self._queue.has_waiting_in_lane(line, tag.lane) or self._queue.has_waiting_in_lane(
            line.on_other_path(), tag.lane
        )
        if self.overload.refuses(line, tag, wait_seconds, others_wait, now):
            return Refusal.STANDING_QUEUE
        if wait_seconds is None:
            return None
        service = self._slots.home_seconds(line, tag, DEVIATIONS)
        if admit(MARGIN * wait_seconds, service, tag.deadline - now, tag.lane, self.shedding):
            return None
        return Refusal.OVERLOADED

    def waited(self, ticket: Ticket, is_served: bool, now: float) -> None:
        """It has its first slot, or its time was over: then it would have waited at least so long."""
        seconds = now - ticket.arrived
        if ticket.predicted_seconds is not None:
            self._counts.waited(ticket.predicted_seconds, seconds)
        if ticket.tag.target_seconds != inf:
            self.overload.waited(ticket.line, ticket.tag, seconds, is_served, now)

    def makes_room(self, tag: Tag, bound: QueueBound) -> Ticket | None:
        """Who leaves a full queue for the newcomer: the newest of the lowest lane, where the newcomer is of a higher one."""
        if bound is not QueueBound.TOTAL:
            return None
        victim = self._queue.newest_of_lowest_lane()
        if victim is None or RANK[victim.tag.lane] <= RANK[tag.lane]:
            return None
        return victim

    def retry_after_seconds(self, lane: Lane, now: float) -> int | None:
        """When a client that is refused now would be served, from the measured drain rate; None while there is none."""
        queue, forecast = self._queue, self._forecast
        wait = forecast.wait_seconds(queue.cost_waiting(lane), queue.waiting > 0, now)
        return None if wait is None or wait == inf else forecast.retry_after(wait, 0.0)

    def given_up_at(self, ticket: Ticket) -> float:
        """When it is too late for a waiting request even if it were served at once; infinite where that is no reason."""
        shedding = self.shedding
        tag = ticket.tag
        if not shedding.enabled or tag.lane is Lane.EMERGENCY or ticket.intent.relegate:
            return inf
        return ticket.arrived + max(shedding.margin, 1.0) * (tag.deadline - ticket.arrived)
