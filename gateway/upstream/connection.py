"""One HTTP/1.1 connection to an engine: an asyncio protocol that runs one exchange at a time (`incoming` reads its answer).

Time: one `LazyTimer` per connection looks what is overdue: a first byte, a gap, the whole answer, an idle connection.
Limit: an answer that an unasked-for one overtook on its way is told from it only if that one has arrived by the time of the request.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import cast

from gateway.lazy_timer import LazyTimer
from gateway.settings import TimeoutSettings
from gateway.upstream.failures import (
    AnswerTooLong,
    FirstByteTimeout,
    GapTimeout,
    ResponseBroken,
    StaleConnection,
    TotalTimeout,
    UpstreamFailure,
)
from gateway.upstream.incoming import Incoming
from gateway.upstream.tls_reading import TlsReading, TlsTransport

WRITE_SLICE_BYTES = 64 * 1024
TLS_RECEIVE_BYTES = 64 * 1024
"""The kernel doubles it for its own bookkeeping and may hand over as much."""
_NOTHING = memoryview(b"")


def _ended(connection: Connection) -> None:
    """Who is told of the end of a connection that has ended."""


class Connection(Incoming):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_seconds: float, on_lost: Callable[[Connection], None]
    ) -> None:
        self._lost = False
        super().__init__(loop)
        self._idle_seconds = idle_seconds
        self._on_lost = on_lost
        self._poll = select.poll()
        self._timer = LazyTimer(loop, self._look_at_time)
        self._write_paused = False
        self.exchanges = 0
        self._idle_since = loop.time()
        self._timeouts = TimeoutSettings()
        self._unsent = _NOTHING
        self._began = 0.0
        self._sent_at = 0.0

    # --- one exchange ---------------------------------------------------------------------------------------------------

    def begin(self, timeouts: TimeoutSettings, body_expected: bool, head: bytes, body: bytes) -> None:
        """Take the idle connection for one exchange and send the request. `body_expected` is False for HEAD.

        A body beyond one slice goes as fast as the engine takes it, while its answer is already awaited.
        """
        self.busy = True
        self.exchanges += 1
        self._timeouts = timeouts
        now = self._loop.time()
        self._expect(body_expected)
        self._unsent = _NOTHING
        self._began = now
        self._sent_at = 0.0
        transport = self._transport
        if transport is None or self._lost:
            raise StaleConnection("the connection was closed")
        self._timer.arm(now + min(timeouts.first_byte_seconds, timeouts.gap_seconds, timeouts.total_seconds))
        if len(body) > WRITE_SLICE_BYTES:
            transport.write(head)
            self._unsent = memoryview(body)
            self._write_on()
        else:
            transport.write(head + body)
            self._sent_at = now

    def _write_on(self) -> None:
        transport = self._transport
        assert transport is not None
        # After a whole answer, or on a connection on its way out, there is no use in sending the rest.
        while self._unsent and not (self._write_paused or self.complete or transport.is_closing()):
            transport.write(self._unsent[:WRITE_SLICE_BYTES])
            self._unsent = self._unsent[WRITE_SLICE_BYTES:]
        if not self._unsent:
            self._sent_at = self._loop.time()

    def end(self) -> bool:
        """Give the exchange up or close it off. Whether the connection may serve another one."""
        self.busy = False
        transport = self._transport
        # A request that is not out in full would swallow the beginning of the next one.
        is_sent = not self._unsent and transport is not None and not transport.get_write_buffer_size()
        if not (is_sent and self._reusable and self.is_open and not self._read_paused):
            self._unsent = _NOTHING
            self.abort()
            return False
        self._idle_since = self._loop.time()
        self._timer.arm(self._idle_since + self._idle_seconds)
        return True

    def abort(self) -> None:
        """Close at once: this is what tells an engine to stop generating."""
        if self._transport is not None and not self._lost:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Whether the socket has nothing to read: neither the engine's goodbye nor an answer that nobody asked for."""
        return not self._poll.poll(0)

    # --- time -----------------------------------------------------------------------------------------------------------

    def _look_at_time(self) -> None:
        now = self._loop.time()
        if not self.busy:
            due = self._idle_since + self._idle_seconds
            if now >= due:
                self.abort()
                return
        else:
            due, failure = self._next_deadline()
            if now >= due:
                self._fail(failure)
                return
            # The first byte may come at any time, and its gap ends before what is due now.
            due = min(due, now + self._timeouts.gap_seconds)
        self._timer.arm(due)

    def _next_deadline(self) -> tuple[float, UpstreamFailure]:
        limits = self._timeouts
        due = self._began + limits.total_seconds
        total_timeout = AnswerTooLong if self._progress_at else TotalTimeout
        failure: UpstreamFailure = total_timeout(f"no end of the answer within {limits.total_seconds:g} s")
        if self.complete or self._read_paused or self._buffered:
            return due, failure  # how long a client may leave an answer unread is the client side's rule
        if not self._progress_at:
            since = self._sent_at or self._began
            if since + limits.first_byte_seconds < due:
                return since + limits.first_byte_seconds, FirstByteTimeout(
                    f"no byte of an answer within {limits.first_byte_seconds:g} s"
                )
        elif self._progress_at + limits.gap_seconds < due:
            return self._progress_at + limits.gap_seconds, GapTimeout(
                f"the answer stopped for {limits.gap_seconds:g} s"
            )
        return due, failure

    # --- asyncio's side -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses of it
        kernel_socket = transport.get_extra_info("socket")
        self._poll.register(kernel_socket.fileno(), select.POLLIN)
        if transport.get_extra_info("ssl_object") is None:
            self._reading = self._transport
        else:
            self._reading = TlsReading(self._loop, cast(TlsTransport, transport))
            # The layer's one read takes all that the kernel has, up to 256 KiB.
            kernel_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TLS_RECEIVE_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._timer.close()
        if self.busy and not self.complete and self._failure is None:
            answered = self.head_complete or self._barren_bytes
            if self.exchanges > 1 and not answered:
                self._failure = StaleConnection("a kept connection was closed before it answered")
            else:
                where = "inside its answer" if answered else "before it answered"
                self._failure = ResponseBroken(f"the engine closed the connection {where}")
        self._wake()
        self._on_lost(self)
        self._on_lost = _ended

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._write_on()
