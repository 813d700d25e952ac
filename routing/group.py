"""The backends of one pool that serve one model, in order of load: the best one is found without looking at all of them.

One that has not told its models may serve this one. `fair_share` is what a backend would hold of the load if all of it were spread by the windows; where
the group is the whole pool, as in most fleets, that costs nothing, else it is summed up anew.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import inf
from typing import TYPE_CHECKING

from policies.least_time import load_key
from routing.idle_order import IdleOrder
from routing.rendezvous import Rendezvous

if TYPE_CHECKING:
    from routing.backend import Backend
from routing.pool import Pool


class Group:
    __slots__ = ("_is_by_slot", "_is_pool", "_known", "_order", "members", "pool", "rendezvous")

    def __init__(self, pool: Pool, members: tuple[Backend, ...]) -> None:
        self.pool = pool
        self.members = members
        self.rendezvous: Rendezvous[Backend] = Rendezvous([(one.id, one) for one in members])
        self._known = frozenset(members)
        self._is_by_slot = False
        """All of them have windows, as `load_per_slot` found last."""
        self._is_pool = len(members) == len(pool.backends)
        self._order = IdleOrder(key_of, members) if len(members) > 1 else None
        if self._order is not None:
            for backend in members:
                backend.orders.append(self._order)

    def __contains__(self, backend: Backend) -> bool:
        return backend in self._known

    def best(self, tried: Container[Backend]) -> Backend | None:
        """The one with a free slot that answers soonest; it may lack the tokens."""
        if self._order is not None:
            return self._order.best(tried)
        backend = self.members[0]
        return None if key_of(backend) == inf or backend in tried else backend

    def has_usable(self, tried: Sequence[Backend]) -> bool:
        """Whether one of them may be used now, be it full."""
        if not tried and not self.members[0].is_blocked:
            return True
        return any(not backend.is_blocked and backend not in tried for backend in self.members)

    def load_per_slot(self) -> float:
        """Of one more request and all that run, others' included, spread evenly: per slot, or per backend where not all have windows."""
        pool = self.pool
        if self._is_pool:
            total, capacity, usable = pool.in_flight + pool.foreign, pool.capacity, pool.usable
        else:
            there = [backend for backend in self.members if not backend.is_blocked]
            total, usable = sum([backend.in_flight + backend.foreign for backend in there]), len(there)
            capacity = sum([inf if backend.window is None else backend.window for backend in there])
        self._is_by_slot = capacity != inf
        return (total + 1) / (capacity or 1 if self._is_by_slot else usable)

    def fair_share(self, backend: Backend, load_per_slot: float) -> float:
        """In requests; `load_per_slot` is what that has just said."""
        window = backend.window
        if window is None or not self._is_by_slot:
            return load_per_slot * backend.share
        return load_per_slot * window


def key_of(backend: Backend) -> float:
    if backend.is_blocked:
        return inf
    key, room = load_key(backend.in_flight, backend.window, backend.slowdown, backend.foreign), backend.room
    return key if room is None or room.share <= key else room.share
