"""Which lines may come to a pool, worked out once for as long as the fleet and the lines that wait are what they are.

Who comes to a pool of another kind than its home is a guest there; whether guests are let in depends on the load, and so is asked each time
(`routing.pool_order`).
State: what was worked out, per pool. Bound: one entry per pool and line that has something waiting.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.terms import PoolName
from routing.decision import Line, Ticket
from routing.fair_queue import FairQueue
from routing.fleet import Fleet
from routing.pool import Pool

Places = Mapping[Line, int]
"""Of lines that have the pool in their order: its place there, 0 is the first."""


class Ways:
    def __init__(self, fleet: Fleet, queue: FairQueue[Ticket]) -> None:
        self._fleet = fleet
        self._queue = queue
        self._known: dict[PoolName, tuple[Places, Places]] = {}
        self._fleet_version = self._lines_version = -1

    def to(self, pool: Pool) -> tuple[Places, Places]:
        """All lines that have one to the pool, and those that are no guests there."""
        fleet_version, lines_version = self._fleet.version, self._queue.lines_version
        if fleet_version != self._fleet_version or lines_version != self._lines_version:
            self._fleet_version, self._lines_version = fleet_version, lines_version
            self._known.clear()
        known = self._known.get(pool.name)
        if known is None:
            known = self._known[pool.name] = self._work_out(pool)
        return known

    def _work_out(self, pool: Pool) -> tuple[Places, Places]:
        places: dict[Line, int] = {}
        at_home: dict[Line, int] = {}
        for line in self._queue.lines():
            assert isinstance(line, Line)
            if pool.name in line.pools:
                place = places[line] = line.pools.index(pool.name)
                home = self._fleet.groups(line.model, line.pools)[0]
                if place == 0 or home is None or home.pool.role is pool.role:
                    at_home[line] = place
        return places, at_home
