"""How an answer reaches the client: uvicorn's request-response cycle with a leaner `send`.

uvicorn checks every header name and value with two regular expressions and joins the framing of each part anew; here headers come from an
engine's answer that llhttp has parsed strictly, or from this gateway, so neither can hold a line end. Measured: a fifth of the CPU of a
request, a quarter of a streamed chunk's. The order of ASGI messages is the caller's duty; framing, `HEAD`, 204/304, keep-alive and
`Content-Length` are handled as uvicorn does, but that a client of HTTP/1.0 gets no chunks: its answer ends with the connection.

One key beyond ASGI: `body_follows` in `http.response.start` says that the body's first part is sent at once, so that head and body leave in
one write; other servers ignore it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.headers import header_lines

_BODILESS = (204, 304)
_CLOSE = (b"connection", b"close")


class Answer(RequestResponseCycle):
    """What most requests leave at its start is the class's: one is made for each request."""

    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding = None
    expected_content_length = 0
    task: asyncio.Task[None] | None = None
    _held_head = b""
    _until_close = False
    _bodiless = False

    def __init__(self, front: HttpToolsProtocol, message_event: asyncio.Event, keep_alive: bool) -> None:
        self.scope = front.scope
        self.transport = front.transport
        self.flow = front.flow
        self.logger = front.logger
        self.message_event = message_event
        self.waiting_for_100_continue = front.expect_100_continue
        self.keep_alive = keep_alive
        self.on_response = front.on_response_complete
        self.body = bytearray()

    async def run(self, app: Any, tasks: set[asyncio.Task[None]]) -> None:
        """`run_asgi`, and out of `tasks` at its end: a done callback would cost the loop another turn."""
        try:
            await self.run_asgi(app)
        finally:
            if self.task is not None:
                tasks.discard(self.task)

    def whole_body(self) -> bytes | None:
        """The request's body if all of it is here, as it nearly always is by the time that the application asks; else None."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue:
            return None
        body, self.body = bytes(self.body), bytearray()
        return body

    async def send(self, message: Any) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.body":
            self._send_body(message.get("body", b""), message.get("more_body", False))
        else:
            self._send_head(message["status"], message["headers"], message.get("body_follows", False))

    def _send_head(self, status: int, headers: list[tuple[bytes, bytes]], body_follows: bool) -> None:
        assert not self.response_started, "an answer has one head"
        self.response_started = True
        self.waiting_for_100_continue = False
        chunked = True
        if self.scope["method"] == "HEAD" or status in _BODILESS:
            self._bodiless = True  # whatever length its head announces: that of the body it stands for
            chunked = False
        named = dict(headers)
        length = named.get(b"content-length")
        if length is not None:
            chunked = False
            self.expected_content_length = int(length)
        if b"connection" in named and _CLOSE in headers:
            self.keep_alive = False
            headers = [pair for pair in headers if pair != _CLOSE]
        self._until_close = chunked and self.scope["http_version"] == "1.0"
        head = b"%b%b%b%b\r\n" % (
            STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status,
            header_lines(headers),
            b"" if self.keep_alive else b"connection: close\r\n",
            b"transfer-encoding: chunked\r\n" if chunked and not self._until_close else b"",
        )
        self.chunked_encoding = chunked
        if body_follows:
            self._held_head = head
        else:
            self.transport.write(head)

    def _send_body(self, body: bytes, more_body: bool) -> None:
        assert self.response_started and not self.response_complete, (
            "a body comes after its head and ends once"
        )
        head = self._held_head
        if head:
            self._held_head = b""
        if self.chunked_encoding:
            data = head + self._chunk(body, more_body)
        elif self._bodiless:
            data = head
        else:
            data = head + body if head else body
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (self.expected_content_length and not more_body):
                raise RuntimeError("the answer's length is not its Content-Length")
        if data:
            self.transport.write(data)
        if more_body:
            return
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def write_answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """A whole answer in one write, without awaiting. False: nothing was written, an earlier answer waits to be read."""
        if self.flow.write_paused:
            return False
        if not self.disconnected:
            self._send_head(status, headers, body_follows=True)
            self._send_body(body, more_body=False)
        return True

    def write_part(self, data: bytes) -> bool:
        """One more part of the body, without awaiting. False: it was taken, but the client is behind; `send` waits for it."""
        if self.disconnected:
            return True  # the request is being cancelled
        self.transport.write(data if self._until_close else b"%x\r\n%b\r\n" % (len(data), data))
        return not self.flow.write_paused

    def _chunk(self, body: bytes, more_body: bool) -> bytes:
        if self._until_close:
            return body
        if more_body:
            return b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
