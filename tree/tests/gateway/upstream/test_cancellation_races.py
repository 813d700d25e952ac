"""Leaving in the very call in which the loop says that the connection is made, that data is there, or that the connection is lost.

A relay between the loop and the connection cancels the asking task right before or right after the chosen call: the task then learns of
the cancellation while what it waited for has come as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Generic, cast

import pytest
import trustme

from gateway.settings import BackendSettings
from gateway.upstream.client import Exchange
from gateway.upstream.endpoint import Endpoint, ProtocolT
from gateway.upstream.pool import ConnectionPool
from tests.backend import WAIT_SECONDS, Backend, Ending, Framing, Gate, Script
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
)

BEFORE, AFTER = "before", "after"
Listener = Callable[[str, str], None]


class Relay(asyncio.BufferedProtocol, Generic[ProtocolT]):
    """Tells of every call of the loop, before and after the protocol behind it has it."""

    def __init__(self, protocol: ProtocolT, tell: Listener) -> None:
        self.protocol = protocol
        self._inner = cast(asyncio.BufferedProtocol, protocol)
        self._tell = tell

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tell("made", BEFORE)
        self._inner.connection_made(transport)
        self._tell("made", AFTER)

    def get_buffer(self, sizehint: int) -> memoryview:
        return cast(memoryview, self._inner.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        self._tell("data", BEFORE)
        self._inner.buffer_updated(nbytes)
        self._tell("data", AFTER)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tell("lost", BEFORE)
        self._inner.connection_lost(exc)
        self._tell("lost", AFTER)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class RelayingEndpoint(Endpoint):
    def __init__(self, url: str, ca_file: str, tell: Listener) -> None:
        super().__init__(BackendSettings(url=url, ca_file=ca_file), 30)
        self._tell = tell

    async def connect(self, factory: Callable[[], ProtocolT], connect_seconds: float) -> ProtocolT:
        relay = await super().connect(lambda: Relay(factory(), self._tell), connect_seconds)
        return relay.protocol


class Leaver:
    """Cancels `task` at the call `at` (the n-th "data" is "data n"), and opens the next gate after each data."""

    def __init__(self, at: str, side: str, gates: list[Gate]) -> None:
        self.task: asyncio.Task[None] | None = None
        self.left = 0
        self._at, self._side = at, side
        self._gates = gates
        self._data = 0

    def tell(self, call: str, side: str) -> None:
        if self.task is None:
            return
        if call == "data":
            self._data += side == BEFORE
            call = f"data {self._data}"
            if side == AFTER and self._gates:
                self._gates.pop(0).set()
        if (call, side) == (self._at, self._side):
            self.left += 1
            self.task.cancel()


async def follow(pool: ConnectionPool, way: str) -> None:
    async with Exchange(pool, GET, b"", True) as answer:
        while await answer.read():
            if way == "pipe":
                await answer.pipe(lambda _: True)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    authority = trustme.CA()
    file = str(tmp_path_factory.mktemp("authority") / "ca.pem")
    authority.cert_pem.write_to_path(file)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, file


MOMENTS = [
    ("made", "read", False),
    *[
        (moment, way, kept)
        for moment in ("data 1", "data 2", "data 3", "data 4", "lost")
        for way in ("read", "pipe")
        for kept in (False, True)
    ],
]
"""Of an answer in four parts: half a head, the rest of it, a first and a last piece of the body."""


@pytest.mark.parametrize(("moment", "way", "kept"), MOMENTS)
@pytest.mark.parametrize("side", [BEFORE, AFTER])
@pytest.mark.parametrize("is_tls", [False, True])
async def test_leaving_in_the_call_that_brings_what_was_awaited(
    moment: str, way: str, kept: bool, side: str, is_tls: bool, tls: tuple[ssl.SSLContext, str]
) -> None:
    gates = [Gate(), Gate(), Gate()]
    last = b"3\r\ntwo\r\n" if moment == "lost" else b"3\r\ntwo\r\n0\r\n\r\n"
    ending = Ending.CUT if moment == "lost" else Ending.CLEAN
    answer = raw(CHUNKED[:9], gates[0], CHUNKED[9:], gates[1], b"3\r\none\r\n", gates[2], last, ending=ending)
    leaver = Leaver(moment, side, list(gates))
    scripts = in_turn(raw(plain(b"x")), answer) if kept else answer
    async with (
        Backend(scripts, tls=tls[0] if is_tls else None) as backend,
        pool_to(backend, ca_file=tls[1] if is_tls else "") as pool,
    ):
        pool.endpoint = RelayingEndpoint(backend.url, tls[1] if is_tls else "", leaver.tell)
        if kept:
            await fetch(pool)
        task = leaver.task = asyncio.create_task(follow(pool, way))
        await asyncio.wait([task])
        leaver.task = None
        assert (task.cancelled(), leaver.left) == (True, 1)
        assert pool.busy == 0
        await backend.until(lambda: len(backend.connections) == pool.idle)
        backend.script = raw(plain(b"next"))
        assert await fetch(pool) == (200, b"next")


@pytest.mark.parametrize("side", [BEFORE, AFTER])
async def test_leaving_in_the_call_that_shows_a_kept_connection_dead_makes_no_free_retry(side: str) -> None:
    leaver = Leaver("lost", side, [])
    scripts = in_turn(raw(plain(b"x")), raw(ending=Ending.CUT), raw(plain(b"next")))
    async with Backend(scripts) as backend, pool_to(backend) as pool:
        pool.endpoint = RelayingEndpoint(backend.url, "", leaver.tell)
        await fetch(pool)
        task = leaver.task = asyncio.create_task(follow(pool, "read"))
        await asyncio.wait([task])
        leaver.task = None
        assert (task.cancelled(), leaver.left) == (True, 1)
        assert (pool.busy, pool.idle, backend.accepted) == (0, 0, 1)
        assert await fetch(pool) == (200, b"next")


async def test_the_engine_sees_who_left_a_stuck_upload_behind_what_the_kernel_had() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with pool_to(f"http://127.0.0.1:{listener.getsockname()[1]}") as pool:
            task = asyncio.create_task(fetch(pool, post_head(BIG_BODY), BIG_BODY))
            accepted, _ = await loop.sock_accept(listener)
            with accepted:
                taken = len(await loop.sock_recv(accepted, 4096))
                await quiet(lambda: pool.busy)
                await cancelled(task)
                assert (pool.busy, pool.idle) == (0, 0)
                with contextlib.suppress(ConnectionResetError):
                    while data := await loop.sock_recv(accepted, 1_000_000):
                        taken += len(data)
                assert taken < len(BIG_BODY)


@pytest.mark.parametrize("body", [b"", BIG_BODY])
@pytest.mark.parametrize("is_tls", [False, True])
async def test_leaving_an_engine_that_reads_nothing_does_not_wait_for_it(
    body: bytes, is_tls: bool, tls: tuple[ssl.SSLContext, str]
) -> None:
    lost = asyncio.Event()
    stuck = Script(before_head=Gate(), ending=Ending.STOP_READING)
    ca_file = tls[1] if is_tls else ""
    async with (
        Backend(on_head=lambda _: stuck, tls=tls[0] if is_tls else None) as backend,
        # By its address, as such a backend does not see its peer go: that the loop has closed the socket is seen on this side.
        pool_to(backend.url, ca_file=ca_file) as pool,
    ):
        pool.endpoint = RelayingEndpoint(
            backend.url, ca_file, lambda call, _: lost.set() if call == "lost" else None
        )
        task = asyncio.create_task(fetch(pool, post_head(body), body))
        await backend.exchange()
        await quiet(lambda: pool.busy)
        await cancelled(task)
        async with asyncio.timeout(WAIT_SECONDS):
            await lost.wait()


async def test_who_leaves_only_the_pipe_reads_on_and_its_sink_gets_nothing_more() -> None:
    gate = Gate()
    script = Script(framing=Framing.CHUNKED, chunks=[b"one", gate, b"two"])
    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        assert await answer.read() == b"one"
        piping = asyncio.create_task(answer.pipe(lambda _: pytest.fail("it had been left")))
        await asyncio.sleep(0)
        await cancelled(piping)
        gate.set()
        assert await answer.read() == b"two"
