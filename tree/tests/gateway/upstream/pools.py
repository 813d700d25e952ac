"""A connection pool in front of `tests.backend` (or of any URL), and the shortest ways to ask through it.

`pool_to` holds the pool to its promise when the block ends: nothing is busy, nothing is idle once it is closed, and the backend has
no connection open any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from gateway.upstream.client import Exchange
from gateway.upstream.connection import Connection
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.failures import UpstreamFailure
from gateway.upstream.pool import ConnectionPool
from tests.backend import WAIT_SECONDS, Backend, Ending, Framing, Gate, Request, Script

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n"
BIG_BODY = b"u" * 16_000_000
"""More than the kernel takes from a sender whose peer does not read."""


def post_head(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)


@asynccontextmanager
async def pool_to(
    backend: Backend | str,
    *,
    timeouts: TimeoutSettings | None = None,
    ca_file: str = "",
    max_connections: int = 100,
    max_idle_connections: int = 100,
    idle_seconds: float = 60,
    resolve_seconds: float = 30,
) -> AsyncIterator[ConnectionPool]:
    url = backend if isinstance(backend, str) else backend.url
    settings = UpstreamSettings(
        max_connections=max_connections,
        max_idle_connections=max_idle_connections,
        idle_seconds=idle_seconds,
        resolve_seconds=resolve_seconds,
    )
    endpoint = Endpoint(BackendSettings(url=url, ca_file=ca_file), resolve_seconds)
    pool = ConnectionPool(endpoint, settings, timeouts or TimeoutSettings())
    try:
        yield pool
        assert pool.busy == 0
    finally:
        pool.close()
    assert (pool.busy, pool.idle) == (0, 0)
    if isinstance(backend, Backend):
        await backend.until(lambda: not backend.connections)


async def read_all(answer: Connection) -> bytes:
    parts = []
    while data := await answer.read():
        parts.append(data)
    return b"".join(parts)


async def fetch(
    pool: ConnectionPool, head: bytes = GET, body: bytes = b"", body_expected: bool = True
) -> tuple[int, bytes]:
    async with Exchange(pool, head, body, body_expected) as answer:
        return answer.status, await read_all(answer)


async def failure_of(asking: Coroutine[Any, Any, object]) -> UpstreamFailure:
    try:
        result = await asking
    except UpstreamFailure as failure:
        return failure
    raise AssertionError(f"no failure, but {result!r}")


async def until(condition: Callable[[], bool]) -> None:
    """For what has no event to wait for: looked at once per turn of the loop."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0)


async def quiet(value: Callable[[], object], turns: int = 200) -> None:
    """Until `value` has stayed the same for so many turns of the loop."""
    async with asyncio.timeout(WAIT_SECONDS):
        last, since = value(), 0
        while since < turns:
            await asyncio.sleep(0)
            now = value()
            last, since = now, since + 1 if now == last else 0


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def raw(*chunks: bytes | Gate, ending: Ending = Ending.CLEAN) -> Callable[[Request], Script]:
    """Exactly these bytes, whatever was asked."""
    return lambda _: Script(chunks=chunks, framing=Framing.RAW, ending=ending)


def in_turn(*scripts: Callable[[Request], Script]) -> Callable[[Request], Script]:
    """The first request's script, the second's and so on; the last one serves the rest."""
    left = list(scripts)
    return lambda request: (left.pop(0) if len(left) > 1 else left[0])(request)


def plain(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
