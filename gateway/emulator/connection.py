"""One client connection: HTTP/1.1 on httptools and an asyncio protocol, no task, no stream object.

Requests of one connection are answered in their order; those that come early wait here, `MAX_PIPELINED` at
most. Reading goes on while an answer is made, because the end of the input is how a client's leaving is
noticed: a close, a reset and a half-close alike abort the request at once, as vLLM does. Nothing slows the
engine for a slow reader: what it does not read is kept for it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import httptools

from gateway.emulator.answer import Answer
from gateway.emulator.errors import RefusedError

if TYPE_CHECKING:
    from gateway.emulator.server import EmulatedServer

MAX_PIPELINED = 64
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    413: b"Content Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_HEAD = b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\ncontent-type: %b\r\n%b\r\n"
_BARE_HEAD = b"HTTP/1.1 %d %b\r\n%bcontent-length: 0\r\n%b\r\n"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\n%bcontent-type: text/event-stream; charset=utf-8\r\n%btransfer-encoding: chunked\r\n\r\n"


@dataclass(slots=True)
class Request:
    """`headers` by lower-case name, the last of equal ones; `path` is without its query."""

    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool


class Connection(asyncio.Protocol):
    """Implements `Sink` for the answer in the making."""

    __slots__ = (
        *(
            "_body",
            "_body_bytes",
            "_busy",
            "_closing",
            "_extra",
            "_headers",
            "_keep_alive",
            "_parser",
            "_pending",
        ),
        *("_server", "_target", "_transport", "answer"),
    )

    _transport: asyncio.Transport

    def __init__(self, server: EmulatedServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Request] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._target = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._busy = False
        self._keep_alive = True
        self._closing = False
        self._extra = b""
        self.answer: Answer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._pending.clear()
        self._abandon()
        self._server.closed(self)

    def eof_received(self) -> bool:
        # A half-close counts as leaving; returning False lets the transport close itself.
        self._closing = True
        self._abandon()
        return False

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._transport.close()
        except httptools.HttpParserError:
            self._refuse(400, b"Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        self._headers = {}
        self._target = b""
        self._body = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._server.active(self)
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and not self._busy:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= self._server.settings.max_body_bytes:
            self._body.append(body)
        else:
            self._refuse(413, b"Content Too Large")

    def on_message_complete(self) -> None:
        if self._closing:
            return
        parser = self._parser
        path, _, _ = self._target.partition(b"?")
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        request = Request(parser.get_method(), path, self._headers, body, parser.should_keep_alive())
        if not self._busy:
            self._handle(request)
        elif len(self._pending) < MAX_PIPELINED:
            self._pending.append(request)
        else:
            self._transport.abort()

    def _refuse(self, status: int, text: bytes) -> None:
        """Answer what is no request and close; a connection whose answer is under way can only be closed."""
        if self._busy:
            self._transport.abort()
        elif not self._closing:
            self._keep_alive = False
            self.respond(status, text, b"text/plain; charset=utf-8")

    def _handle(self, request: Request) -> None:
        self._busy = True
        self._keep_alive = request.keep_alive
        try:
            self._server.handle(request, self)
        except RefusedError as error:
            self._extra = b"allow: %b\r\n" % error.allow.encode() if error.allow else b""
            self.respond(error.status, error.body)

    def respond(
        self, status: int, body: bytes, content_type: bytes = b"application/json", lines: bytes = b""
    ) -> None:
        if self._closing:
            return
        self._transport.write(self._head(status, body, content_type, lines) + body)
        self._finish()

    def begin_stream(self) -> None:
        self._transport.write(_STREAM_HEAD % (self._server.head_lines(), self._persistence()))

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._transport.write(data)

    def end(self) -> None:
        # An error event ends the answer while sequences of it may still run.
        self._abandon()
        if not self._closing:
            self._finish()

    def truncate(self, body: bytes, lines: bytes = b"") -> None:
        self.write(self._head(200, body, b"application/json", lines) + body[: len(body) // 2])

    def cut(self) -> None:
        self._closing = True
        self._transport.close()

    def reset(self) -> None:
        self._closing = True
        kernel_socket = self._transport.get_extra_info("socket")
        if kernel_socket is not None and kernel_socket.family != socket.AF_UNIX:
            # Closing with a linger time of zero makes the kernel send RST instead of FIN.
            kernel_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def close_if_idle(self) -> None:
        if not self._busy:
            self.cut()

    def abort(self) -> None:
        self._transport.abort()

    def _head(self, status: int, body: bytes, content_type: bytes, lines: bytes) -> bytes:
        extra = self._extra + lines + self._persistence()
        if not body:
            return _BARE_HEAD % (status, _REASONS[status], self._server.head_lines(), extra)
        return _HEAD % (status, _REASONS[status], self._server.head_lines(), len(body), content_type, extra)

    def _persistence(self) -> bytes:
        return b"" if self._keep_alive else b"connection: close\r\n"

    def _finish(self) -> None:
        self.answer = None
        self._busy = False
        self._extra = b""
        if not self._keep_alive:
            self._closing = True
            self._transport.close()
        elif self._pending:
            # Marked busy already, so that a request arriving before the callback does not overtake.
            self._busy = True
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._server.idle(self)

    def _next(self) -> None:
        if not self._closing:
            self._handle(self._pending.popleft())

    def _abandon(self) -> None:
        answer, self.answer = self.answer, None
        if answer is not None:
            self._server.engine.abort(answer.sequences)
