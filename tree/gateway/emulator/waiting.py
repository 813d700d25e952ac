"""The waiting queue: the lowest (priority, arrival) first.

Under `fcfs` every priority is 0, which makes it first in, first out, and puts a preempted sequence back at
the head, because it arrived before all that still wait. A sequence that is aborted while it waits stays as a
dead entry until it reaches the head or dead entries are the majority: so an abort costs O(1) amortised, and
memory stays within twice the living.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from gateway.emulator.sequence import Phase, Sequence

Owner = TypeVar("Owner")


class WaitingQueue(Generic[Owner]):
    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence[Owner]]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, sequence: Sequence[Owner]) -> None:
        sequence.phase = Phase.WAITING
        heapq.heappush(self._heap, (sequence.priority, sequence.arrival, sequence))
        self._count += 1

    def head(self) -> Sequence[Owner] | None:
        heap = self._heap
        while heap:
            sequence = heap[0][2]
            if sequence.phase is Phase.WAITING:
                return sequence
            heapq.heappop(heap)
        return None

    def pop(self) -> None:
        """Remove what `head` returned."""
        heapq.heappop(self._heap)
        self._count -= 1

    def discard(self, sequence: Sequence[Owner]) -> None:
        """Forget a waiting sequence."""
        sequence.phase = Phase.ENDED
        self._count -= 1
        if len(self._heap) > 16 and len(self._heap) > 2 * self._count:
            self._heap = [entry for entry in self._heap if entry[2].phase is Phase.WAITING]
            heapq.heapify(self._heap)
