"""The largest value that was seen in a span of time that ends now. Bound: `POINTS` values, so a value stays for the span and up to a `POINTS`-th of it longer."""

from __future__ import annotations

from collections import deque

from routing.trail import POINTS


class Peak:
    __slots__ = ("_points", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._points: deque[tuple[float, float]] = deque()
        """Each the largest since the moment before it."""

    def note(self, value: float, now: float) -> None:
        points = self._points
        if points and now - points[-1][0] < self.seconds / POINTS:
            at, largest = points.pop()
            points.append((at, max(largest, value)))
        else:
            points.append((now, value))
        self._forget(now)

    def largest(self, now: float) -> float | None:
        """None where nothing was seen."""
        self._forget(now)
        return max((value for _, value in self._points), default=None)

    def _forget(self, now: float) -> None:
        points = self._points
        while points and points[0][0] + self.seconds * (1 + 1 / POINTS) <= now:
            points.popleft()
