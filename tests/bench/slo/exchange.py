"""The client's side of one keep-alive connection: one call at a time, its answer read only as far as its verdict needs.

Of the answer's head are read the status, the framing, and what Headrace says of its decision: `queue_ms` and `business` of `x-headrace-route`,
and `x-headrace-reason` of a refusal. An engine sends the head of a stream at once, so the first byte is that of the body.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast

_HEAD, _LENGTH, _CHUNKED, _UNTIL_CLOSE = range(4)
_LAST_CHUNK = b"0\r\n\r\n"
LOST = 0
"""In the place of a status: the connection ended before the answer did."""


class Exchange(asyncio.Protocol):
    """`on_end(exchange, status)` is called once for every `send`, with `call` still set; whoever is called sets it back to -1, or sends again
    unless the exchange is `closed`."""

    def __init__(self, on_end: Callable[[Exchange, int], None]) -> None:
        self._on_end = on_end
        self.closed = False
        self.call = -1
        """The number of the call under way; below 0 there is none."""
        self.idle_since = 0.0
        self.head = b""
        self.first_byte_at = 0.0
        """When the body of the answer began, by the monotonic clock; 0 while it has not."""
        self._phase = _HEAD
        self._pending = b""
        self._left = 0
        self._status = 0
        self._last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, call: int, request: bytes) -> None:
        self.call = call
        self.first_byte_at = 0.0
        self._phase, self._pending = _HEAD, b""
        self.transport.write(request)

    def give_up(self) -> None:
        """As a client that has lost its patience: no more of this call, nor of this connection. `on_end` is not called."""
        self.call = -1
        self.closed = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.call < 0:
            self.give_up()  # nobody asked
            return
        if self._phase == _HEAD:
            if self._pending:
                data = self._pending + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._pending = data
                return
            self._begin(data[:end])
            data = data[end + 4 :]
        if data and not self.first_byte_at:
            self.first_byte_at = time.monotonic()
        if self._phase == _LENGTH:
            self._left -= len(data)
            if self._left <= 0:
                self._end(self._status)
        elif self._phase == _CHUNKED:
            self._pending = (self._pending + data)[-len(_LAST_CHUNK) :]
            if self._pending == _LAST_CHUNK:
                self._end(self._status)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.call >= 0:
            self._end(self._status if self._phase == _UNTIL_CLOSE and exc is None else LOST)

    def _begin(self, head: bytes) -> None:
        self.head = head
        self._status = int(head[9:12])
        lower = head.lower()
        self._last = b"\r\nconnection: close" in lower
        self._pending = b""
        at = lower.find(b"\r\ncontent-length:")
        if at >= 0:
            self._phase, self._left = _LENGTH, int(lower[at + 17 :].split(b"\r\n", 1)[0])
        else:
            self._phase = _CHUNKED if b"transfer-encoding: chunked" in lower else _UNTIL_CLOSE

    def _end(self, status: int) -> None:
        if self._last and not self.closed:
            self.closed = True
            self.transport.close()
        self._on_end(self, status)


def queue_ms(head: bytes) -> float:
    """Time in the gateway's queue; below 0 if the answer does not say."""
    found = field(head, b"queue_ms=")
    return float(found) if found else -1.0


def business(head: bytes) -> str:
    return field(head, b"business=")


def reason(head: bytes) -> str:
    return field(head, b"x-headrace-reason: ")


def field(head: bytes, name: bytes) -> str:
    """What follows `name`, up to the next separator; empty if it is not there."""
    at = head.find(name)
    if at < 0:
        return ""
    rest = head[at + len(name) :].partition(b"\r\n")[0]
    return rest.partition(b";")[0].decode("latin-1").strip()
