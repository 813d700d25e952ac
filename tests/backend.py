"""A scriptable engine on raw connections: every byte of its answers, and when it is sent, is the test's choice.

`async with Backend(script) as backend` listens on a free port of 127.0.0.1 (or `host="::1"`, `path=` for a Unix socket, `tls=`
for an `ssl.SSLContext`). `script(request)` is called once a request's body is complete and returns a `Script`; `on_head(request)`,
if given, is asked first, as soon as the headers are there, and may answer early by returning one. A chunk that is an
`asyncio.Event` holds the answer until the test sets it, which takes the place of delays.

`backend.exchanges` records what came, as it came. Probes (`GET` of a path in `backend.probes`, at first `/v1/models`,
`/health`, `/version` and a `/metrics` that is not there) are answered from there and not recorded unless `record_probes`.
`await backend.until(condition)` waits for a condition over the recorded facts; it is looked at whenever one of them changes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import cast

from tests.framing import HEAD_END, BodyReader, Head, Headers, encode_chunk, parse_head, render_head
from tests.script import Ending, Exchange, Framing, Gate, Request, Script, json_script, sse_script

__all__ = [
    "Backend",
    "Ending",
    "Exchange",
    "Framing",
    "Gate",
    "Request",
    "Script",
    "json_script",
    "sse_script",
]

WAIT_SECONDS = 20

ScriptFunction = Callable[[Request], Script]
HeadFunction = Callable[[Request], Script | None]


class Backend:
    """`send_buffer_bytes` keeps the kernel's share of unread answers small, for tests of backpressure."""

    def __init__(
        self,
        script: ScriptFunction | None = None,
        *,
        on_head: HeadFunction | None = None,
        models: Sequence[str] = ("m",),
        record_probes: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str | None = None,
        tls: ssl.SSLContext | None = None,
        send_buffer_bytes: int = 0,
    ) -> None:
        self.script = script or (lambda _: json_script({"object": "chat.completion", "choices": []}))
        self.on_head = on_head
        self.record_probes = record_probes
        cards = [{"id": model, "object": "model", "created": 1, "owned_by": "test"} for model in models]
        self.probes: dict[str, Script] = {
            "/v1/models": json_script({"object": "list", "data": cards}),
            "/health": Script(),
            "/version": json_script({"version": "0.0.0"}),
            "/metrics": Script(status=404, reason=b"Not Found"),
        }
        self.exchanges: list[Exchange] = []
        self.accepted = 0
        """Connections ever accepted."""
        self.connections: set[_Connection] = set()
        """Connections open now."""
        self.host, self.port, self.path = host, port, path
        self.send_buffer_bytes = send_buffer_bytes
        self._tls = tls
        self.errors: list[Exception] = []
        """What a malformed request or a script function raised; leaving the block raises the first."""
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()

    @property
    def is_tls(self) -> bool:
        return self._tls is not None

    @property
    def url(self) -> str:
        if self.path is not None:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen; after a `stop`, on the same port again."""
        loop = asyncio.get_running_loop()
        if self.path is not None:
            self._server = await loop.create_unix_server(lambda: _Connection(self), self.path, ssl=self._tls)
            return
        self._server = await loop.create_server(
            lambda: _Connection(self), self.host, self.port, ssl=self._tls, reuse_address=True, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and reset those that are open, as a killed engine does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.reset()
        await self.until(lambda: not self.connections)

    async def __aenter__(self) -> Backend:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self.errors and error is None:
            raise self.errors[0]

    def changed(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def exchange(self, index: int = 0) -> Exchange:
        """The exchange number `index`, as soon as its headers are there."""
        await self.until(lambda: len(self.exchanges) > index)
        return self.exchanges[index]


class _Connection(asyncio.Protocol):
    """Parses one request after the other and plays their scripts; a request that comes during an answer waits for its end."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._number = backend.accepted
        self._buffer = b""
        self._exchange: Exchange | None = None
        self._body: BodyReader | None = None
        self._playing: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._gone = asyncio.Event()
        self._leaving = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are not subclasses of it
        self._backend.accepted += 1
        self._backend.connections.add(self)
        self._writable.set()
        # With no write buffer of its own, a drained chunk is one that the kernel has taken.
        # Over TLS a limit of 0 counts an empty buffer as full and pauses for ever.
        transport.set_write_buffer_limits(high=1 if self._backend.is_tls else 0)
        if self._backend.send_buffer_bytes:
            kernel_socket = transport.get_extra_info("socket")
            kernel_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._backend.send_buffer_bytes)
        self._backend.changed()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._advance()
        except Exception as error:
            self._backend.errors.append(error)
            self.reset()

    def eof_received(self) -> bool:
        self._peer_left(reset=False)
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if not self._leaving:
            self._peer_left(reset=error is not None)
        self._gone.set()
        self._writable.set()
        if self._playing is not None:
            self._playing.cancel()
        self._backend.connections.discard(self)
        self._backend.changed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def reset(self) -> None:
        kernel_socket = self._transport.get_extra_info("socket")
        if kernel_socket is not None and kernel_socket.family != socket.AF_UNIX:
            kernel_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._leaving = True
        self._transport.abort()

    def _close(self) -> None:
        self._leaving = True
        self._transport.close()

    def _peer_left(self, *, reset: bool) -> None:
        if self._exchange is not None:
            self._exchange.peer_reset = reset
            self._exchange.closed_at = asyncio.get_running_loop().time()
            self._exchange.peer_closed.set()
            self._backend.changed()

    def _advance(self) -> None:
        """As far as the buffered bytes go: a head, its body, and the script once there is one."""
        while self._body is not None or self._playing is None:
            if self._body is None:
                head, mark, rest = self._buffer.partition(HEAD_END)
                if not mark:
                    return
                self._buffer = rest
                self._take_head(head)
            assert self._body is not None and self._exchange is not None
            self._exchange.request.pieces.append(self._body.feed(self._buffer))
            self._buffer = self._body.rest
            if not self._body.done:
                return
            self._body = None
            self._exchange.body_complete.set()
            self._backend.changed()
            if self._exchange.script is None:
                self._play(self._answer_to(self._exchange.request))

    def _take_head(self, raw: bytes) -> None:
        head = parse_head(raw)
        request = Request(head.start_line, head.headers, raw + HEAD_END)
        self._body = BodyReader.of_request(head)
        self._exchange = Exchange(request, self._number)
        if self._backend.record_probes or not self._is_probe(request):
            self._backend.exchanges.append(self._exchange)
            self._backend.changed()
        early = self._backend.on_head(request) if self._backend.on_head else None
        if early is not None:
            self._play(early)

    def _is_probe(self, request: Request) -> bool:
        return request.method == "GET" and request.path in self._backend.probes

    def _answer_to(self, request: Request) -> Script:
        return (
            self._backend.probes[request.path] if self._is_probe(request) else self._backend.script(request)
        )

    def _play(self, script: Script) -> None:
        assert self._exchange is not None
        self._exchange.script = script
        if script.ending is Ending.STOP_READING:
            self._transport.pause_reading()
        self._playing = asyncio.create_task(self._played(self._exchange, script))

    async def _played(self, exchange: Exchange, script: Script) -> None:
        if script.before_head is not None:
            await script.before_head.wait()
        for head in script.informational:
            await self._send(exchange, head + HEAD_END)
        chunks = list(script.chunks) if script.framing is Framing.LENGTH else script.chunks
        if script.framing is not Framing.RAW:
            await self._send(exchange, _answer_head(script, chunks))
        for chunk in chunks:
            if isinstance(chunk, Gate):
                await chunk.wait()
            elif chunk:
                framed = encode_chunk(chunk) if script.framing is Framing.CHUNKED else chunk
                await self._send(exchange, b"" if exchange.request.method == "HEAD" else framed)
                exchange.chunks_sent += 1
                self._backend.changed()
        await self._end(exchange, script)

    async def _end(self, exchange: Exchange, script: Script) -> None:
        head = Head(b"", list(script.headers))
        if script.ending in (Ending.SILENT, Ending.STOP_READING):
            exchange.answered.set()
            self._backend.changed()
            await self._gone.wait()
        elif script.ending is Ending.RESET:
            self.reset()
        elif script.ending is Ending.CUT:
            self._close()
        else:
            if script.framing is Framing.CHUNKED and exchange.request.method != "HEAD":
                await self._send(exchange, b"0\r\n\r\n")
            if (
                script.ending is Ending.CLOSE_AFTER
                or script.framing is Framing.UNTIL_CLOSE
                or head.says(b"connection", b"close")
                or exchange.request.says(b"connection", b"close")
            ):
                self._close()
        self._playing = None
        exchange.answered.set()
        self._backend.changed()
        if not self._transport.is_closing():
            self._advance()

    async def _send(self, exchange: Exchange, data: bytes) -> None:
        if self._transport.is_closing():
            await self._gone.wait()
            return
        self._transport.write(data)
        await self._writable.wait()
        exchange.bytes_sent += len(data)
        self._backend.changed()


def _answer_head(script: Script, chunks: Iterable[bytes | Gate]) -> bytes:
    headers: Headers = list(script.headers)
    head = Head(b"", headers)
    if script.framing is Framing.CHUNKED and head.value(b"transfer-encoding") is None:
        headers.append((b"transfer-encoding", b"chunked"))
    if script.framing is Framing.LENGTH and head.value(b"content-length") is None:
        length = sum(len(chunk) for chunk in chunks if isinstance(chunk, bytes))
        headers.append((b"content-length", b"%d" % length))
    return render_head(b"HTTP/1.1 %d %s" % (script.status, script.reason), headers)
