"""Each limit on an engine's time by itself, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.settings import TimeoutSettings
from gateway.upstream.client import Exchange
from gateway.upstream.connection import Connection
from gateway.upstream.failures import (
    ConnectTimeout,
    FirstByteTimeout,
    GapTimeout,
    TotalTimeout,
    UpstreamFailure,
)
from gateway.upstream.pool import ConnectionPool
from tests.backend import Backend, Ending, Framing, Gate, Request, Script
from tests.gateway.upstream.loops import shifted
from tests.gateway.upstream.pools import (
    BIG_BODY,
    CHUNKED,
    GET,
    failure_of,
    fetch,
    plain,
    pool_to,
    post_head,
    quiet,
    raw,
    until,
)
from tests.gateway.upstream.test_connecting import deaf_listener

FAR = TimeoutSettings(connect_seconds=60, first_byte_seconds=1000, gap_seconds=1000, total_seconds=1000)


@asynccontextmanager
async def asked(
    script: Callable[[Request], Script], timeouts: TimeoutSettings
) -> AsyncIterator[tuple[Backend, ConnectionPool, asyncio.Task[tuple[int, bytes]]]]:
    """One request under way; the block has to see how it ends."""
    async with Backend(script) as backend, pool_to(backend, timeouts=timeouts) as pool:
        task = asyncio.create_task(fetch(pool))
        await (await backend.exchange()).body_complete.wait()
        yield backend, pool, task
        assert task.done()
        await (await backend.exchange()).peer_closed.wait()


async def failed(task: asyncio.Task[tuple[int, bytes]]) -> UpstreamFailure:
    return await failure_of(_of(task))


async def _of(task: asyncio.Task[tuple[int, bytes]]) -> object:
    return await task


async def test_a_silent_engine_is_given_up_after_first_byte_seconds() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=10, gap_seconds=1, total_seconds=100)
    async with asked(lambda _: Script(before_head=Gate()), timeouts) as (_, _, task):
        for _ in range(9):
            await shifted().advance(1)
        assert not task.done()
        await shifted().advance(1.1)
        assert isinstance(await failed(task), FirstByteTimeout)


@pytest.mark.parametrize("part", [b"H", CHUNKED, CHUNKED + b"8\r\n"])
async def test_a_head_without_data_is_no_first_byte(part: bytes) -> None:
    timeouts = TimeoutSettings(first_byte_seconds=3, gap_seconds=1, total_seconds=100)
    async with asked(raw(part, Gate()), timeouts) as (_, _, task):
        await shifted().advance(2.9)
        assert not task.done()
        await shifted().advance(0.2)
        assert isinstance(await failed(task), FirstByteTimeout)


@pytest.mark.parametrize("first_byte_seconds", [2, 600])
@pytest.mark.parametrize("first_byte_at", [0, 1.5])
async def test_silence_inside_an_answer_ends_it_after_gap_seconds(
    first_byte_seconds: float, first_byte_at: float
) -> None:
    timeouts = TimeoutSettings(first_byte_seconds=first_byte_seconds, gap_seconds=3, total_seconds=3600)
    start, stop = Gate(), Gate()
    script = raw(start, CHUNKED + b"3\r\none\r\n", stop)
    async with Backend(script) as backend, pool_to(backend, timeouts=timeouts) as pool:
        opening = asyncio.create_task(_first_data(pool))
        await (await backend.exchange()).body_complete.wait()
        await shifted().advance(first_byte_at)
        start.set()
        exchange, answer = await opening
        reading = asyncio.create_task(answer.read())
        await shifted().advance(2.9)
        assert not reading.done()
        await shifted().advance(0.2)
        assert isinstance(await failure_of(_read(reading)), GapTimeout)
        await exchange.__aexit__(None, None, None)


async def test_on_a_kept_connection_the_gap_counts_as_well() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=600, gap_seconds=3, total_seconds=3600)
    scripts = [raw(plain(b"x")), raw(CHUNKED + b"3\r\none\r\n", Gate())]
    async with (
        Backend(lambda request: scripts.pop(0)(request)) as backend,
        pool_to(backend, timeouts=timeouts, idle_seconds=5) as pool,
    ):
        await fetch(pool)
        await shifted().advance(1)
        exchange, answer = await _first_data(pool)
        assert backend.accepted == 1
        reading = asyncio.create_task(answer.read())
        await shifted().advance(2.9)
        assert not reading.done()
        await shifted().advance(0.2)
        assert isinstance(await failure_of(_read(reading)), GapTimeout)
        await exchange.__aexit__(None, None, None)


async def _first_data(pool: ConnectionPool) -> tuple[Exchange, Connection]:
    exchange = Exchange(pool, GET, b"", True)
    answer = await exchange.__aenter__()
    assert await answer.read() == b"one"
    return exchange, answer


async def _read(reading: asyncio.Task[bytes]) -> object:
    return await reading


async def test_an_answer_that_keeps_coming_is_bound_by_no_gap() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=3, gap_seconds=3, total_seconds=100)
    gates = [Gate() for _ in range(20)]
    chunks = [part for gate in gates for part in (gate, b"data")]
    script = Script(framing=Framing.CHUNKED, chunks=chunks)
    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend, timeouts=timeouts) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        for gate in gates:
            await shifted().advance(2)
            gate.set()
            assert await answer.read() == b"data"
        assert await answer.read() == b""


async def test_comments_that_only_keep_a_stream_alive_are_no_first_byte_and_no_progress() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=3, gap_seconds=3, total_seconds=100)
    gates = [Gate() for _ in range(10)]
    for first in ([], [b"data: x\n\n"]):
        chunks = [*first, *(part for gate in gates for part in (gate, b": ping\n\n"))]
        script = Script(framing=Framing.CHUNKED, chunks=chunks, ending=Ending.SILENT)
        async with (
            Backend(lambda _, script=script: script) as backend,  # type: ignore[misc]
            pool_to(backend, timeouts=timeouts) as pool,
            Exchange(pool, GET, b"", True) as answer,
        ):
            if first:
                assert await answer.read() == b"data: x\n\n"
            for gate in gates[:2]:
                gate.set()
                assert await answer.read() == b": ping\n\n"
                await shifted().advance(1.4)
            reading = asyncio.create_task(answer.read())
            await shifted().advance(0.3)
            expected = GapTimeout if first else FirstByteTimeout
            assert type(await failure_of(_read(reading))) is expected
        for gate in gates:
            gate.clear()


async def test_the_whole_takes_no_longer_than_total_seconds_however_lively_it_is() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=3, gap_seconds=3, total_seconds=10)
    gates = [Gate() for _ in range(10)]
    chunks = [part for gate in gates for part in (gate, b"data")]
    script = Script(framing=Framing.CHUNKED, chunks=chunks)
    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend, timeouts=timeouts) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        for gate in gates[:4]:
            gate.set()
            assert await answer.read() == b"data"
            await shifted().advance(2.4)
        reading = asyncio.create_task(answer.read())
        await shifted().advance(0.5)
        assert isinstance(await failure_of(_read(reading)), TotalTimeout)


async def test_the_total_ends_the_wait_for_a_first_byte_too() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=100, gap_seconds=100, total_seconds=5)
    async with asked(lambda _: Script(before_head=Gate()), timeouts) as (_, _, task):
        await shifted().advance(4.9)
        assert not task.done()
        await shifted().advance(0.2)
        assert isinstance(await failed(task), TotalTimeout)


async def test_while_the_reader_is_behind_no_gap_runs_and_it_begins_anew_when_the_reader_is_back() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=3, gap_seconds=3, total_seconds=1000)
    script = Script(framing=Framing.CHUNKED, chunks=[b"x" * 40_000, Gate()])
    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend, timeouts=timeouts) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        await (await backend.exchange()).body_complete.wait()
        await quiet(lambda: None)
        for _ in range(10):
            await shifted().advance(10)
        got = b""
        while len(got) < 40_000:
            got += await answer.read()
        reading = asyncio.create_task(answer.read())
        await shifted().advance(2.9)
        assert not reading.done()
        await shifted().advance(0.2)
        assert isinstance(await failure_of(_read(reading)), GapTimeout)


async def test_an_engine_that_stops_taking_the_upload_is_given_up_after_first_byte_seconds() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=3, gap_seconds=1, total_seconds=100)
    stuck = Script(before_head=Gate(), ending=Ending.STOP_READING)
    async with Backend(on_head=lambda _: stuck) as backend, pool_to(backend.url, timeouts=timeouts) as pool:
        task = asyncio.create_task(fetch(pool, post_head(BIG_BODY), BIG_BODY))
        await backend.exchange()
        await shifted().advance(2.9)
        assert not task.done()
        await shifted().advance(0.2)
        assert isinstance(await failed(task), FirstByteTimeout)


async def test_the_wait_for_a_first_byte_begins_with_the_requests_last_byte() -> None:
    timeouts = TimeoutSettings(first_byte_seconds=5, gap_seconds=5, total_seconds=100)
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        pool_to(backend, timeouts=timeouts) as pool,
    ):
        task = asyncio.create_task(fetch(pool, post_head(BIG_BODY), BIG_BODY))
        exchange = await backend.exchange()
        await shifted().advance(4)
        await exchange.body_complete.wait()
        await shifted().advance(4)
        gate.set()
        assert (await task)[0] == 200


async def test_an_idle_connection_is_closed_after_idle_seconds() -> None:
    async with Backend() as backend, pool_to(backend, timeouts=FAR, idle_seconds=4) as pool:
        await fetch(pool)
        await shifted().advance(3.9)
        assert pool.idle == 1
        await fetch(pool)
        await shifted().advance(3.9)
        assert (pool.idle, backend.accepted) == (1, 1)
        await shifted().advance(0.2)
        await until(lambda: pool.idle == 0)
        await backend.until(lambda: not backend.connections)
        await fetch(pool)
        assert backend.accepted == 2


async def test_an_exchange_longer_than_idle_seconds_is_not_idle() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        pool_to(backend, timeouts=FAR, idle_seconds=4) as pool,
    ):
        task = asyncio.create_task(fetch(pool))
        await backend.exchange()
        await shifted().advance(100)
        gate.set()
        assert (await task)[0] == 200
        await shifted().advance(3)
        assert pool.idle == 1


async def test_a_name_service_that_never_answers_ends_in_a_connect_timeout() -> None:
    shifted().names["engine.test"] = asyncio.Event()
    async with pool_to("http://engine.test:1", timeouts=TimeoutSettings(connect_seconds=2)) as pool:
        task = asyncio.create_task(fetch(pool))
        await shifted().advance(0)  # its time runs from its first step
        await shifted().advance(1.9)
        assert (task.done(), pool.busy) == (False, 1)
        await shifted().advance(0.2)
        failure = await failed(task)
        assert isinstance(failure, ConnectTimeout)
        assert "engine.test:1 did not answer within 2 s" in str(failure)


async def test_an_address_that_does_not_answer_leaves_its_share_of_the_time_to_the_next_one() -> None:
    async with Backend(host="127.0.0.3") as backend:
        shifted().names["engine.test"] = ["127.0.0.2", "127.0.0.3"]
        with deaf_listener("127.0.0.2", backend.port):
            timeouts = TimeoutSettings(connect_seconds=60)
            async with pool_to(f"http://engine.test:{backend.port}", timeouts=timeouts) as pool:
                task = asyncio.create_task(fetch(pool))
                await shifted().advance(0)
                await shifted().advance(29.5)
                assert (task.done(), backend.accepted) == (False, 0)
                await shifted().advance(1)
                assert (await task)[0] == 200


async def test_addresses_are_trusted_for_resolve_seconds_and_asked_for_again_then() -> None:
    loop = shifted()
    async with Backend() as old, Backend(host="127.0.0.2", port=old.port) as new:
        loop.names["engine.test"] = ["127.0.0.1"]
        url = f"http://engine.test:{old.port}"
        async with pool_to(url, timeouts=FAR, resolve_seconds=30, max_idle_connections=0) as pool:
            await fetch(pool)
            loop.names["engine.test"] = ["127.0.0.2"]
            await loop.advance(29)
            await fetch(pool)
            assert (old.accepted, new.accepted, loop.asked["engine.test"]) == (2, 0, 1)
            await loop.advance(2)
            await fetch(pool)
            assert (old.accepted, new.accepted, loop.asked["engine.test"]) == (2, 1, 2)


async def test_a_name_service_that_hangs_or_fails_leaves_the_old_addresses_serving() -> None:
    loop = shifted()
    async with Backend() as backend:
        loop.names["engine.test"] = ["127.0.0.1"]
        url = f"http://engine.test:{backend.port}"
        timeouts = TimeoutSettings(connect_seconds=4)
        async with pool_to(url, timeouts=timeouts, resolve_seconds=30, max_idle_connections=0) as pool:
            await fetch(pool)
            loop.names["engine.test"] = OSError("the name service is down")
            await loop.advance(31)
            assert (await fetch(pool))[0] == 200
            loop.names["engine.test"] = asyncio.Event()
            await loop.advance(31)
            first = asyncio.create_task(fetch(pool))
            await loop.advance(0)
            assert (await fetch(pool))[0] == 200  # the others do not wait for the one that asks
            assert not first.done()
            await loop.advance(2.1)
            assert (await first)[0] == 200
            assert loop.asked["engine.test"] == 3


async def test_who_is_cancelled_while_resolving_anew_leaves_it_to_the_next() -> None:
    loop = shifted()
    async with Backend() as backend:
        loop.names["engine.test"] = ["127.0.0.1"]
        url = f"http://engine.test:{backend.port}"
        async with pool_to(url, timeouts=FAR, resolve_seconds=30, max_idle_connections=0) as pool:
            await fetch(pool)
            loop.names["engine.test"] = asyncio.Event()
            await loop.advance(31)
            leaving = asyncio.create_task(fetch(pool))
            await loop.advance(0)
            leaving.cancel()
            await asyncio.wait([leaving])
            loop.names["engine.test"] = ["127.0.0.1"]
            await fetch(pool)
            assert loop.asked["engine.test"] == 3
