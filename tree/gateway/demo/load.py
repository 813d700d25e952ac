"""The open-loop load: Poisson arrivals of the three types, whatever the answers do.

Latency counts from the moment a request was due, not from when it could be written, to the last byte of its answer; a load generator that falls
behind therefore shows in the figures instead of hiding in them. Bound: when it is more than `MAX_BEHIND_SECONDS` late, arrivals are left out
and the time is counted in `skipped_seconds`.
"""

from __future__ import annotations

import asyncio
from random import Random

from gateway.demo.business import TYPES, RequestBodies
from gateway.demo.figures import Ending, TypeFigures
from gateway.upstream.client import Exchange
from gateway.upstream.failures import UpstreamFailure
from gateway.upstream.pool import ConnectionPool

MAX_BEHIND_SECONDS = 1.0
_END_OF_STREAM = b"data: [DONE]\n\n"
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n"
)


class Load:
    def __init__(self, pool: ConnectionPool, share_of_peak: float, seed: int) -> None:
        """`pool` leads to the gateway."""
        self._pool = pool
        self._chance = Random(seed)  # noqa: S311  # a repeatable schedule, no secret
        self._rates = [kind.peak_rate * share_of_peak for kind in TYPES]
        self._bodies = [RequestBodies(kind, self._chance) for kind in TYPES]
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()
        self.figures = [TypeFigures(kind.target_ms) for kind in TYPES]
        self.skipped_seconds = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._running)

    async def arrive(self) -> None:
        """Send until cancelled."""
        chance, rates, loop = self._chance, self._rates, self._loop
        kinds = range(len(TYPES))
        due = loop.time()
        while True:
            due += chance.expovariate(sum(rates))
            # Also when it is late: answers have to be read in between.
            await asyncio.sleep(max(0.0, due - loop.time()))
            behind = loop.time() - due
            if behind > MAX_BEHIND_SECONDS:
                self.skipped_seconds += behind
                due += behind
            task = loop.create_task(self._send(chance.choices(kinds, rates)[0], due))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def end(self, seconds: float) -> None:
        """Wait for the answers under way, then give up those that are left."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        left = list(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _send(self, kind: int, due: float) -> None:
        body, streamed = self._bodies[kind].draw()
        figures = self.figures[kind]
        figures.sent(self._loop.time())
        try:
            ending = await self._exchange(body, streamed)
        except UpstreamFailure:
            ending = Ending.FAILED
        now = self._loop.time()
        figures.ended(ending, now - due, now)

    async def _exchange(self, body: bytes, streamed: bool) -> Ending:
        tail = b""
        async with Exchange(self._pool, _HEAD % len(body), body, True) as answer:
            while data := await answer.read():
                tail = data if len(data) >= len(_END_OF_STREAM) else tail + data
            if answer.status != 200:
                return Ending.REFUSED
        # A stream that ends with an error event has an orderly end in HTTP's eyes.
        return Ending.ANSWERED if not streamed or tail.endswith(_END_OF_STREAM) else Ending.FAILED
