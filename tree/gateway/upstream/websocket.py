"""A WebSocket to an engine: opened at the backend's endpoint, closed within a bound.

The connection is the `websockets` library's; endpoint, TLS, Unix socket and name resolution are those of every other connection. Messages
are not compressed on this hop. Bounds: `connect_seconds` to connect, `HANDSHAKE_SECONDS` for the answer to the handshake (less if
`first_byte_seconds` is less), `MAX_FRAMES_BEHIND` frames of at most `max_message_bytes` read ahead, `CLOSE_SECONDS` for the goodbye.
An engine that leaves a ping unanswered for `gap_seconds` counts as gone.

`dial` raises `UpstreamFailure`, or `HandshakeRefused` with the HTTP answer that the engine gave instead.
Limit: a socket is not one of the pool's connections; whoever dials looks at the bound on both.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from gateway.settings import TimeoutSettings
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.failures import FirstByteTimeout, ResponseBroken

HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 1.0
MAX_FRAMES_BEHIND = 8
_PING_SECONDS = 20.0


class HandshakeRefused(Exception):
    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


async def dial(
    endpoint: Endpoint,
    target: str,
    headers: Sequence[tuple[str, str]],
    subprotocols: Sequence[str],
    max_message_bytes: int,
    timeouts: TimeoutSettings,
) -> ClientConnection:
    """An open socket, which the caller ends with `hang_up`. `headers` beside those of the handshake itself."""
    path, _, query = target.partition("?")
    uri = WebSocketURI(endpoint.is_tls, endpoint.host, endpoint.port, path, query, None, None)

    def make() -> ClientConnection:
        protocol = ClientProtocol(
            uri,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            max_size=max_message_bytes,
        )
        return ClientConnection(
            protocol,
            ping_interval=_PING_SECONDS,
            ping_timeout=timeouts.gap_seconds,
            close_timeout=CLOSE_SECONDS,
            max_queue=MAX_FRAMES_BEHIND,
        )

    connection = await endpoint.connect(make, timeouts.connect_seconds)
    seconds = min(HANDSHAKE_SECONDS, timeouts.first_byte_seconds)
    try:
        async with asyncio.timeout(seconds):
            await connection.handshake(headers, None)
    except BaseException as error:
        connection.transport.abort()
        if isinstance(error, InvalidStatus):
            raise _refused(error) from None
        if isinstance(error, TimeoutError):
            raise FirstByteTimeout(
                f"{endpoint.name} did not answer the handshake within {seconds:g} s"
            ) from None
        if isinstance(error, (WebSocketException, EOFError, OSError)):
            raise ResponseBroken(f"{endpoint.name}: {error}") from error
        raise
    connection.start_keepalive()
    return connection


async def hang_up(connection: ClientConnection, code: int, reason: str) -> None:
    """Say goodbye if the socket is open, and have it closed in any case, also when cancelled."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS), asyncio.TaskGroup() as both:
            both.create_task(_drop_the_rest(connection))
            await connection.close(code, reason)
    except TimeoutError:
        pass
    finally:
        connection.transport.abort()
    await connection.wait_closed()


async def _drop_the_rest(connection: ClientConnection) -> None:
    """The engine's own goodbye waits behind the messages that nobody takes any more."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            await connection.recv()


def raw_headers(response: Response) -> list[tuple[bytes, bytes]]:
    """With lower-case names, as ASGI has them."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in response.headers.raw_items()
    ]


def _refused(error: InvalidStatus) -> HandshakeRefused:
    response = error.response
    return HandshakeRefused(response.status_code, raw_headers(response), bytes(response.body or b""))
