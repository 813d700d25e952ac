"""The client's connection after the change to WebSocket: uvicorn's sans-I/O protocol with the bounds it lacks.

`gateway.front` hands a connection over when it asks for WebSocket and sets no more timers of its own. Adds to uvicorn: an answer to handshakes
that its parser does not take (they would hang open), a limit on how long a closed socket may keep what its client does not read, a
dropped connection for a client that answers no ping, and a shutdown that leaves running sockets to the application.

Constants: `CLOSE_SECONDS` 10. uvicorn pings every 20 s and waits 20 s for the answer (`ws_ping_interval`, `ws_ping_timeout`).
Limit: while a message waits for the application the client's socket is not read, so its end is seen only after that.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from gateway.errors import error_body

CLOSE_SECONDS = 10.0


class WebSocketFront(WebSocketsSansIOProtocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._end_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() and not self.handshake_initiated:
            return  # refused already
        super().data_received(data)
        if (
            self.conn.handshake_exc is not None
            and not self.handshake_initiated
            and not self.transport.is_closing()
        ):
            self.handle_handshake_exception()

    def handle_handshake_exception(self) -> None:
        """Lines and fields that llhttp takes may still be too long or too many for websockets. uvicorn asks for this itself from 0.55 on."""
        what = f"This is not a WebSocket handshake: {self.conn.handshake_exc}"
        body = error_body(what, "invalid_request_error", 400)
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % len(body) + body)
        self.transport.close()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            # close() waits for ever for a client that leaves its last bytes unread.
            self._end_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        """A close frame, as uvicorn sends here, would have to wait behind what the client does not take."""
        self.pong_timer = None
        self.transport.abort()

    def shutdown(self) -> None:
        """Nothing: the application ends its sockets with 1012 when their time to drain is over."""
