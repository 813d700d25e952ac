"""The hand-over of a connection from HTTP to WebSocket, and the bounds that hold after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.app import Gateway
from gateway.front import FrontProtocol
from gateway.settings import ServerSettings
from gateway.websocket_front import WebSocketFront
from tests.gateway.realtime_stage import (
    HANDSHAKE,
    WAIT_SECONDS,
    Engine,
    Stage,
    opened,
    played,
    settings_for,
    until,
)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Echoes WebSocket messages; an HTTP request is answered only in part, and then waits for its end."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


@contextlib.asynccontextmanager
async def front_of(app: Any, settings: ServerSettings, **options: Any) -> AsyncIterator[int]:
    config = Config(app, interface="asgi3", lifespan="off", log_config=None, ws=WebSocketFront, **options)
    config.load()
    loop = asyncio.get_running_loop()
    state = ServerState()
    server = await loop.create_server(
        lambda: FrontProtocol(config, state, settings, lambda: False, loop), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=WAIT_SECONDS)


async def test_no_timer_of_http_ends_a_websocket() -> None:
    settings = ServerSettings(
        header_seconds=0.01, keep_alive_seconds=0.01, body_gap_seconds=0.01, stall_seconds=0.01
    )
    loop = asyncio.get_running_loop()
    async with (
        front_of(echo, settings) as port,
        connect(f"ws://127.0.0.1:{port}/", proxy=None, close_timeout=1) as client,
    ):
        until = loop.time() + 0.1
        while loop.time() < until:
            await client.send("still there")
            assert await client.recv() == "still there"


async def test_an_upgrade_behind_a_request_that_is_being_answered_ends_the_connection() -> None:
    async with front_of(echo, ServerSettings()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        await reader.readuntil(b"begun")
        writer.write(HANDSHAKE)
        async with asyncio.timeout(WAIT_SECONDS):
            with contextlib.suppress(ConnectionError):
                assert b"101" not in await reader.read()
        writer.close()


async def test_a_websocket_follows_an_answered_request_on_the_same_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await echo(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with front_of(app, ServerSettings()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        await reader.readuntil(b"ok")
        writer.write(HANDSHAKE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.close()


@pytest.mark.parametrize("extra", [b"x: %b\r\n" % (b"y" * 9000), b"x: y\r\n" * 200])
async def test_a_handshake_that_only_http_would_take_is_answered_400(extra: bytes) -> None:
    async with played() as (engine, stage):
        reader, _ = await stage.begin(HANDSHAKE.replace(b"\r\n\r\n", b"\r\n" + extra + b"\r\n"))
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"type":"invalid_request_error"' in answer
        assert engine.handshakes == []


async def test_a_client_that_answers_no_ping_is_dropped() -> None:
    async with front_of(echo, ServerSettings(), ws_ping_interval=0.02, ws_ping_timeout=0.02) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        async with asyncio.timeout(WAIT_SECONDS):
            with contextlib.suppress(ConnectionError):
                await reader.read()
        writer.close()


async def test_a_drain_leaves_running_sockets_to_the_application() -> None:
    async with opened() as (client, engine, stage):
        _shut_down(stage)
        await client.send("still there")
        assert await engine.recv() == "still there"


def _shut_down(stage: Stage) -> None:
    """What the server does when it begins to drain."""
    for connection in list(stage.state.connections):
        connection.shutdown()


async def test_the_whole_gateway_serves_websockets_beside_http_and_ends_them_at_shutdown() -> None:
    async with Engine() as engine:
        gateway = Gateway(settings_for(engine), lambda _: None)
        async with (
            front_of(gateway, gateway.settings.server) as port,
            connect(f"ws://127.0.0.1:{port}/v1/realtime?model=m", proxy=None, close_timeout=1) as client,
        ):
            await client.send("hello")
            assert await (await engine.socket()).recv() == "hello"
            assert gateway.requests_in_flight == 1
            gateway.interrupt_all()
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            await until(lambda: gateway.requests_in_flight == 0)
            await until(lambda: b'route="realtime"' in gateway.telemetry.page())
        await gateway.close()
