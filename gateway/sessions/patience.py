"""How long the session store is waited for, by whoever waits: time in which this process was busy elsewhere says nothing about the store, which may have answered meanwhile.

A plain timeout would end then with the answer unread, since a loop that comes back looks at its timers before its sockets.
"""

from __future__ import annotations

import asyncio
from typing import Any

_LOOKS = 3


class Patience:
    """Ends `bound` after so many seconds. A stretch in which this process was busy elsewhere counts as half of them at most."""

    def __init__(self, bound: asyncio.Timeout, seconds: float) -> None:
        self._bound = bound
        self._seconds = self._left = seconds
        self._loop = asyncio.get_running_loop()
        self._look_again()

    def end(self) -> None:
        self._timer.cancel()

    def _look_again(self) -> None:
        self._since = self._loop.time()
        self._timer = self._loop.call_later(min(self._left, self._seconds / _LOOKS), self._look)

    def _look(self) -> None:
        self._left -= min(self._loop.time() - self._since, self._seconds / 2)
        if self._left > 1e-6:  # less does not move a clock
            self._look_again()
        else:
            self._bound.reschedule(self._loop.time())


async def is_done_within(seconds: float, future: asyncio.Future[Any]) -> bool:
    """Whether it is done by then; either way it is left alone."""
    try:
        async with asyncio.timeout(None) as bound:
            patience = Patience(bound, seconds)
            try:
                await asyncio.wait([future])
            finally:
                patience.end()
    except TimeoutError:
        pass
    return future.done()
