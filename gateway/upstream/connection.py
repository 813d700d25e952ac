"""One HTTP/1.1 connection to an engine: an asyncio protocol that runs one exchange at a time.

The parser is httptools (llhttp in strict mode, which refuses an answer with two framings). Framing by content-length, by chunks and by
close are told apart; 1xx answers are skipped.

Bounds: 64 KiB and 256 headers for an answer's head; 32 KiB of unread body pause the socket, so with the one shared 64 KiB read buffer a
stream holds at most 96 KiB here (TLS adds its own record buffers).
Time: one lazy timer per connection. It is armed no later than the next moment at which anything could be overdue and looks then what
is; a request moves two numbers instead of arming and cancelling timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from gateway.settings import TimeoutSettings
from gateway.upstream.failures import (
    FirstByteTimeout,
    GapTimeout,
    ResponseBroken,
    StaleConnection,
    TotalTimeout,
    UpstreamFailure,
)

HEAD_LIMIT_BYTES = 64 * 1024
HEADER_LIMIT = 256
PAUSE_ABOVE_BYTES = 32 * 1024
WRITE_SLICE_BYTES = 64 * 1024
READ_BUFFER_BYTES = 64 * 1024

# Every protocol of a loop may share one buffer: get_buffer, the read and buffer_updated follow each other without another callback.
_read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))

_COMMENT = 58
"""The colon that begins an SSE comment: a keep-alive of a hung engine is no progress."""


Sink = Callable[[bytes], bool]


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_seconds: float, on_lost: Callable[[Connection], None]
    ) -> None:
        self._loop = loop
        self._idle_seconds = idle_seconds
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False
        self._read_paused = False
        self._lost = False
        self.busy = False
        self.exchanges = 0
        self._idle_since = loop.time()
        self._timeouts = TimeoutSettings()
        self._reset(0.0, True)

    def _reset(self, now: float, body_expected: bool) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.head_complete = False
        self.complete = False
        self._interim = False
        self._framed = False
        self._body_expected = body_expected
        self._head_bytes = 0
        self._fields_bytes = 0
        self._chunks: list[bytes] = []
        self._sink: Sink | None = None
        self._buffered = 0
        self._failure: UpstreamFailure | None = None
        self._began = now
        self._sent_at = 0.0
        self._progress_at = 0.0
        self._reusable = False

    # --- one exchange ---------------------------------------------------------------------------------------------------

    def begin(self, timeouts: TimeoutSettings, body_expected: bool) -> None:
        """Take the idle connection for one exchange. `body_expected` is False for HEAD."""
        now = self._loop.time()
        self.busy = True
        self.exchanges += 1
        self._timeouts = timeouts
        self._reset(now, body_expected)
        self._arm(min(now + timeouts.first_byte_seconds, now + timeouts.total_seconds))

    async def write(self, head: bytes, body: bytes) -> None:
        """Send the request; a body beyond one slice goes as fast as the engine takes it, and stops when the engine has answered."""
        transport = self._transport
        if transport is None or self._lost:
            raise self._failure or StaleConnection("the connection was closed")
        if len(body) <= WRITE_SLICE_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            view = memoryview(body)
            for start in range(0, len(body), WRITE_SLICE_BYTES):
                transport.write(view[start : start + WRITE_SLICE_BYTES])
                if self._write_paused and not await self._wait_writable():
                    return
        self._sent_at = self._loop.time()

    async def _wait_writable(self) -> bool:
        """Whether there is any use in sending the rest."""
        self._writable = self._loop.create_future()
        try:
            await self._writable
        finally:
            self._writable = None
        return not (self._lost or self.complete or self._failure)

    async def read_head(self) -> None:
        """Until status and headers of the final answer are there."""
        while not self.head_complete:
            if self._failure is not None:
                raise self._failure
            await self._wait()

    async def read(self) -> bytes:
        """The next bytes of the body, as many as there are; b"" at its clean end."""
        while not self._chunks:
            if self.complete:
                return b""
            if self._failure is not None:
                raise self._failure
            await self._wait()
        return self._take()

    def _take(self) -> bytes:
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._buffered = 0
        if self._read_paused and not self._lost:
            self._read_paused = False
            # A pause is the client's silence, not the engine's: its gap begins anew.
            self._progress_at = self._loop.time()
            assert self._transport is not None
            self._transport.resume_reading()
        return data

    async def pipe(self, sink: Sink) -> None:
        """Hand the body over as it comes, within the read that brought it: no task is woken for it.

        Returns at the end of the answer, or when `sink` says by False that it takes no more for now; `read` tells which and goes on.
        """
        while not self._chunks and not self.complete and self._failure is None:
            self._sink = sink
            try:
                await self._wait()
            finally:
                self._sink = None

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def end(self) -> bool:
        """Give the exchange up or close it off. Whether the connection may serve another one."""
        self.busy = False
        reusable = (
            self.complete
            and self._reusable
            and not self._lost
            and not self._write_paused
            and self._failure is None
        )
        if not reusable:
            self.abort()
            return False
        self._idle_since = self._loop.time()
        self._arm(self._idle_since + self._idle_seconds)
        return True

    def abort(self) -> None:
        """Close at once: this is what tells an engine to stop generating."""
        if self._transport is not None and not self._lost:
            self._transport.abort()

    @property
    def is_drained(self) -> bool:
        """The body has come to its clean end and all of it was read."""
        return self.complete and not self._chunks

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._lost and not self._transport.is_closing()

    # --- time -----------------------------------------------------------------------------------------------------------

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
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
        self._arm(due)

    def _next_deadline(self) -> tuple[float, UpstreamFailure]:
        limits = self._timeouts
        due = self._began + limits.total_seconds
        failure: UpstreamFailure = TotalTimeout(f"no end of the answer within {limits.total_seconds:g} s")
        waits_for_client = self._read_paused or self._buffered
        if self.complete or waits_for_client:
            # Looked at again soon: how long a client may leave an answer unread is the client side's rule.
            return min(due, self._loop.time() + limits.gap_seconds), failure
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

    def get_buffer(self, sizehint: int) -> memoryview:
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.busy:
            self.abort()  # nobody asked: whatever this is, it must not become the next request's answer
            return
        if not self.head_complete:
            self._head_bytes += nbytes
            if self._head_bytes > HEAD_LIMIT_BYTES + READ_BUFFER_BYTES:
                self._fail(ResponseBroken(f"the answer's head exceeds {HEAD_LIMIT_BYTES} bytes"))
                return
        try:
            self._parser.feed_data(_read_buffer[:nbytes])
            if self._chunks:
                self._deliver()
        except httptools.HttpParserUpgrade:
            self._fail(ResponseBroken("the engine switched protocols unasked"))
        except httptools.HttpParserError as error:
            self._fail(ResponseBroken(f"the answer is not HTTP: {error}"))

    def _deliver(self) -> None:
        """What one read brought, in one piece: to the sink, or to whoever waits in `read`."""
        sink = self._sink
        if sink is None:
            self._wake()
        elif not sink(self._take()):
            self._sink = None
            self._wake()

    def eof_received(self) -> bool:
        if (
            self.busy
            and self.head_complete
            and not self.complete
            and not self._framed
            and self._failure is None
        ):
            self._complete(reusable=False)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.busy and not self.complete and self._failure is None:
            if self.exchanges > 1 and not self._head_bytes:
                self._failure = StaleConnection("a kept connection was closed before it answered")
            else:
                where = "inside its answer" if self._head_bytes else "before it answered"
                self._failure = ResponseBroken(f"the engine closed the connection {where}")
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # --- the parser's side ----------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_complete:
            return  # trailers
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        self.headers.append((name, value))
        self._fields_bytes += len(name) + len(value)
        if self._fields_bytes > HEAD_LIMIT_BYTES or len(self.headers) > HEADER_LIMIT:
            self._fail(
                ResponseBroken(
                    f"the answer's head exceeds {HEAD_LIMIT_BYTES} bytes or {HEADER_LIMIT} headers"
                )
            )

    def on_headers_complete(self) -> None:
        if self.complete:
            self._reusable = False  # a second answer to one request: not to be taken for the next one's
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._interim = True
            self.headers = []
            self._framed = False
            return
        if self._failure is not None:
            return
        self.status = status
        self.head_complete = True
        if not self._body_expected:
            # To HEAD a length announces what a GET would bring; the parser cannot know and would wait for it.
            self._complete(reusable=False)
            return
        self._wake()

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        if body[0] != _COMMENT:
            self._progress_at = self._loop.time()
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > PAUSE_ABOVE_BYTES and not self._read_paused:
            self._read_paused = True
            assert self._transport is not None
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        if not self.complete:
            self._complete(reusable=self._parser.should_keep_alive())

    def _complete(self, reusable: bool) -> None:
        self.complete = True
        self._reusable = reusable
        self._wake()

    def _fail(self, failure: UpstreamFailure) -> None:
        if self._failure is None and not self.complete:
            self._failure = failure
        self.abort()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
