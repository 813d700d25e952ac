"""Pausing a TLS connection without losing what its engine sent before it closed.

The TLS layers of asyncio and uvloop read on while the protocol above them is paused, up to 512 KiB, and drop what they hold when the
engine closes. So the layer is told to stop its own socket as soon as it holds anything, and let go only when it has handed that over:
it then holds at most the one read that it made last, which `connection.TLS_RECEIVE_BYTES` keeps below 128 KiB.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class TlsTransport(Protocol):
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class TlsReading:
    __slots__ = ("_loop", "_release", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: TlsTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._release: asyncio.Handle | None = None

    def pause_reading(self) -> None:
        if self._release is not None:
            self._release.cancel()
        self._transport.pause_reading()
        self._transport.set_read_buffer_limits(high=1, low=0)

    def resume_reading(self) -> None:
        self._transport.resume_reading()
        # The layer hands over in a call of its own that was scheduled just now; this one comes after it. Before, the socket would be read
        # first. The limits may not stay: half a record is something held as well, and its rest would never come.
        self._release = self._loop.call_soon(self._let_go)

    def _let_go(self) -> None:
        if not self._transport.is_closing():
            self._transport.set_read_buffer_limits()
