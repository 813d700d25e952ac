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
        self._handle: asyncio.Handle | None = None
        """Of what comes next: the next beat, or the next call of the one that is under way."""
        self._is_beating = False

    def set_interval(self, seconds: float) -> None:
        """The first beat comes a whole interval from now; the same interval as before changes nothing."""
        if seconds != self._seconds:
            self._seconds = seconds
            if not self._is_beating:
                self.close()
                self._arm(self._loop.time())

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, now: float) -> None:
        self._handle = self._loop.call_at(now + self._seconds, self._fire)

    def _fire(self) -> None:
        self._is_beating = True
        self._call(0, self._loop.time())

    def _call(self, index: int, now: float) -> None:
        # Before it is called, which may be the end of all.
        if index + 1 < len(self._beats):
            self._handle = self._loop.call_soon(self._call, index + 1, now)
        else:
            self._is_beating = False
            self._arm(now)
        try:
            self._beats[index](now)
        except Exception:  # the other beats, and the next of this one, have to go on
            _logger.exception("a periodic task failed")
