"""Which lines have a way to a pool, and what that way is; worked out once for as long as the fleet and the lines are what they are.

A line's *way* to a pool is the place of the pool in the line's order and the backends there that serve its model. Who comes to a pool of another kind
than its home is a guest there; whether guests are let in depends on the load, and so is asked each time (`routing.pool_order`).
State: what was worked out, per pool. Bound: one entry per pool and line that has something waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policies.terms import PoolName
from routing.decision import Line, Ticket
from routing.fair_queue import FairQueue
from routing.fleet import Fleet
from routing.group import Group
from routing.pool import Pool


class Way(NamedTuple):
    groups: Sequence[Group | None]
    place: int


class Ways:
    def __init__(self, fleet: Fleet, queue: FairQueue[Ticket]) -> None:
        self._fleet = fleet
        self._queue = queue
        self._known: dict[PoolName, tuple[Mapping[Line, Way], Mapping[Line, Way]]] = {}
        self._fleet_version = self._lines_version = -1

    def forget(self) -> None:
        """A new configuration comes: nothing is to be kept of backends that it no longer names."""
        self._known.clear()

    def to(self, pool: Pool) -> tuple[Mapping[Line, Way], Mapping[Line, Way]]:
        """Of all lines that have one, and of those that are no guests there."""
        fleet_version, lines_version = self._fleet.version, self._queue.lines_version
        if fleet_version != self._fleet_version or lines_version != self._lines_version:
            self._fleet_version, self._lines_version = fleet_version, lines_version
            self._known.clear()
        known = self._known.get(pool.name)
        if known is None:
            known = self._known[pool.name] = self._work_out(pool)
        return known

    def _work_out(self, pool: Pool) -> tuple[Mapping[Line, Way], Mapping[Line, Way]]:
        ways: dict[Line, Way] = {}
        at_home: dict[Line, Way] = {}
        for line in self._queue.lines():
            assert isinstance(line, Line)
            if pool.name in line.pools:
                groups, place = self._fleet.groups(line.model, line.pools), line.pools.index(pool.name)
                way = ways[line] = Way(groups, place)
                home = groups[0]
                if place == 0 or home is None or home.pool.role is pool.role:
                    at_home[line] = way
        return ways, at_home
