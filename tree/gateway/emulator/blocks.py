"""The KV cache of one engine, counted in blocks of 16 tokens, with a prefix cache that evicts the least
recently used block.

A block is *active* while a running sequence holds it, *idle* when only the prefix cache remembers it, else
free. Active blocks with equal hashes are shared. An idle block is used again for a hit, or given up when a
block is wanted and none is free. Sequences give their blocks back tail first, so a prefix outlives its
continuations.

Limits: a block is remembered from its sequence's admission on, which is up to one prefill earlier than its
content would exist. Blocks of answers are not remembered: the next turn of a dialogue computes the last
answer again.
"""

from __future__ import annotations

from collections.abc import Sequence


class BlockPool:
    """`capacity` blocks; every method is O(blocks of one sequence)."""

    __slots__ = ("_active", "_idle", "_private", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._active: dict[int, int] = {}
        self._idle: dict[int, None] = {}
        self._private = 0

    @property
    def used(self) -> int:
        """Blocks held by sequences."""
        return len(self._active) + self._private

    @property
    def remembered(self) -> int:
        """Blocks a new sequence could hit."""
        return len(self._active) + len(self._idle)

    def usage(self) -> float:
        """Share of the capacity held by sequences, 0 to 1."""
        return self.used / self.capacity

    def hits(self, hashes: Sequence[int], at_most: int) -> int:
        """How many leading blocks are here already."""
        active, idle = self._active, self._idle
        count = 0
        for block in hashes:
            if count >= at_most or (block not in active and block not in idle):
                break
            count += 1
        return count

    def acquire(self, hashes: Sequence[int], private: int) -> bool:
        """Take the named blocks and `private` nameless ones; all or nothing."""
        active, idle = self._active, self._idle
        fresh = private
        for block in hashes:
            if block not in active:
                fresh += 1
        if self.used + fresh > self.capacity:
            return False
        for block in hashes:
            held = active.get(block)
            if held is None:
                idle.pop(block, None)
                active[block] = 1
            else:
                active[block] = held + 1
        self._private += private
        self._evict()
        return True

    def grow(self) -> bool:
        """Take one more nameless block for an answer."""
        if self.used >= self.capacity:
            return False
        self._private += 1
        self._evict()
        return True

    def release(self, hashes: Sequence[int], private: int, computed: int) -> None:
        """Give blocks back. Of the named ones only the first `computed` have content worth remembering."""
        active, idle = self._active, self._idle
        for index in range(len(hashes) - 1, -1, -1):
            block = hashes[index]
            held = active[block]
            if held > 1:
                active[block] = held - 1
            else:
                del active[block]
                if index < computed:
                    idle[block] = None
        self._private -= private

    def _evict(self) -> None:
        idle = self._idle
        surplus = self.used + len(idle) - self.capacity
        while surplus > 0:
            del idle[next(iter(idle))]
            surplus -= 1
