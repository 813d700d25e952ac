"""Which of its pools a request is tried on first, and which it may enter at all.

Rules: `policies.pool_choice`. State: to which pool the requests of a line spilled last.
Bound: `MAX_SPILLS` lines remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import inf

from policies.pool_choice import PoolChoiceRules, choose_pool, may_enter
from policies.terms import Tag
from routing.counts import Counts
from routing.decision import Line, Ticket
from routing.fair_queue import FairQueue
from routing.forecast import Forecast
from routing.group import Group
from routing.pool import Pool

MAX_SPILLS = 1024
_NO_SPILL = (0, -inf)


class PoolOrder:
    def __init__(self, queue: FairQueue[Ticket], forecast: Forecast, counts: Counts) -> None:
        self._queue = queue
        self._forecast = forecast
        self._counts = counts
        self._spills: OrderedDict[Line, tuple[int, float]] = OrderedDict()
        self.configure(PoolChoiceRules())

    def configure(self, rules: PoolChoiceRules) -> None:
        self._pool_choice = rules
        self._spills.clear()

    def may_enter(self, place: int, groups: Sequence[Group | None], realtime: bool) -> bool:
        """Whether a request may take a free slot of the pool at `place` of its order, which has backends for it."""
        home, group = groups[0], groups[place]
        if place == 0 or home is None:
            return True
        assert group is not None
        pool = group.pool
        # Among its like nobody is a guest.
        saturation = 0.0 if pool.role is home.pool.role else pool.saturation
        return may_enter(place, saturation, realtime, self._pool_choice)

    def takes_guests(self, pool: Pool, realtime: bool) -> bool:
        """Whether any request may enter, be its home of another kind."""
        return may_enter(1, pool.saturation, realtime, self._pool_choice)

    def first(self, line: Line, groups: Sequence[Group | None], tag: Tag, realtime: bool, now: float) -> int:
        """The pool that is tried first."""
        seconds: list[float] = []
        saturations: list[float] = []
        wait: float | None = None
        for group in groups:
            if group is None or not group.pool.capacity:
                seconds.append(inf)
                saturations.append(1.0)
                continue
            pool = group.pool
            expected = self._forecast.service_seconds(pool.name, tag)
            if pool.in_flight >= pool.capacity:
                if wait is None:
                    wait = (
                        self._forecast.wait_seconds(
                            self._queue.cost_ahead(tag) + tag.cost, self._queue.waiting > 0, now
                        )
                        or 0.0
                    )
                expected += wait
            seconds.append(expected)
            saturations.append(pool.saturation)
        spilled_to, at = self._spills.get(line, _NO_SPILL) if self._spills else _NO_SPILL
        return choose_pool(
            seconds, saturations, tag.deadline - now, realtime, spilled_to, now - at, self._pool_choice
        )

    def count_spill(self, groups: Sequence[Group | None], place: int) -> None:
        """Where a pool that serves the model was preferred."""
        home, spilled_to = groups[0] or next(group for group in groups if group is not None), groups[place]
        if spilled_to is not None and spilled_to is not home:
            self._counts.spills[home.pool.name, spilled_to.pool.name] += 1

    def note_spill(self, line: Line, place: int, now: float) -> None:
        self._spills[line] = (place, now)
        self._spills.move_to_end(line)
        if len(self._spills) > MAX_SPILLS:
            self._spills.popitem(last=False)
