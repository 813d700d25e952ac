"""The answer that comes in on a connection: what the parser found of it, and who waits for it.

The parser is httptools (llhttp in strict mode, which refuses an answer with two framings); its callbacks are the methods named `on_...`.
1xx answers are skipped, trailers dropped. A body is read in one of two ways: `read` wakes the caller's task, `pipe` hands each part to a
function within the callback of the socket's read.

Bounds: 64 KiB and 256 headers for an answer's head; 32 KiB of unread body pause the socket, so with the one shared 64 KiB read buffer a
stream holds at most 96 KiB here (TLS adds what `tls_reading` says).
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

from gateway.framing import framing_fault
from gateway.upstream.failures import ResponseBroken, UpstreamFailure
from gateway.upstream.tls_reading import TlsReading

HEAD_LIMIT_BYTES = 64 * 1024
HEADER_LIMIT = 256
PAUSE_ABOVE_BYTES = 32 * 1024
READ_BUFFER_BYTES = 64 * 1024

# Every protocol of a loop may share one buffer: get_buffer, the read and buffer_updated follow each other without another callback.
_read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))

_VERSIONS = ("1.1", "1.0")
_FRAMING = (b"content-length", b"transfer-encoding")
_TRAILERS: Any = deque(maxlen=0)
_COMMENT = 58
"""The colon that begins an SSE comment: a keep-alive of a hung engine is no progress."""

Sink = Callable[[bytes], bool]


class Incoming(asyncio.BufferedProtocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reading: asyncio.Transport | TlsReading | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._read_paused = False
        self.busy = False
        self._chunks: list[bytes] = []
        self._sink: Sink | None = None
        self._buffered = 0
        self._failure: UpstreamFailure | None = None
        self._expect(body_expected=True)

    def _expect(self, body_expected: bool) -> None:
        """A new answer."""
        if self._chunks:  # of the one before, whose client left
            self._chunks = []
            self._buffered = 0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._fields: Any = self.headers
        """Where header fields go: `headers`, or nowhere once the head is complete (trailers)."""
        self.head_complete = False
        self.complete = False
        self._interim = False
        self._body_expected = body_expected
        self._barren_bytes = 0
        self._progress_at = 0.0
        self._reusable = False

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @abstractmethod
    def abort(self) -> None: ...

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

    def read_nowait(self) -> bytes:
        """What is there of the body; b"" if nothing is, be it yet or any more."""
        return self._take() if self._chunks else b""

    def _take(self) -> bytes:
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._buffered = 0
        if self._read_paused and self.is_open:
            self._read_paused = False
            # A pause is the client's silence, not the engine's: its gap begins anew.
            self._progress_at = self._loop.time()
            assert self._reading is not None
            self._reading.resume_reading()
        return data

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

    def _wait(self) -> asyncio.Future[None]:
        """Done at the next event; a caller that is cancelled leaves it behind cancelled, which `_wake` ignores."""
        waiter = self._waiter = self._loop.create_future()
        return waiter

    @property
    def is_drained(self) -> bool:
        """The body has come to its clean end and all of it was read."""
        return self.complete and not self._chunks

    # --- the socket's side ----------------------------------------------------------------------------------------------

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
        except httptools.HttpParserUpgrade:
            self._fail(ResponseBroken("the engine switched protocols unasked"))
        except httptools.HttpParserError as error:
            self._fail(ResponseBroken(f"the answer is not HTTP: {error}"))
        else:
            # What one read brought, in one piece: to the sink, or to whoever waits.
            sink, chunks = self._sink, self._chunks
            if sink is None:
                self._wake()
                return
            if chunks:
                if len(chunks) == 1:
                    data = chunks.pop()
                else:
                    data = b"".join(chunks)
                    chunks.clear()
                if not sink(data):
                    self._sink = None
                    self._wake()
            if self.complete:
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
            self._wake()
        return False

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
        version = self._parser.get_http_version()
        if version not in _VERSIONS:
            self._fail(ResponseBroken(f"the answer is of HTTP/{version}"))
            return
        if b"transfer-encoding" in dict(self.headers):
            fault = framing_fault(version, self.headers)
            if fault is not None:
                self._fail(ResponseBroken(f"the answer is not HTTP: {fault}"))
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

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self._barren_bytes = 0
        if body[0] != _COMMENT:
            self._progress_at = self._loop.time()
        self._chunks.append(body)
        if self._sink is not None:
            return  # it takes all of them at the end of this read
        self._buffered += len(body)
        if self._buffered > PAUSE_ABOVE_BYTES and not self._read_paused:
            self._read_paused = True
            assert self._reading is not None
            self._reading.pause_reading()

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        if not self.complete:
            self._complete(reusable=self._parser.should_keep_alive())

    def _fail(self, failure: UpstreamFailure) -> None:
        if self._failure is None and not self.complete:
            self._failure = failure
        self._reusable = False
        self.abort()
        self._wake()

    def _complete(self, reusable: bool) -> None:
        self.complete = True
        self._reusable = reusable

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
