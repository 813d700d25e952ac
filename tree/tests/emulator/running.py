"""Emulated engines for one test each, and the two sorts of exchange the tests have with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from gateway.emulator.server import EmulatedServer, start
from gateway.emulator.settings import EngineSettings
from tests import client

JSON = (b"Content-Type", b"application/json")
INSTANT = EngineSettings(time_scale=0)
CHAT = "/v1/chat/completions"


@asynccontextmanager
async def engine(settings: EngineSettings = INSTANT) -> AsyncIterator[EmulatedServer]:
    server = await start(settings, "127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.close()


def chat_body(text: str = "hello", **fields: object) -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": text}], **fields})


def chat_request(
    text: str = "hello", headers: tuple[tuple[bytes, bytes], ...] = (), **fields: object
) -> bytes:
    return client.request("POST", CHAT, [JSON, *headers], chat_body(text, **fields))


async def chat(server: EmulatedServer, text: str = "hello", **fields: object) -> client.Answer:
    return await client.send(server.port, client.request("POST", CHAT, [JSON], chat_body(text, **fields)))


async def post(server: EmulatedServer, path: str, body: object) -> client.Answer:
    return await client.send(server.port, client.request("POST", path, [JSON], orjson.dumps(body)))


async def get(server: EmulatedServer, path: str) -> client.Answer:
    return await client.send(server.port, client.request("GET", path))


def decoded(answer: client.Answer) -> Any:
    return orjson.loads(answer.body)


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the loop until the condition holds; a test's own time limit bounds it."""
    async with asyncio.timeout(client.WAIT_SECONDS):
        # The condition may hang on any socket or timer of the loop, so there is no one event to wait for.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def nothing_came(connection: client.Connection) -> bool:
    """Whether the connection is open and has nothing to read."""
    try:
        connection.socket.recv(1)
    except BlockingIOError:
        return True
    return False
