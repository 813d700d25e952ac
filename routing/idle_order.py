"""The backends of one line in order of load, so that the best is found without looking at all of them.

State only: the order itself is the `key_of` that the owner gives (`policies.least_time`); smaller is better, infinite is not to be used.
Contract: whoever changes what a key depends on (a slot taken or given back, a window, a slowdown, an absence) calls `changed` in the same step.
`best` changes nothing. Among equal keys the one that was changed longest ago is first, so that an idle fleet is used in turn.
How: a heap with lazy deletion. `changed` puts in a new entry, at once in place of the old one where that is the top, as it is when the best is
taken; only a member's last entry is valid. What is no longer valid is dropped when it comes to the top, and all of it when the heap has
grown to `_SLACK` times the members. So `changed` and `best` are O(log n) amortised, plus
O(x log n) for x excluded members that stand before the best.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Generic, TypeVar

Member = TypeVar("Member")

_SLACK = 4
_SPARE = 16
_Entry = tuple[float, int, Member]


class IdleOrder(Generic[Member]):
    def __init__(self, key_of: Callable[[Member], float], members: Iterable[Member] = ()) -> None:
        """`members` are told apart as dictionary keys are; their order is that of equals at the start."""
        self._key_of = key_of
        self._turn = 0
        self._valid: dict[Member, _Entry[Member] | None] = {}
        """Each member's valid entry; in the heap while its key is finite."""
        self._heap: list[_Entry[Member]] = []
        self._most = _SPARE
        """Entries, before the stale ones are dropped."""
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, member: Member) -> bool:
        return member in self._valid

    @property
    def entries(self) -> int:
        """Valid and stale: at most `_SLACK` for each member, and a few."""
        return len(self._heap)

    def add(self, member: Member) -> None:
        """A new member, or the same as `changed`."""
        self._valid[member] = None
        self._most = _SLACK * len(self._valid) + _SPARE
        self.changed(member)

    def remove(self, member: Member) -> None:
        self._valid.pop(member, None)
        self._most = _SLACK * len(self._valid) + _SPARE

    def changed(self, member: Member) -> None:
        """Nothing, where it is no member: a backend that was retired still gives slots back."""
        valid = self._valid
        if member not in valid:
            return
        turn = self._turn = self._turn + 1
        key = self._key_of(member)
        entry = valid[member] = (key, turn, member)
        if key == inf:
            return
        heap = self._heap
        if heap and heap[0][2] is member:
            heapreplace(heap, entry)
            return
        heappush(heap, entry)
        if len(heap) > self._most:
            heap[:] = [entry for entry in heap if valid.get(entry[2]) is entry]
            heapify(heap)

    def best(self, exclude: Container[Member] = ()) -> Member | None:
        """The member with the smallest key that is not in `exclude`, or None where there is none with a finite key."""
        heap, valid = self._heap, self._valid
        passed: list[_Entry[Member]] = []
        found: Member | None = None
        while heap:
            top = heap[0]
            member = top[2]
            if valid.get(member) is not top:
                heappop(heap)
            elif member in exclude:
                passed.append(heappop(heap))
            else:
                found = member
                break
        for entry in passed:
            heappush(heap, entry)
        return found
