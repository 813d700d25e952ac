"""Drives an ASGI callable without a server: what it sends is seen message by message, and the client's side is scripted.

`async with Call(app, "POST", "/v1/x", body=b"..") as call` starts the application in a task. `await call.message()` is the next
message that it sends; `call.disconnect()` makes `receive` report that the client has left; `call.open_to_send.clear()` lets
`send` wait, as a server does while a client does not read. `await call.result()` waits for the application to return and raises
what it raised. An application that is still running when the block ends is cancelled.

Like a real server, `send` after a disconnect is accepted and goes nowhere (`call.sent_after_disconnect` counts it), and `receive`
after the body's end waits for the disconnect.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from types import TracebackType
from typing import Any

WAIT_SECONDS = 20

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def http_scope(
    method: str, target: str, headers: Sequence[tuple[bytes, bytes]] = (), **extra: Any
) -> dict[str, Any]:
    path, _, query = target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), *headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }
    return scope | extra


class Call:
    """One request. `body` is None when the test feeds it by `feed`; `extra` overrides keys of the scope."""

    def __init__(
        self,
        app: Application,
        method: str = "GET",
        target: str = "/",
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes | None = b"",
        **extra: Any,
    ) -> None:
        self.scope = http_scope(method, target, headers, **extra)
        self.sent: list[Message] = []
        self.sent_after_disconnect = 0
        self.open_to_send = asyncio.Event()
        self.open_to_send.set()
        self.sending = asyncio.Event()
        """Set while a `send` waits for `open_to_send`."""
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None]
        if body is not None:
            self.feed(body, more=False)

    def feed(self, body: bytes, *, more: bool = True) -> None:
        self._to_app.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def disconnect(self) -> None:
        self._gone.set()
        self._to_app.put_nowait({"type": "http.disconnect"})

    async def message(self) -> Message:
        """The next message of the application; `EOFError` once it has returned without another."""
        async with asyncio.timeout(WAIT_SECONDS):
            message = await self._from_app.get()
        if message is None:
            self._from_app.put_nowait(None)
            raise EOFError("the application has returned")
        return message

    async def start(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Status and headers of the answer, which must be the next message."""
        message = await self.message()
        assert message["type"] == "http.response.start", message
        return message["status"], list(message["headers"])

    async def body(self) -> bytes:
        """All body bytes from here to the answer's end."""
        pieces = []
        while True:
            message = await self.message()
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def result(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.shield(self._task)

    def cancel(self) -> None:
        """What a server does to the application on a hard stop."""
        self._task.cancel()

    @property
    def running(self) -> bool:
        return not self._task.done()

    async def __aenter__(self) -> Call:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    async def _run(self) -> None:
        try:
            await self._app(self.scope, self._receive, self._send)
        finally:
            self._from_app.put_nowait(None)

    async def _receive(self) -> Message:
        message = await self._to_app.get()
        if message["type"] == "http.disconnect":
            # A server says so as often as it is asked.
            self._to_app.put_nowait(message)
        return message

    async def _send(self, message: Message) -> None:
        if self._gone.is_set():
            self.sent_after_disconnect += 1
            return
        if not self.open_to_send.is_set():
            self.sending.set()
            waits = [asyncio.create_task(event.wait()) for event in (self.open_to_send, self._gone)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            self.sending.clear()
        self.sent.append(message)
        self._from_app.put_nowait(message)
