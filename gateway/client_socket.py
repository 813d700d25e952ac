"""The client's side of one WebSocket: what its handshake brought, and what may be said to it now.

A refusal before `accept` is an HTTP answer (ASGI extension `websocket.http.response`; without it the server answers 403). `say` waits for
a client that does not read for `server.stall_seconds`, then raises `ClientClosed`, as `receive` does when the client leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection

from gateway.body import Receive
from gateway.client_cause import Cause
from gateway.errors import Headers
from gateway.relay import Send
from gateway.settings import Settings

NORMAL, GOING_AWAY = 1000, 1001
_NO_CODE = 1005
_NOT_SENT = (1004, _NO_CODE, 1006)


class ClientClosed(Exception):
    """`cause` is empty where the client said goodbye."""

    def __init__(self, cause: Cause | None) -> None:
        super().__init__(cause)
        self.cause = cause


class ClientSocket:
    """The client's socket: what came with its handshake, and what may be said to it now."""

    def __init__(self, scope: Any, receive: Receive, send: Send, settings: Settings) -> None:
        self.headers: Headers = list(scope["headers"])
        self.subprotocols = [name for name in scope.get("subprotocols", ()) if name]
        self.settings = settings
        self.accepted = False
        self.engine: ClientConnection | None = None
        """Set when messages may be passed on."""
        self.goodbye = (GOING_AWAY, "")
        """What the engine is told at the end."""
        self._receive = receive
        self._send = send
        self._may_answer = "websocket.http.response" in (scope.get("extensions") or {})

    async def next(self) -> str | bytes:
        """The client's next message; `ClientClosed` when it has left."""
        while (message := await self._receive())["type"] != "websocket.receive":
            if message["type"] == "websocket.disconnect":
                raise self._closed(message.get("code") or _NO_CODE, message.get("reason"))
        data: str | bytes | None = message.get("bytes")
        text: str = message.get("text") or ""
        return text if data is None else data

    async def accept(self, subprotocol: str | None, headers: Headers) -> None:
        await self.say({"type": "websocket.accept", "subprotocol": subprotocol, "headers": headers})
        self.accepted = True

    async def say(self, message: Mapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(self.settings.server.stall_seconds):
                await self._send(message)
        except TimeoutError:
            raise ClientClosed(Cause.CLIENT_STALLED) from None
        except (OSError, RuntimeError):
            # The server has closed this socket already; `receive` is about to tell why, which ends this wait.
            await asyncio.get_running_loop().create_future()

    async def close(self, code: int, reason: str) -> None:
        await self._last({"type": "websocket.close", "code": code, "reason": reason})

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        """Refuse the handshake over HTTP."""
        if not self._may_answer:
            await self.close(NORMAL, "")
            return
        await self._last({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await self._last({"type": "websocket.http.response.body", "body": body, "more_body": False})

    def _closed(self, code: int, reason: str | None) -> ClientClosed:
        # A close frame comes with its reason, be it empty; a lost connection without, under the same code as a frame without one.
        vanished = code in _NOT_SENT and reason is None
        self.goodbye = (GOING_AWAY if vanished else sendable(code), reason or "")
        return ClientClosed(Cause.CLIENT_LEFT if vanished else None)

    async def _last(self, message: Mapping[str, Any]) -> None:
        """A client that is gone by now, or does not read, misses it."""
        with contextlib.suppress(OSError, RuntimeError):  # TimeoutError is an OSError
            async with asyncio.timeout(self.settings.server.stall_seconds):
                await self._send(message)


def sendable(code: int) -> int:
    """1005 stands for a close frame without a code, which neither side's library sends; 1000 says the same."""
    if code == _NO_CODE:
        return NORMAL
    allowed = 3000 <= code < 5000 or (1000 <= code <= 1014 and code not in _NOT_SENT)
    return code if allowed else GOING_AWAY
