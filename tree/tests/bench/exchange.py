"""The client's side of one keep-alive connection: a request at a time, its answer timed, counted and checked, as cheaply as can be.

A content chunk is counted by the mock engine's stamp; when a read brings several, all but the first count as coalesced. The transit
of a chunk is its arrival minus the stamp, both on the monotonic clock of the same machine. A stamp split over two reads is missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from tests.bench.engine_answers import STAMP, STAMP_DIGITS

_HEAD, _LENGTH, _CHUNKED, _UNTIL_CLOSE = range(4)
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True)
class Tally:
    """What was seen so far. Times in nanoseconds; `transits` holds (arrival, transit) pairs and stays empty unless asked for."""

    requests: int = 0
    chunks: int = 0
    coalesced: int = 0
    errors: int = 0
    first_error: str = ""
    latencies: list[int] = field(default_factory=list)
    first_bytes: list[int] = field(default_factory=list)
    transits: list[tuple[int, int]] = field(default_factory=list)


class Exchange(asyncio.Protocol):
    """`on_end` is called with this exchange whenever an answer is complete or the connection is gone (`lost` is then true)."""

    def __init__(
        self, tally: Tally, on_end: Callable[[Exchange], None], *, timed: bool, stamped: bool
    ) -> None:
        self.tally = tally
        self.on_end = on_end
        self.timed = timed
        self.stamped = stamped
        self.busy = self.lost = False
        self.sent_ns = self.first_ns = 0
        self.seen_chunks = 0
        self._pending = b""
        self._phase = _HEAD
        self._left = 0
        self._tail = b""
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(
            asyncio.Transport, transport
        )  # uvloop's own class; registered under none of asyncio's

    def send(self, request: bytes, due_ns: int = 0) -> None:
        """`due_ns` is when it should have been sent: waiting for a free connection is part of the latency."""
        self.busy = True
        self.sent_ns = due_ns or time.monotonic_ns()
        self.first_ns = self.seen_chunks = 0
        self._phase, self._pending, self._tail = _HEAD, b"", b""
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._phase == _HEAD:
            data = self._pending + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._pending = data
                return
            self._begin(data[:end].lower())
            data = data[end + 4 :]
        if data:
            if not self.first_ns:
                self.first_ns = now
            if self._status != 200:
                self._fail(f"{self._status} {data[:300]!r}")
            elif STAMP in data:
                self._count(data, now)
        if self._phase == _LENGTH:
            self._left -= len(data)
            complete = self._left <= 0
        else:
            self._tail = (self._tail + data)[-5:]
            complete = self._phase == _CHUNKED and self._tail == _LAST_CHUNK
        if complete:
            self._end(now)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.busy:
            if self._phase == _UNTIL_CLOSE:
                self._end(time.monotonic_ns())
                return
            self._fail(f"connection lost in the middle of an answer: {exc!r}")
            self.busy = False
        self.on_end(self)

    def _begin(self, head: bytes) -> None:
        self._status = int(head[9:12])
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._phase, self._left = _LENGTH, int(head[at + 17 :].split(b"\r\n", 1)[0])
        else:
            self._phase = _CHUNKED if b"transfer-encoding: chunked" in head else _UNTIL_CLOSE

    def _count(self, data: bytes, now: int) -> None:
        found = data.count(STAMP)
        self.tally.chunks += found
        self.tally.coalesced += found - 1
        self.seen_chunks += found
        if self.stamped:
            at = data.find(STAMP)
            while at >= 0:
                digits = data[at + len(STAMP) : at + len(STAMP) + STAMP_DIGITS]
                if len(digits) == STAMP_DIGITS:
                    self.tally.transits.append((now, now - int(digits)))
                at = data.find(STAMP, at + len(STAMP))

    def _end(self, now: int) -> None:
        self.busy = False
        self.tally.requests += 1
        if self.timed:
            self.tally.latencies.append(now - self.sent_ns)
            self.tally.first_bytes.append(self.first_ns - self.sent_ns)
        self.on_end(self)

    def _fail(self, message: str) -> None:
        self.tally.errors += 1
        self.tally.first_error = self.tally.first_error or message
