"""One timer that is armed no later than the next moment at which anything could be overdue.

Whoever owns it looks then what is due and arms it anew. A request so moves a few numbers instead of arming and cancelling
timers: a connection that is used all the time costs one call of the event loop per firing, not per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def _nothing() -> None:
    """What is due on something that has ended."""


class LazyTimer:
    __slots__ = ("_at", "_handle", "_look", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> None:
        self._loop = loop
        self._look = look
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0

    def arm(self, at: float) -> None:
        """Look at `at` on the loop's clock, or earlier if it is armed for an earlier time already."""
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._at = at
        self._handle = self._loop.call_at(at, self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """For good. Without its owner's method the owner is no part of a cycle any more and goes when its last user does."""
        self.cancel()
        self._look = _nothing

    def _fire(self) -> None:
        self._handle = None
        self._look()
