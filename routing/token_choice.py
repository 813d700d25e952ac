"""Which backends have the tokens for a request, and for whom one is kept that has too few.

Decides: among backends with a free slot the one in order of load whose room the request fits (`routing.token_room`). A request that is first in turn but fits
none keeps its turn in its line, and of its pool the emptiest backend is kept for it: what comes after it in other lines may use the others.
So what is kept only empties, and at the latest when it is empty the request fits. One backend of a pool is kept at a time; whose turn it is
is asked anew each time, so what the fair queue puts before it goes before it here as well. Emergencies pass.
Bounds: one entry per pool. `MAX_PASSED` backends that lack the tokens are passed; those after them are fuller.
Limit: while a large request waits, its own line waits with it, on all backends of the pool.
"""

from __future__ import annotations

from collections.abc import Container

from policies.terms import Lane, PoolName, Tag
from routing.backend import Backend
from routing.decision import Ticket
from routing.fair_queue import FairQueue
from routing.group import Group
from routing.token_room import TokenRoom

MAX_PASSED = 16


class TokenChoice:
    def __init__(self, queue: FairQueue[Ticket]) -> None:
        self._queue = queue
        self._kept: dict[PoolName, TokenRoom] = {}

    @property
    def keeps(self) -> bool:
        """Whether somebody waits for tokens behind whom others wait."""
        return bool(self._kept)

    def fits(self, backend: Backend, tag: Tag) -> bool:
        room = backend.room
        if room is None:
            return True
        kept_for = room.kept_for
        if kept_for is not None and tag.lane is not Lane.EMERGENCY and self._queue.holds(kept_for):
            return False
        return room.fits(tag, backend.in_flight)

    def best(self, group: Group, tag: Tag, tried: Container[Backend]) -> Backend | None:
        """The one with a free slot and the tokens that answers soonest."""
        passed = _Passed(self, tag, tried)
        backend = group.best(passed)
        return None if passed.count > MAX_PASSED else backend

    def keep(self, pool: PoolName, backend: Backend | None, ticket: Ticket) -> None:
        """`backend`: the best with a slot, whatever its tokens."""
        if backend is not None and backend.room is not None and pool not in self._kept:
            self._kept[pool] = backend.room
            backend.room.kept_for = ticket.id

    def ask_anew(self, pool: PoolName) -> None:
        """Nothing of this pool is kept until somebody's turn says so."""
        if self._kept and (room := self._kept.pop(pool, None)) is not None:
            room.kept_for = None


class _Passed(Container[Backend]):
    """Backends that are not taken: tried before, or without the tokens. Ends the search when it has grown long."""

    def __init__(self, choice: TokenChoice, tag: Tag, tried: Container[Backend]) -> None:
        self._choice = choice
        self._tag = tag
        self._tried = tried
        self.count = 0

    def __contains__(self, backend: object) -> bool:
        assert isinstance(backend, Backend)
        if backend in self._tried:
            return True
        if self._choice.fits(backend, self._tag):
            return False
        self.count += 1
        return self.count <= MAX_PASSED
