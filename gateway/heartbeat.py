"""Calls what has to happen though nobody asks, every so many seconds, one after the other, each as a callback of the event loop of its own: whatever else is ready goes in between.

What it calls must not wait. One that fails is logged and called again at the next beat; the others go on.
Limit: a beat that comes late is not made up for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

_logger = logging.getLogger("headrace")

Beat = Callable[[float], None]
"""Takes the loop's time."""


class Heartbeat:
    def __init__(self, beats: Sequence[Beat]) -> None:
        """Stands still until `set_interval`."""
        self._beats = tuple(beats)
        self._loop = asyncio.get_running_loop()
        self._seconds = 0.0
        self._timer: asyncio.Handle | None = None
        self._next: asyncio.Handle | None = None

    def set_interval(self, seconds: float) -> None:
        """The first beat comes a whole interval from now; the same interval as before changes nothing."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._arm()

    def close(self) -> None:
        for handle in (self._timer, self._next):
            if handle is not None:
                handle.cancel()
        self._timer = self._next = None

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_later(self._seconds, self._fire)

    def _fire(self) -> None:
        self._arm()
        self._call(0, self._loop.time())

    def _call(self, index: int, now: float) -> None:
        if index + 1 < len(self._beats):
            self._next = self._loop.call_soon(self._call, index + 1, now)
        try:
            self._beats[index](now)
        except Exception:  # the other beats, and the next of this one, have to go on
            _logger.exception("a periodic task failed")
