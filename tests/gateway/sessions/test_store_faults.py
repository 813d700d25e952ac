"""A real server that freezes, dies, refuses: requests go on within their bound, and nothing is lost or there twice."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
import redis

from gateway.sessions.encryption import Sealing
from gateway.sessions.guarded_store import MAX_CALLS, GuardedStore
from gateway.sessions.redis_store import RedisStore
from gateway.sessions.redis_url import RedisAddress, client
from gateway.sessions.store import (
    SCHEMA_VERSION,
    Append,
    Home,
    Result,
    StoreFault,
    StoreUnavailable,
    Turn,
    session_key,
)
from gateway.sessions.write_behind import WriteBehind
from policies.session_window import WindowRules
from tests.redis_server import TcpServer, tcp_server

KEY = session_key("tenant", "session")
PATIENCE_SECONDS = 30.0
RULES = WindowRules(max_turns=1000, max_tokens=100_000, max_entry_bytes=10_000, max_bytes=1 << 24)


def redis_store(url: str) -> RedisStore:
    return RedisStore(client(RedisAddress(url), 0.3, "", ""), RULES, Sealing([]))


def opened(url: str, max_queued: int = 500) -> tuple[GuardedStore, WriteBehind]:
    clock = asyncio.get_running_loop().time
    guard = GuardedStore(redis_store(url), 0.2, clock, jitter=lambda: 0.5)
    return guard, WriteBehind(guard, max_queued, 1 << 24, clock)


async def closed(guard: GuardedStore, writes: WriteBehind) -> None:
    await writes.close()
    await guard.close()


async def until_open(guard: GuardedStore) -> list[StoreFault]:
    """What its reads said until then."""
    faults = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not guard.is_open:
            try:
                await guard.window(KEY)
            except StoreUnavailable as fault:
                faults.append(fault.reason)
    return faults


def turn(number: int) -> Append:
    return Append(KEY, Turn(f"t{number}", b'{"role":"user","content":"x"}', 1), 300.0)


async def kept(server: TcpServer) -> list[str]:
    """Read past the guard, whose bound a slow machine may miss."""
    store = redis_store(server.url)
    window = await store.window(KEY)
    await store.close()
    return [one.id for one in window.turns]


def command(server: TcpServer, *words: str) -> None:
    with redis.Redis(host="127.0.0.1", port=server.port) as connection:
        connection.execute_command(*words)


async def test_a_frozen_server_is_left_alone_and_has_every_append_once_when_it_is_back() -> None:
    with tcp_server() as server:
        guard, writes = opened(server.url)
        futures = [writes.append(turn(0))]
        await futures[0]
        server.freeze()
        futures += [writes.append(turn(number)) for number in range(1, 100)]
        writes.put_home(KEY, Home("a", 7), 300.0)
        faults = await until_open(guard)
        assert set(faults) <= {StoreFault.TIMEOUT, StoreFault.CONNECTION}
        with pytest.raises(StoreUnavailable) as caught:
            await guard.window(KEY)
        assert caught.value.reason is StoreFault.OPEN
        futures += [writes.append(turn(number)) for number in range(100, 300)]
        for number in range(1000):
            writes.put_home(f"{number:032x}", Home("a"), 300.0)
        assert writes.queued == 500
        server.thaw()
        assert await guard.wait_closed(PATIENCE_SECONDS)
        assert await writes.flush(PATIENCE_SECONDS) == 0
        results = [(await one).result for one in futures]
        assert set(results) <= {Result.APPENDED, Result.DUPLICATE}
        assert await kept(server) == [f"t{number}" for number in range(300)]
        await closed(guard, writes)


@pytest.mark.parametrize("is_frozen_first", [False, True])
async def test_a_server_that_was_killed_and_is_back_on_its_port_is_found(is_frozen_first: bool) -> None:
    with tcp_server() as server:
        guard, writes = opened(server.url)
        await writes.append(turn(0))
        if is_frozen_first:
            server.freeze()
        server.kill()
        future = writes.append(turn(1))
        await until_open(guard)
        server.start_again()
        assert await guard.wait_closed(PATIENCE_SECONDS)
        assert (await future).result is Result.APPENDED
        assert await kept(server) == ["t1"]  # it kept nothing on a disk
        await closed(guard, writes)


@asynccontextmanager
async def relayed(port: int) -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """The port of a relay to a server, and its ends of the connections that were made to it."""
    ends: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        ends.append(writer)
        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer))

    relay = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield relay.sockets[0].getsockname()[1], ends
    finally:
        relay.close()


def reset(ends: list[asyncio.StreamWriter]) -> None:
    """Without a word to the other side."""
    for end in ends:
        linger = struct.pack("ii", 1, 0)
        end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        end.transport.abort()
    ends.clear()


async def test_connections_that_were_reset_while_nobody_asked_fail_no_call() -> None:
    with tcp_server() as server:
        async with relayed(server.port) as (port, ends):
            guard, writes = opened(f"redis://127.0.0.1:{port}")
            await asyncio.gather(*[guard.ping() for _ in range(MAX_CALLS)])
            reset(ends)
            await asyncio.gather(*[guard.window(KEY) for _ in range(MAX_CALLS)])
            reset(ends)
            await writes.append(turn(0))
            assert await kept(server) == ["t0"] and not guard.is_open
            await closed(guard, writes)


async def test_an_answer_that_nobody_asked_for_is_nobodys() -> None:
    stray = orjson.dumps([SCHEMA_VERSION, *Home("of another", 7)])
    with tcp_server() as server:
        async with relayed(server.port) as (port, ends):
            guard, writes = opened(f"redis://127.0.0.1:{port}")
            await guard.ping()
            [end] = ends
            end.write(b"$%d\r\n%b\r\n" % (len(stray), stray))
            await end.drain()
            for _ in range(20):  # until it has come: both ends are in this loop
                await asyncio.sleep(0)
            assert await guard.home(KEY) is None
            await closed(guard, writes)


async def test_a_server_that_was_away_while_nobody_asked_is_not_missed() -> None:
    """Not even by those that come much later, all at once, upon every connection that was made before."""
    with tcp_server() as server:
        guard, writes = opened(server.url)
        await asyncio.gather(*[guard.ping() for _ in range(MAX_CALLS)])
        server.kill()
        server.start_again()
        await writes.append(turn(0))
        windows = await asyncio.gather(*[guard.window(KEY) for _ in range(MAX_CALLS)])
        assert [len(window.turns) for window in windows] == [1] * MAX_CALLS
        await closed(guard, writes)


async def test_an_answer_that_came_while_this_process_was_busy_is_read() -> None:
    """Busy for longer than any bound: with all of them the loop looks at its timers first."""
    with tcp_server() as server:
        guard, writes = opened(server.url)
        await asyncio.gather(*[guard.ping() for _ in range(4)])
        server.freeze()
        calls = [asyncio.create_task(guard.window(KEY)) for _ in range(4)]
        for _ in range(20):  # until they have been sent
            await asyncio.sleep(0)
        server.thaw()
        time.sleep(0.4)  # noqa: ASYNC251  # no answer is waited for
        await asyncio.gather(*calls)
        assert not guard.is_open
        await closed(guard, writes)


def the_password(url: str) -> str:
    return url.replace("redis://", "redis://:wrong@")


def none(url: str) -> str:
    return url


@pytest.mark.parametrize("given", [the_password, none])
async def test_a_refused_password_is_said_and_not_tried_at_every_request(given: Callable[[str], str]) -> None:
    with tcp_server("--requirepass", "right") as server:
        guard, writes = opened(given(server.url))
        assert set(await until_open(guard)) == {StoreFault.REFUSED}
        future = writes.append(turn(0))
        await writes.close()
        with pytest.raises(StoreUnavailable):
            await future
        await guard.close()


async def test_a_server_that_is_read_only_holds_writes_back_until_it_is_not() -> None:
    with tcp_server() as server:
        guard, writes = opened(server.url)
        await writes.append(turn(0))
        command(server, "REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable) as caught:
            await guard.append([turn(1)])
        assert caught.value.reason is StoreFault.READ_ONLY
        future = writes.append(turn(1))
        assert await writes.flush(0.1) == 1 and not future.done()
        command(server, "REPLICAOF", "NO", "ONE")
        assert (await future).result is Result.APPENDED
        assert await kept(server) == ["t0", "t1"]
        await closed(guard, writes)
