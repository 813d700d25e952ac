"""Sessions in a Redis that is slow, silent, full of callers or not there at all."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from gateway.session_settings import SessionSettings
from gateway.sessions import guarded_store
from gateway.sessions.guarded_store import MAX_CALLS
from tests import client
from tests.backend import Backend, Request, Script, json_script
from tests.emulator.running import until
from tests.redis_server import TcpServer, tcp_server
from tests.running import Running, post_request, running

HISTORY = (b"X-Headrace-History", b"server")


@pytest.fixture(scope="module")
def server() -> Iterator[TcpServer]:
    with tcp_server() as found:
        yield found


class Between:
    """A TCP proxy before a Redis: what comes back may be late, or be swallowed."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.delay_seconds = 0.0
        self._opened = 0
        self._deaf_until = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._opened += 1
        number = self._opened
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.target)

        def is_deaf() -> bool:
            return number <= self._deaf_until

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, late: bool) -> None:
            try:
                while data := await source.read(65536):
                    if late and self.delay_seconds:
                        await asyncio.sleep(self.delay_seconds)
                    if not is_deaf():
                        sink.write(data)
                        await sink.drain()
            except ConnectionError:
                pass
            finally:
                sink.close()

        await asyncio.gather(copy(reader, back_writer, False), copy(back_reader, writer, True))

    def swallow(self) -> None:
        """As a NAT that has forgotten the connections that are open now: no reset, no answer. New ones pass."""
        self._deaf_until = self._opened


@asynccontextmanager
async def between(port: int) -> AsyncIterator[Between]:
    proxy = Between(port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()


def answer(request: Request) -> Script:
    said = [one["content"] for one in request.json()["messages"]]
    message = {"role": "assistant", "content": f"to {said[-1]}"}
    return json_script({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def turn(session: str, text: str, history: bool = True) -> bytes:
    headers = [(b"X-Headrace-Session", session.encode()), *([HISTORY] if history else [])]
    return post_request({"model": "m", "messages": [{"role": "user", "content": text}]}, headers=headers)


async def shown(gateway: Running, session: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await gateway.get(f"/v1/sessions/{session}")).body)
    return found


@pytest.mark.parametrize("calls", [1, MAX_CALLS])
async def test_b089_an_answer_for_one_who_left_is_never_anothers(
    calls: int, server: TcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of one session leave while Redis owes them an answer; those of another one read and talk all the while."""
    monkeypatch.setattr(guarded_store, "MAX_CALLS", calls)
    draw = random.Random(89)
    reads = 120 if calls > 1 else 40
    mine, theirs = f"b089-{calls}-mine", f"b089-{calls}-theirs"
    async with between(server.port) as proxy, Backend(answer) as backend:
        sessions = SessionSettings(redis_url=f"redis://127.0.0.1:{proxy.port}", timeout_ms=10_000)
        async with running(backend, sessions=sessions) as gateway:
            for name in (mine, theirs):
                assert (await gateway.send(turn(name, f"marked {name}"))).status == 200
            proxy.delay_seconds = 0.003
            is_over = False
            left = 0

            async def leave() -> None:
                nonlocal left
                while not is_over:
                    raw = draw.choice(
                        [turn(theirs, "again"), client.request("GET", f"/v1/sessions/{theirs}")]
                    )
                    async with await gateway.connect() as connection:
                        await connection.send(raw)
                        await asyncio.sleep(draw.uniform(0, 0.012))
                    left += 1

            async def read() -> None:
                for number in range(reads):
                    said = {one["content"] for one in (await shown(gateway, mine))["messages"]}
                    assert said <= {f"marked {mine}", f"to marked {mine}"} and said
                    if number % 4 == 0:
                        assert (await gateway.send(turn(mine, f"marked {mine}"))).status == 200

            leaving = [asyncio.ensure_future(leave()) for _ in range(3)]
            await asyncio.gather(read(), read())
            is_over = True
            await asyncio.gather(*leaving)
            assert left > reads
            asked = [one.request.body for one in backend.exchanges if mine.encode() in one.request.body]
            assert len(asked) == 1 + reads // 2 and not any(theirs.encode() in body for body in asked)
            assert sum(body.count(mine.encode()) > 2 for body in asked) > reads // 3, (
                "what was said before came along"
            )
            assert gateway.metric("headrace_session_store_calls_total", outcome="ok") > 2 * reads


async def test_b092_callers_that_leave_strand_no_connection_to_redis(server: TcpServer) -> None:
    async with between(server.port) as proxy, Backend(answer) as backend:
        sessions = SessionSettings(redis_url=f"redis://127.0.0.1:{proxy.port}", timeout_ms=5000)
        async with running(backend, sessions=sessions) as gateway:
            assert (await gateway.send(turn("b092", "one"))).status == 200
            with redis.Redis(port=server.port) as found:
                proxy.delay_seconds = 0.01
                for _ in range(12):
                    crowd = [await gateway.connect() for _ in range(40)]
                    for connection in crowd:
                        await connection.send(turn("b092", "more"))
                    for number, connection in enumerate(crowd):
                        await asyncio.sleep(0)
                        connection.reset() if number % 2 else connection.close()
                    await until(gateway.is_quiet)
                here: Any = found
                proxy.delay_seconds = 0
                assert len(here.client_list()) <= MAX_CALLS + 1, (
                    "no more than its pool, and this one, however many came"
                )
            assert (await gateway.send(turn("b092", "last"))).status == 200


async def test_b090_more_requests_than_connections_to_redis_wait_and_none_fails(server: TcpServer) -> None:
    async with Backend(answer) as backend:
        sessions = SessionSettings(redis_url=server.url, timeout_ms=10_000)
        async with running(backend, sessions=sessions) as gateway:
            answers = await asyncio.gather(*[gateway.send(turn(f"b090-{n}", "x")) for n in range(500)])
            assert {answer.status for answer in answers} == {200}
            await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
            assert gateway.metric("headrace_session_store_calls_total", outcome="ok") > 0


@asynccontextmanager
async def black_hole() -> AsyncIterator[int]:
    """A port that accepts and never answers."""

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    listener = await asyncio.start_server(swallow, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


FORMS = {
    "nobody there": "redis://127.0.0.1:9/{}",
    "cluster with nobody there": "redis+cluster://127.0.0.1:9,127.0.0.1:{}",
    "server": "redis://127.0.0.1:{}",
    "with a password": "redis://:pw@127.0.0.1:{}/3",
    "tls": "rediss://127.0.0.1:{}",
    "cluster": "redis+cluster://127.0.0.1:{}",
    "cluster with tls": "rediss+cluster://127.0.0.1:{}",
    "sentinel": "redis+sentinel://127.0.0.1:{}/mymaster",
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
async def test_b096_b128_a_redis_that_never_answers_holds_no_request_up_whatever_its_form(form: str) -> None:
    async with black_hole() as port, Backend(answer) as backend:
        sessions = SessionSettings(redis_url=form.format(port), timeout_ms=50)
        async with running(backend, sessions=sessions) as gateway:
            clock = asyncio.get_running_loop().time
            began = clock()
            for number in range(8):
                assert (await gateway.send(turn(f"s{number}", "x", history=False))).status == 200
            await until(lambda: gateway.metric("headrace_session_store_breaker_open") == 1)
            assert clock() - began < 3.0, "waits as they were set, fifteen times over"
            refused = await gateway.send(turn("s", "x"))
            assert (refused.status, refused.value(b"x-headrace-reason")) == (
                503,
                b"session_store_unavailable",
            )


async def test_b099_a_connection_that_was_forgotten_on_its_way_costs_no_request(server: TcpServer) -> None:
    async with between(server.port) as proxy, Backend(answer) as backend:
        sessions = SessionSettings(
            redis_url=f"redis://127.0.0.1:{proxy.port}", timeout_ms=100, fresh_seconds=0
        )
        async with running(backend, sessions=sessions) as gateway:
            assert (await gateway.send(turn("b099", "x", history=False))).status == 200
            await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
            proxy.swallow()
            for _ in range(8):
                assert (await gateway.send(turn("b099", "x", history=False))).status == 200
            await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
            await until(lambda: gateway.metric("headrace_session_store_breaker_open") == 0)
            assert (await gateway.send(turn("b099", "x", history=False))).status == 200


@pytest.mark.parametrize("shared", [False, True])
async def test_b102_a_ring_of_ten_never_holds_more(server: TcpServer, shared: bool) -> None:
    sessions = SessionSettings(
        max_turns=10, timeout_ms=5000 if shared else 1, redis_url=server.url if shared else ""
    )
    async with Backend(answer) as backend, running(backend, sessions=sessions) as gateway:
        for number in range(30):
            assert (await gateway.send(turn("b102", f"{number}"))).status == 200
            assert (await shown(gateway, "b102"))["turns"] == min(number + 1, 10)
        await asyncio.gather(*[gateway.send(turn("b102", f"at once {number}")) for number in range(50)])
        kept = await shown(gateway, "b102")
        assert (kept["seq"], kept["turns"]) == (80, 10)


async def test_b137_a_redis_that_is_frozen_does_not_hold_up_the_end() -> None:
    with tcp_server() as frozen:
        sessions = SessionSettings(redis_url=frozen.url, timeout_ms=50)
        async with Backend(answer) as one, Backend(answer) as two:
            loop = asyncio.get_running_loop()
            async with running(one, two, sessions=sessions) as gateway:
                assert (await gateway.send(turn("b137", "x"))).status == 200
                frozen.freeze()
                for number in range(20):
                    assert (await gateway.send(turn(f"b137-{number}", "x", history=False))).status == 200
                await until(lambda: gateway.metric("headrace_session_writes_queued") > 0)
                ending_from = loop.time()
            assert loop.time() - ending_from < client.WAIT_SECONDS, "of the 30 s that requests would have had"
