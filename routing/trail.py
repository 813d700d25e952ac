"""What counters have gained over a span of time that ends now.

The owner notes the counters' values, as numbers that only grow, whenever it looks at them; `gained` is what they are now less what they were a span ago.
Bound: `POINTS` points for a span, however often it is noted; so the span that is really looked at is the one asked for, give or take a `POINTS`-th of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf

POINTS = 60


class Trail:
    __slots__ = ("_latest", "_points", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._points: deque[tuple[float, tuple[float, ...]]] = deque()
        self._latest: tuple[float, tuple[float, ...]] = (-inf, ())

    def note(self, values: Sequence[float], now: float) -> None:
        """Of as many counters as ever before, in the same order."""
        self._latest = now, tuple(values)
        points = self._points
        if not points or now - points[-1][0] >= self.seconds / POINTS:
            points.append(self._latest)
        # One that is older than the span has to stay: it is where the span begins.
        while len(points) > 1 and points[1][0] <= now - self.seconds:
            points.popleft()

    def gained(self) -> tuple[float, ...] | None:
        """None until there are two looks to compare."""
        at, latest = self._latest
        if not self._points or at <= self._points[0][0]:
            return None
        return tuple([new - old for new, old in zip(latest, self._points[0][1], strict=True)])
