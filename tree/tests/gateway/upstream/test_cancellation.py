"""Leaving at any await of an exchange: the engine sees its peer close, nothing stays busy or open, the next request is served at once."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.settings import BackendSettings, TimeoutSettings
from gateway.upstream.client import Exchange
from gateway.upstream.endpoint import Endpoint, ProtocolT
from gateway.upstream.pool import ConnectionPool
from tests.backend import Backend, Ending, Framing, Gate, Script
from tests.gateway.upstream.loops import names_of_running_loop
from tests.gateway.upstream.pools import (
    BIG_BODY,
    CHUNKED,
    GET,
    cancelled,
    fetch,
    in_turn,
    plain,
    pool_to,
    post_head,
    quiet,
    raw,
    read_all,
    until,
)
from tests.gateway.upstream.test_connecting import deaf_listener


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    authority = trustme.CA()
    file = str(tmp_path / "ca.pem")
    authority.cert_pem.write_to_path(file)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, file


@asynccontextmanager
async def leaves_nothing(backend: Backend, pool: ConnectionPool) -> AsyncIterator[None]:
    """What is under way when the block ends was cancelled in it."""
    yield
    assert pool.busy == 0
    await backend.until(lambda: len(backend.connections) == pool.idle)
    backend.script = raw(plain(b"next"))
    backend.on_head = None
    assert await fetch(pool) == (200, b"next")


async def test_leaving_while_the_name_is_resolved() -> None:
    names = names_of_running_loop()
    names.names["engine.test"] = asyncio.Event()
    async with (
        Backend() as backend,
        pool_to(f"http://engine.test:{backend.port}") as pool,
        leaves_nothing(backend, pool),
    ):
        task = asyncio.create_task(fetch(pool))
        await until(lambda: names.asked["engine.test"] == 1)
        assert pool.busy == 1
        await cancelled(task)
        names.names["engine.test"] = ["127.0.0.1"]


async def test_leaving_while_connecting() -> None:
    with deaf_listener() as port:
        async with pool_to(f"http://127.0.0.1:{port}", max_connections=1) as pool:
            for _ in range(3):
                task = asyncio.create_task(fetch(pool))
                await quiet(lambda: pool.busy, 20)
                assert pool.busy == 1
                await cancelled(task)
                assert pool.busy == 0


async def test_leaving_during_the_tls_handshake(tls: tuple[ssl.SSLContext, str]) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with pool_to(f"https://127.0.0.1:{listener.getsockname()[1]}", ca_file=tls[1]) as pool:
            task = asyncio.create_task(fetch(pool))
            accepted, _ = await loop.sock_accept(listener)
            assert (await loop.sock_recv(accepted, 1))[0] == 0x16  # the client's hello has begun
            await cancelled(task)
            assert pool.busy == 0
            while await loop.sock_recv(accepted, 4096):
                pass
            accepted.close()


async def test_leaving_while_a_large_body_is_sent() -> None:
    gate = Gate()
    stuck = Script(before_head=gate, ending=Ending.STOP_READING)
    async with Backend(on_head=lambda _: stuck) as backend, pool_to(backend.url) as pool:
        task = asyncio.create_task(fetch(pool, post_head(BIG_BODY), BIG_BODY))
        exchange = await backend.exchange()
        await quiet(lambda: len(exchange.request.pieces))
        await cancelled(task)
        assert (pool.busy, pool.idle) == (0, 0)
        backend.on_head = None
        assert (await fetch(pool))[0] == 200


async def test_leaving_while_a_large_body_is_taken_closes_the_connection_to_the_engine() -> None:
    async with Backend() as backend, pool_to(backend) as pool, leaves_nothing(backend, pool):
        task = asyncio.create_task(fetch(pool, post_head(BIG_BODY), BIG_BODY))
        exchange = await backend.exchange()
        await cancelled(task)
        await exchange.peer_closed.wait()
        assert not exchange.body_complete.is_set()


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nA:"])
@pytest.mark.parametrize("kept", [False, True])
async def test_leaving_while_waiting_for_the_head(part: bytes, kept: bool) -> None:
    waiting = raw(part, Gate())
    scripts = in_turn(raw(plain(b"x")), waiting) if kept else waiting
    async with Backend(scripts) as backend, pool_to(backend) as pool, leaves_nothing(backend, pool):
        if kept:
            await fetch(pool)
        task = asyncio.create_task(fetch(pool))
        exchange = await backend.exchange(int(kept))
        await backend.until(lambda: exchange.bytes_sent == len(part))
        await cancelled(task)
        await exchange.peer_closed.wait()


async def test_leaving_during_the_free_retry() -> None:
    scripts = in_turn(raw(plain(b"x")), raw(ending=Ending.CUT), raw(Gate()))
    async with Backend(scripts) as backend, pool_to(backend) as pool, leaves_nothing(backend, pool):
        await fetch(pool)
        task = asyncio.create_task(fetch(pool))
        exchange = await backend.exchange(2)
        await cancelled(task)
        await exchange.peer_closed.wait()


@pytest.mark.parametrize("framing", [Framing.CHUNKED, Framing.UNTIL_CLOSE])
@pytest.mark.parametrize("way", ["read", "pipe"])
async def test_leaving_in_the_middle_of_a_body(framing: Framing, way: str) -> None:
    script = Script(framing=framing, chunks=[b"one", Gate()])
    began = asyncio.Event()

    async def follow(pool: ConnectionPool) -> None:
        async with Exchange(pool, GET, b"", True) as answer:
            await answer.read()
            began.set()
            await (answer.read() if way == "read" else answer.pipe(lambda _: True))

    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend) as pool,
        leaves_nothing(backend, pool),
    ):
        task = asyncio.create_task(follow(pool))
        await began.wait()
        await cancelled(task)
        await (await backend.exchange()).peer_closed.wait()


async def test_leaving_in_the_very_call_that_brings_data_to_a_sink() -> None:
    gate = Gate()
    script = Script(framing=Framing.CHUNKED, chunks=[b"one", gate, b"two", Gate()])
    tasks: list[asyncio.Task[None]] = []

    def sink(data: bytes) -> bool:
        tasks[0].cancel()
        return data == b""

    async def follow(pool: ConnectionPool) -> None:
        async with Exchange(pool, GET, b"", True) as answer:
            await answer.read()
            gate.set()
            await answer.pipe(sink)

    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend) as pool,
        leaves_nothing(backend, pool),
    ):
        tasks.append(asyncio.create_task(follow(pool)))
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()


class CancellingEndpoint(Endpoint):
    """Cancels its caller when the connection is there: before the caller knows (`early`), or in the turn in which it learns of it."""

    early = False

    async def connect(self, factory: Callable[[], ProtocolT], connect_seconds: float) -> ProtocolT:
        protocol = await super().connect(factory, connect_seconds)
        if self.early:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return protocol


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("is_tls", [False, True])
async def test_leaving_in_the_turn_in_which_the_connection_is_made(
    early: bool, is_tls: bool, tls: tuple[ssl.SSLContext, str]
) -> None:
    context, file = tls
    async with (
        Backend(raw(Gate()), tls=context if is_tls else None) as backend,
        pool_to(backend, ca_file=file if is_tls else "") as pool,
        leaves_nothing(backend, pool),
    ):
        kept = pool.endpoint
        cancelling = CancellingEndpoint(BackendSettings(url=backend.url, ca_file=kept.ca_file), 30)
        cancelling.early = early
        pool.endpoint = cancelling
        task = asyncio.create_task(fetch(pool))
        await asyncio.wait([task])
        assert task.cancelled()
        pool.endpoint = kept


@pytest.mark.parametrize("is_tls", [False, True])
async def test_leaving_after_any_number_of_turns(is_tls: bool, tls: tuple[ssl.SSLContext, str]) -> None:
    """Every turn from the first step to the answer's end, among them those in which the connection is made and the data comes."""
    context, file = tls
    async with (
        Backend(tls=context if is_tls else None) as backend,
        pool_to(backend, ca_file=file if is_tls else "", max_idle_connections=0) as pool,
    ):
        finished = 0
        for turns in range(60):
            task = asyncio.create_task(fetch(pool))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            finished += not task.cancelled()
            assert (pool.busy, pool.idle) == (0, 0)
            await backend.until(lambda: not backend.connections)
        assert finished > 0
        assert (await fetch(pool))[0] == 200


async def test_a_whole_answer_that_its_reader_left_unread_is_no_harm_to_the_connection() -> None:
    async with Backend(raw(plain(b"small"))) as backend, pool_to(backend) as pool:
        for _ in range(3):
            async with Exchange(pool, GET, b"", True) as answer:
                await until(lambda answer=answer: answer.complete)  # type: ignore[misc]
        assert await fetch(pool) == (200, b"small")
        assert backend.accepted == 1


LAST_STEP = 12
"""By then few exchanges are over and most are somewhere between connecting and the body."""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.integers(0, LAST_STEP), min_size=20, max_size=20), seed=st.integers(0, 3))
def test_hundreds_who_leave_at_any_moment_leak_nothing(
    loop: Callable[[], asyncio.AbstractEventLoop], steps: list[int], seed: int
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_mass_leaving(steps, seed))


async def _mass_leaving(steps: list[int], seed: int) -> None:
    big = b"b" * 100_000
    scripts = [
        Script(chunks=[b"whole"]),
        Script(framing=Framing.CHUNKED, chunks=[b"one", big, b"two"]),
        Script(framing=Framing.UNTIL_CLOSE, chunks=[b"one"]),
        raw(CHUNKED + b"3\r\none\r\n", ending=Ending.RESET)(None),  # type: ignore[arg-type]
    ]
    turn = iter(range(seed, 10_000))
    bodies = [b"", big]
    async with (
        Backend(lambda _: scripts[next(turn) % len(scripts)]) as backend,
        pool_to(backend, timeouts=TimeoutSettings(), max_idle_connections=3) as pool,
    ):
        for start in range(0, len(steps), 10):
            tasks: dict[asyncio.Task[tuple[int, bytes]], int] = {}
            for number, step in enumerate(steps[start : start + 10]):
                body = bodies[number % 2]
                tasks[asyncio.create_task(fetch(pool, post_head(body), body))] = step
            for now in range(LAST_STEP + 1):
                for task, step in tasks.items():
                    if step == now:
                        task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()
            assert pool.busy == 0
        backend.script = lambda _: scripts[0]
        await backend.until(lambda: len(backend.connections) == pool.idle)
        assert await fetch(pool) == (200, b"whole")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_leaving_a_tls_engine_that_never_says_goodbye_closes_at_once(
    tls: tuple[ssl.SSLContext, str],
) -> None:
    script = Script(framing=Framing.CHUNKED, chunks=[b"one", Gate()])
    async with Backend(lambda _: script, tls=tls[0]) as backend, pool_to(backend, ca_file=tls[1]) as pool:
        async with Exchange(pool, GET, b"", True) as answer:
            assert await answer.read() == b"one"
        await (await backend.exchange()).peer_closed.wait()
        async with Exchange(pool, GET, b"", True) as answer:
            reading = asyncio.create_task(read_all(answer))
            await asyncio.sleep(0)
            await cancelled(reading)
