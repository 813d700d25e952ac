"""How many events of a kind come per second.

Formula: over windows of one second, the last whole one; a window that is over without a following event counts as what it held over the time since.
"""

from __future__ import annotations


class ArrivalRate:
    __slots__ = ("_count", "_last", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0
        self._last = 0.0

    def arrived(self, now: float) -> None:
        self._roll(now)
        self._count += 1

    def per_second(self, now: float) -> float:
        self._roll(now)
        elapsed = now - self._since
        # The window that runs says more as soon as it holds more than the last one did.
        return max(self._last * (1.0 - elapsed), 0.0) + self._count

    def _roll(self, now: float) -> None:
        elapsed = now - self._since
        if elapsed >= 1.0:
            self._last = self._count / elapsed
            self._count = 0
            self._since = now
