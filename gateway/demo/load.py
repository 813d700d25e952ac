"""The open-loop load: Poisson arrivals of the three types, whatever the answers do.

What is measured runs from the moment a request was due, not from when it could be written, to the first byte of its answer; a load generator
that falls behind therefore shows in the figures instead of hiding in them. Times are seconds since `began`. Bounds: when it is more than
`MAX_BEHIND_SECONDS` late, arrivals are left out and the time is counted in `skipped_seconds`; so is an arrival when `MAX_IN_FLIGHT`
requests are under way, in `left_out`.
"""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import NamedTuple

from gateway.demo.business import BANK_A_KEY, EMERGENCY_SHARE, TYPES, RequestBodies
from gateway.demo.figures import RowFigures
from gateway.demo.phases import Course
from gateway.upstream.client import Exchange
from gateway.upstream.failures import UpstreamFailure
from gateway.upstream.pool import ConnectionPool

MAX_BEHIND_SECONDS = 1.0
MAX_IN_FLIGHT = 2000
EMERGENCIES = len(TYPES)
"""The row of the emergencies, below those of the types; theirs are counted there only."""
TURN_EVERY = 20
"""Of so many requests one is a turn of a session."""
SESSIONS_AT_ONCE = 8
TURNS = 4
"""Of a session; then another one begins."""
_END_OF_STREAM = b"data: [DONE]\n\n"
_HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    "%scontent-length: %%d\r\n\r\n"
)
_PLAIN = (_HEAD % "").encode()
_URGENT = (_HEAD % f"authorization: Bearer {BANK_A_KEY}\r\nx-headrace-lane: emergency\r\n").encode()


class Answer(NamedTuple):
    status: int
    first_byte_at: float
    is_whole: bool
    reason: str
    retry_after_seconds: int | None


class Load:
    def __init__(
        self,
        pool: ConnectionPool,
        nominal_rate: float,
        course: Course,
        seed: int,
        has_sessions: bool = False,
    ) -> None:
        """`pool` leads to the gateway; `nominal_rate` in requests per second is what the factors of `course` multiply.

        `has_sessions`: a part of the requests are turns of sessions, some of which leave their history to the gateway.
        """
        self._pool = pool
        self._chance = Random(seed)  # noqa: S311  # a repeatable schedule, no secret
        self._nominal_rate = nominal_rate
        self._has_sessions = has_sessions
        self._turns = 0
        self._course = course
        self._bodies = [RequestBodies(kind, self._chance) for kind in TYPES]
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[None]] = set()
        self._began = self._loop.time()
        self.rows = [RowFigures() for _ in range(EMERGENCIES + 1)]
        self.skipped_seconds = 0.0
        self.left_out = 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._loop.time() - self._began

    async def arrive(self) -> None:
        """Send until cancelled."""
        chance = self._chance
        kinds = range(len(TYPES))
        weights = [kind.peak_rate for kind in TYPES]
        self._began = self._loop.time()
        due = 0.0
        while True:
            due += chance.expovariate(self._nominal_rate * self._course.at(due).factor)
            # Also when it is late: answers have to be read in between.
            await asyncio.sleep(max(0.0, due - self.seconds))
            behind = self.seconds - due
            if behind > MAX_BEHIND_SECONDS:
                self.skipped_seconds += behind
                due += behind
            kind = chance.choices(kinds, weights)[0]
            is_urgent = chance.random() < EMERGENCY_SHARE
            if len(self._running) >= MAX_IN_FLIGHT:
                self.left_out += 1
                continue
            task = self._loop.create_task(self._send(kind, is_urgent, due))
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

    async def _send(self, kind: int, is_urgent: bool, due: float) -> None:
        body = self._bodies[kind].draw()
        row = self.rows[EMERGENCIES if is_urgent else kind]
        row.sent(due)
        try:
            head = _URGENT if is_urgent else self._head()
            answer = await self._exchange(head % len(body), body)
        except UpstreamFailure:
            row.failed(due)
            return
        if answer.status != 200:
            row.refused(due, answer.reason, answer.retry_after_seconds)
        elif answer.is_whole:
            row.answered(due, answer.first_byte_at - due, TYPES[kind].target_ms)
        else:
            row.failed(due)

    def _head(self) -> bytes:
        if not self._has_sessions:
            return _PLAIN
        self._turns += 1
        if self._turns % TURN_EVERY:
            return _PLAIN
        turn = self._turns // TURN_EVERY
        session = f"demo-{turn % SESSIONS_AT_ONCE}-{turn // (TURNS * SESSIONS_AT_ONCE)}"
        history = "x-headrace-history: server\r\n" if turn % 2 else ""
        return (_HEAD % f"x-headrace-session: {session}\r\n{history}").encode()

    async def _exchange(self, head: bytes, body: bytes) -> Answer:
        tail = b""
        first_byte_at = math.inf
        async with Exchange(self._pool, head, body, True) as answer:
            while data := await answer.read():
                first_byte_at = min(first_byte_at, self.seconds)
                tail = data if len(data) >= len(_END_OF_STREAM) else tail + data
            status = answer.status
            said = dict(answer.headers)
        wait = said.get(b"retry-after")
        return Answer(
            status,
            first_byte_at,
            # A stream that ends with an error event has an orderly end in HTTP's eyes.
            tail.endswith(_END_OF_STREAM),
            said.get(b"x-headrace-reason", b"status %d" % status).decode(),
            None if wait is None else int(wait),
        )
