"""One HTTP/1.1 connection to an engine: an asyncio protocol that runs one exchange at a time.

The parser is httptools (llhttp in strict mode, which refuses an answer with two framings). Framing by content-length, by chunks and by
close are told apart; 1xx answers are skipped.

Bounds: 64 KiB and 256 headers for an answer's head; 32 KiB of unread body pause the socket, so with the one shared 64 KiB read buffer a
stream holds at most 96 KiB here (TLS adds the one read of the socket that its layer made last).
Time: one lazy timer per connection. It is armed no later than the next moment at which anything could be overdue and looks then what
is; a request moves two numbers instead of arming and cancelling timers.
Limit: an answer that an unasked-for one overtook on its way is told from it only if that one has arrived by the time of the request.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

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

_FRAMING = (b"content-length", b"transfer-encoding")
_TRAILERS: Any = deque(maxlen=0)
_COMMENT = 58
"""The colon that begins an SSE comment: a keep-alive of a hung engine is no progress."""


_NOTHING = memoryview(b"")

Sink = Callable[[bytes], bool]


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_seconds: float, on_lost: Callable[[Connection], None]
    ) -> None:
        self._loop = loop
        self._idle_seconds = idle_seconds
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._tls: _TlsTransport | None = None
        self._poll = select.poll()
        self._parser = httptools.HttpResponseParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._waiter: asyncio.Future[None] | None = None
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
        self._fields: Any = self.headers
        """Where header fields go: `headers`, or nowhere once the head is complete (trailers)."""
        self.head_complete = False
        self.complete = False
        self._interim = False
        self._body_expected = body_expected
        self._barren_bytes = 0
        self._unsent = _NOTHING
        self._chunks: list[bytes] = []
        self._sink: Sink | None = None
        self._buffered = 0
        self._failure: UpstreamFailure | None = None
        self._began = now
        self._sent_at = 0.0
        self._progress_at = 0.0
        self._reusable = False

    # --- one exchange ---------------------------------------------------------------------------------------------------

    def begin(self, timeouts: TimeoutSettings, body_expected: bool, head: bytes, body: bytes) -> None:
        """Take the idle connection for one exchange and send the request. `body_expected` is False for HEAD.

        A body beyond one slice goes as fast as the engine takes it, while its answer is already awaited.
        """
        self.busy = True
        self.exchanges += 1
        self._timeouts = timeouts
        now = self._loop.time()
        self._reset(now, body_expected)
        transport = self._transport
        if transport is None or self._lost:
            raise StaleConnection("the connection was closed")
        self._arm(now + min(timeouts.first_byte_seconds, timeouts.gap_seconds, timeouts.total_seconds))
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
        if self._read_paused and self.is_open:
            self._resume_reading()
        return data

    def _pause_reading(self) -> None:
        assert self._transport is not None
        self._read_paused = True
        self._transport.pause_reading()
        if self._tls is not None:
            # Else its layer reads on, and drops what it has when the engine closes.
            self._tls.set_read_buffer_limits(1, 0)

    def _resume_reading(self) -> None:
        assert self._transport is not None
        self._read_paused = False
        # A pause is the client's silence, not the engine's: its gap begins anew.
        self._progress_at = self._loop.time()
        if self._tls is not None:
            self._tls.set_read_buffer_limits()
        self._transport.resume_reading()

    async def pipe(self, sink: Sink) -> None:
        """Hand the body over as it comes, within the read that brought it: no task is woken for it.

        Returns at the end of the answer, or when `sink` says by False that it takes no more for now; `read` tells which and goes on.
        """
        if self._chunks or self.complete or self._failure is not None:
            return
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
        transport = self._transport
        # A request that is not out in full would swallow the beginning of the next one.
        is_sent = not self._unsent and transport is not None and not transport.get_write_buffer_size()
        if not (is_sent and self._reusable and self.is_open and not self._read_paused):
            self._unsent = _NOTHING
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

    @property
    def is_quiet(self) -> bool:
        """Whether the socket has nothing to read: neither the engine's goodbye nor an answer that nobody asked for."""
        return not self._poll.poll(0)

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
            # The first byte may come at any time, and its gap ends before what is due now.
            due = min(due, now + self._timeouts.gap_seconds)
        self._arm(due)

    def _next_deadline(self) -> tuple[float, UpstreamFailure]:
        limits = self._timeouts
        due = self._began + limits.total_seconds
        failure: UpstreamFailure = TotalTimeout(f"no end of the answer within {limits.total_seconds:g} s")
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
        if transport.get_extra_info("ssl_object") is not None:
            self._tls = cast(_TlsTransport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.busy:
            self.abort()  # nobody asked: whatever this is, it must not become the next request's answer
            return
        self._barren_bytes += nbytes
        if self._barren_bytes > HEAD_LIMIT_BYTES + READ_BUFFER_BYTES:
            self._fail(ResponseBroken(f"the answer's head or trailer exceeds {HEAD_LIMIT_BYTES} bytes"))
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
            and not any(name in _FRAMING for name, _ in self.headers)
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
            answered = self.head_complete or self._barren_bytes
            if self.exchanges > 1 and not answered:
                self._failure = StaleConnection("a kept connection was closed before it answered")
            else:
                where = "inside its answer" if answered else "before it answered"
                self._failure = ResponseBroken(f"the engine closed the connection {where}")
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._write_on()

    # --- the parser's side ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            self._reusable = False  # a second answer to one request: not to be taken for the next one's

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._interim = True
            self.headers.clear()
            return
        if not 200 <= status < 600:
            self._fail(ResponseBroken(f"the answer's status is {status}"))
        if self._failure is not None:
            return
        if self._barren_bytes > HEAD_LIMIT_BYTES or len(self.headers) > HEADER_LIMIT:
            size = sum(len(name) + len(value) for name, value in self.headers)
            if size > HEAD_LIMIT_BYTES or len(self.headers) > HEADER_LIMIT:
                limits = f"{HEAD_LIMIT_BYTES} bytes or {HEADER_LIMIT} headers"
                self._fail(ResponseBroken(f"the answer's head exceeds {limits}"))
                return
        self.status = status
        self.head_complete = True
        self._fields = _TRAILERS
        if not self._body_expected:
            # To HEAD a length announces what a GET would bring; the parser cannot know and would wait for it.
            self._complete(reusable=False)
            return
        self._wake()

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self._barren_bytes = 0
        if body[0] != _COMMENT:
            self._progress_at = self._loop.time()
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > PAUSE_ABOVE_BYTES and not self._read_paused:
            self._pause_reading()

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
        self._reusable = False
        self.abort()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
