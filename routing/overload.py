"""Which queues stand, and who is refused meanwhile.

One state of `policies.overload` for each lane and line: its requests compete for the same slots with the same urgency. While it refuses, every flow
(tenant and business type) loses its share by `policies.heaviest_first`, counted out exactly and without chance: a flow that loses a third loses every
third weighted token of its requests. Nobody is refused who finds a free slot or nobody waiting; emergencies never are.
Delays count of the flows that ask for at least half of what the heaviest does, per weight: a fair queue serves a light flow at once, whatever the
others wait, and that says nothing of them.
What is asked for are the weighted tokens of requests that found no slot, what is served those of requests that waited, both decayed with
`MEMORY_SECONDS`. There is no ticker: what is due happens at the next arrival or dispatch.
Bounds: `MAX_QUEUES` states, the least recently used goes; `MAX_FLOWS` flows in each, further ones are taken for light.
"""

from __future__ import annotations

from collections import OrderedDict
from math import exp, inf

from policies.heaviest_first import cut_level, lost_share
from policies.members import COLD
from policies.overload import (
    NO_DELAYS,
    Delays,
    OverloadRules,
    excess_share,
    interval_seconds,
    is_standing,
    observed,
    tick_seconds,
)
from policies.terms import Lane, Tag
from routing.decision import Line

MAX_QUEUES = 256
MAX_FLOWS = 1024
MEMORY_SECONDS = 1.0
_FORGOTTEN = 1e-3
_HEAVY_SHARE = 0.5
_GONE = 0.05


class _Flow:
    __slots__ = ("asked", "owed", "weight")

    def __init__(self) -> None:
        self.asked = 0.0
        self.weight = 1.0
        self.owed = 0.0
        """What it has still to lose, in weighted tokens."""


class _Queue:
    __slots__ = (
        "asked",
        "delay",
        "delays",
        "flows",
        "has_emptied",
        "heavy",
        "level",
        "served",
        "served_at",
        "share",
        "target",
        "ticked_at",
    )

    def __init__(self, now: float) -> None:
        self.delays = NO_DELAYS
        self.flows: dict[tuple[str, str], _Flow] = {}
        self.asked = self.served = 0.0
        self.delay = 0.0
        """Of who comes now, as a share of its target."""
        self.share = 0.0
        self.has_emptied = False
        """Since the last tick."""
        self.level = inf
        self.heavy = 0.0
        """What is asked for per weight from which on a flow's delays count."""
        self.served_at = now
        """When somebody was last dispatched, or began to wait where nobody did: so long somebody has waited at least."""
        self.ticked_at = now
        self.target = inf


class Overload:
    def __init__(self, rules: OverloadRules) -> None:
        self.rules = rules
        self.absorbs_bursts = True
        self._queues: OrderedDict[tuple[Lane, Line], _Queue] = OrderedDict()

    def refuses(
        self, line: Line, tag: Tag, predicted_seconds: float | None, others_wait: bool, now: float
    ) -> bool:
        """Whether a newcomer that found no slot is refused. `others_wait`: in its line and lane. `predicted_seconds`: its wait, where it is known."""
        if tag.target_seconds == inf or tag.lane is Lane.EMERGENCY:
            return False
        queue = self._queue(line, tag, now)
        if not others_wait:
            # A queue that empties does not stand, whatever those waited that it had.
            queue.served_at = now
            queue.delays = Delays(inf, now)
            queue.has_emptied = True
        self._tick(queue, now)
        key = (tag.tenant, tag.business)
        flow = queue.flows.get(key)
        if flow is None:
            if len(queue.flows) >= MAX_FLOWS:
                return False
            flow = queue.flows[key] = _Flow()
        cost = tag.cost
        flow.asked += cost
        queue.asked += cost
        flow.weight = tag.weight
        if predicted_seconds is not None and flow.asked >= queue.heavy * flow.weight:
            queue.delay = predicted_seconds / tag.target_seconds
        if queue.level == inf or not others_wait:
            return False
        flow.owed += cost * lost_share(flow.asked, flow.weight, queue.level)
        if flow.owed < cost:
            return False
        flow.owed -= cost
        return True

    def waited(self, line: Line, tag: Tag, seconds: float, is_served: bool, now: float) -> None:
        """One of those that waited got its slot, or its time was over."""
        if tag.target_seconds == inf or tag.lane is Lane.EMERGENCY:
            return
        queue = self._queue(line, tag, now)
        if is_served:
            queue.served_at = now
            queue.served += tag.cost
        flow = queue.flows.get((tag.tenant, tag.business))
        if flow is not None and flow.asked >= queue.heavy * flow.weight:
            interval = interval_seconds(tag.target_seconds, self.rules)
            queue.delays = observed(queue.delays, seconds / tag.target_seconds, now, interval, self.rules)
        self._tick(queue, now)

    def shares(self) -> dict[Lane, float]:
        """What is refused at present of each lane's requests that find no slot, the most of its queues."""
        shares = dict.fromkeys(Lane, 0.0)
        for (lane, _), queue in self._queues.items():
            shares[lane] = max(shares[lane], queue.share)
        return shares

    def remembered(self) -> tuple[int, int]:
        """Queues of requests with a target, and flows in all of them."""
        return len(self._queues), sum(len(queue.flows) for queue in self._queues.values())

    def _queue(self, line: Line, tag: Tag, now: float) -> _Queue:
        key = (tag.lane, line if line.path is COLD else line.on_other_path())
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(now)
            if len(self._queues) > MAX_QUEUES:
                self._queues.popitem(last=False)
        else:
            self._queues.move_to_end(key)
        queue.target = tag.target_seconds
        return queue

    def _tick(self, queue: _Queue, now: float) -> None:
        elapsed = now - queue.ticked_at
        if elapsed < tick_seconds(queue.target):
            return
        interval = interval_seconds(queue.target, self.rules)
        if queue.served_at <= queue.ticked_at:
            # Engines that stand still dispatch nothing that could be seen.
            queue.delay = (now - queue.served_at) / queue.target
            queue.delays = observed(queue.delays, queue.delay, now, interval, self.rules)
        queue.ticked_at = now
        self._weigh(queue, exp(-elapsed / MEMORY_SECONDS))
        if elapsed > interval:
            queue.share = 0.0  # nothing is known of that time
        if queue.has_emptied:
            # Once says little of a short queue; again and again, that no more comes than is served.
            queue.has_emptied = False
            queue.share = 0.5 * queue.share if queue.share > _GONE else 0.0
        elif queue.share > 0.0 or is_standing(queue.delays, now, interval, self.absorbs_bursts):
            queue.share = max(excess_share(queue.asked, queue.served, queue.delay, self.rules), 0.0)
        flows = ((flow.asked, flow.weight) for flow in queue.flows.values())
        queue.level = cut_level(flows, queue.share) if queue.share > 0.0 else inf

    def _weigh(self, queue: _Queue, kept: float) -> None:
        queue.asked *= kept
        queue.served *= kept
        heaviest = 0.0
        for key, flow in list(queue.flows.items()):
            flow.asked *= kept
            heaviest = max(heaviest, flow.asked / flow.weight)
            if flow.asked < _FORGOTTEN:
                del queue.flows[key]
        queue.heavy = _HEAVY_SHARE * heaviest
