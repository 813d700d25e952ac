"""A client that speaks bytes: it sends exactly what it is given and tells how the answer really ended.

`send` does one exchange on a connection of its own; `connect` keeps the connection in the test's hands, to read an answer piece
by piece, to send two requests on it, or to leave in the middle, politely (`close`), half (`shut_write`) or with a reset
(`reset`). `send` reads while it sends, so an answer that comes before the request is out (413, 431) is seen. Every wait is bound by
`WAIT_SECONDS`, far above what any test needs but those of real engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tests.framing import HEAD_END, BodyReader, Head, Headers, encode_chunk, parse_head, render_head

WAIT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class AnswerHead(Head):
    interim: tuple[Head, ...] = ()
    """The 1xx heads that came before."""

    @property
    def status(self) -> int:
        return int(self.start_line.split(b" ", 2)[1])


@dataclass(frozen=True, slots=True)
class Answer:
    head: AnswerHead
    body: bytes
    complete: bool
    """The body ended as its framing promised: terminal chunk, full length, or close where neither was announced."""
    chunk_sizes: list[int] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def headers(self) -> Headers:
        return self.head.headers

    def value(self, name: bytes) -> bytes | None:
        return self.head.value(name)


def request(
    method: bytes | str,
    target: bytes | str,
    headers: Sequence[tuple[bytes, bytes]] = (),
    body: bytes | None = None,
    *,
    chunk_bytes: int = 0,
    version: bytes = b"HTTP/1.1",
) -> bytes:
    """The bytes of one request; `chunk_bytes` above 0 sends the body in chunks of that size instead of with a length."""
    verb = method.encode() if isinstance(method, str) else method
    where = target.encode() if isinstance(target, str) else target
    lines: Headers = [(b"Host", b"127.0.0.1"), *headers]
    payload = body or b""
    if body is not None and chunk_bytes:
        lines.append((b"Transfer-Encoding", b"chunked"))
        pieces = [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]
        payload = b"".join(map(encode_chunk, pieces)) + b"0\r\n\r\n"
    elif body is not None:
        lines.append((b"Content-Length", b"%d" % len(body)))
    return render_head(b"%s %s %s" % (verb, where, version), lines) + payload


class Connection:
    """One client connection on a bare socket. `method` of the last request decides whether an answer has a body.

    No stream or transport in between: those drop what was received once a write fails, and an early refusal is just that.
    """

    def __init__(self, kernel_socket: socket.socket, wait_seconds: float = WAIT_SECONDS) -> None:
        self.socket = kernel_socket
        self.wait_seconds = wait_seconds
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._method = b"GET"
        self.closed_by_peer = False
        self.reset_by_peer = False

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def send(self, raw: bytes, *, more: bool = False) -> None:
        """Returns when the kernel has all of it; that the peer has left is found out by the next read.

        `more` sends further bytes of the same request.
        """
        if not more:
            self._method = raw.split(b" ", 1)[0]
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(self.wait_seconds):
                await self._loop.sock_sendall(self.socket, raw)

    async def read_some(self, most: int = 65536) -> bytes:
        """The next bytes as they came; empty once the peer is gone."""
        if self._buffer:
            piece, self._buffer = self._buffer[:most], self._buffer[most:]
            return piece
        try:
            async with asyncio.timeout(self.wait_seconds):
                piece = await self._loop.sock_recv(self.socket, most)
        except ConnectionError:
            self.reset_by_peer = True
            piece = b""
        self.closed_by_peer = self.closed_by_peer or not piece
        return piece

    async def read_head(self) -> AnswerHead:
        """The final status line and headers; `EOFError` with what came if the peer leaves before their end."""
        interim: list[Head] = []
        buffer = b""
        while True:
            while (end := buffer.find(HEAD_END)) < 0:
                piece = await self.read_some()
                if not piece:
                    raise EOFError(f"connection closed inside the head: {buffer!r}")
                buffer += piece
            head = parse_head(buffer[:end])
            buffer = buffer[end + len(HEAD_END) :]
            answer = AnswerHead(head.start_line, head.headers, tuple(interim))
            if answer.status >= 200:
                self._buffer = buffer + self._buffer
                return answer
            interim.append(head)

    async def pieces(self, head: AnswerHead, ending: list[BodyReader] | None = None) -> AsyncIterator[bytes]:
        """The body without its chunked coding, as it comes. `ending`, if given, receives the reader, to ask `done` of it."""
        reader = BodyReader.of_answer(head, head.status, self._method)
        if ending is not None:
            ending.append(reader)
        while not reader.done:
            raw = await self.read_some()
            if not raw:
                reader.end_of_stream()
                return
            if decoded := reader.feed(raw):
                yield decoded
        self._buffer = reader.rest + self._buffer

    async def read_body(self, head: AnswerHead) -> Answer:
        ending: list[BodyReader] = []
        body = b"".join([piece async for piece in self.pieces(head, ending)])
        return Answer(head, body, ending[0].done, ending[0].chunk_sizes)

    async def read_answer(self) -> Answer:
        return await self.read_body(await self.read_head())

    async def read_until_closed(self) -> bytes:
        """Everything that still comes."""
        pieces = []
        while piece := await self.read_some():
            pieces.append(piece)
        return b"".join(pieces)

    def shut_write(self) -> None:
        """Half-close: nothing more will be sent, answers can still come."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Leave with a RST, as a killed process or a NAT that forgot the connection does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


async def connect(
    port: int = 0,
    host: str = "127.0.0.1",
    *,
    path: str | None = None,
    receive_buffer_bytes: int = 0,
    wait_seconds: float = WAIT_SECONDS,
) -> Connection:
    """`path` connects to a Unix socket instead. `receive_buffer_bytes` lets the kernel hold little for a client that stops reading."""
    family = socket.AF_UNIX if path is not None else socket.AF_INET6 if ":" in host else socket.AF_INET
    kernel_socket = socket.socket(family, socket.SOCK_STREAM)
    kernel_socket.setblocking(False)
    if receive_buffer_bytes:
        kernel_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.get_running_loop().sock_connect(kernel_socket, path or (host, port))
    except BaseException:
        kernel_socket.close()
        raise
    return Connection(kernel_socket, wait_seconds)


async def send(
    port: int, raw: bytes, host: str = "127.0.0.1", *, wait_seconds: float = WAIT_SECONDS
) -> Answer:
    """One request on a connection of its own, and its whole answer."""
    async with await connect(port, host, wait_seconds=wait_seconds) as connection:
        sending = asyncio.create_task(connection.send(raw))
        try:
            return await connection.read_answer()
        finally:
            sending.cancel()
            await asyncio.wait([sending])
