"""Gateways that share a Redis: one session through several of them, a restart in between, and a Redis that freezes or is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.session_settings import ConflictRule, SessionSettings
from tests import client
from tests.backend import Backend, Request, Script, json_script
from tests.emulator.running import until
from tests.redis_server import TcpServer, redis_server, tcp_server
from tests.running import Running, running

HISTORY = (b"X-Headrace-History", b"server")


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture
def redis() -> Iterator[TcpServer]:
    with tcp_server() as server:
        yield server


def kept_in(url: str, **settings: Any) -> SessionSettings:
    # Patient, for a test that has to share its processor; how short a wait may be is tested in virtual time.
    return SessionSettings(redis_url=url, timeout_ms=settings.pop("timeout_ms", 5000), **settings)


def answer(request: Request) -> Script:
    said = [one["content"] for one in request.json()["messages"]]
    message = {"role": "assistant", "content": f"to {said[-1]}"}
    return json_script(
        {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10 * len(said), "completion_tokens": 5, "total_tokens": 0},
        }
    )


async def say(
    gateway: Running, session: str, text: str, history: bool = True, **fields: Any
) -> client.Answer:
    headers = [(b"X-Headrace-Session", session.encode()), *([HISTORY] if history else [])]
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return await gateway.post(body, headers=headers)


def said_of(reply: client.Answer, header: bytes) -> bytes:
    value = reply.value(header)
    assert value is not None
    return value


async def shown(gateway: Running, session: str) -> dict[str, Any]:
    answer = await gateway.get(f"/v1/sessions/{session}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


async def test_three_turns_through_three_gateways_one_after_another(redis_url: str) -> None:
    async with Backend(answer) as backend:
        for turn, text in enumerate(("one", "two", "three")):
            async with running(backend, sessions=kept_in(redis_url)) as gateway:
                reply = await say(gateway, "restarted", text)
                assert reply.status == 200
                assert said_of(reply, b"x-headrace-session").startswith(b"seq=%d;" % turn)
        prompt = [one["content"] for one in backend.exchanges[-1].request.json()["messages"]]
        assert prompt == ["one", "to one", "two", "to two", "three"]


async def test_fifty_turns_at_once_through_two_gateways_are_all_kept_in_one_order(redis_url: str) -> None:
    async with AsyncExitStack() as block:
        backend = await block.enter_async_context(Backend(answer))
        kept = kept_in(redis_url, max_turns=100)
        nodes = [await block.enter_async_context(running(backend, sessions=kept)) for _ in range(2)]
        replies = await asyncio.gather(*[say(nodes[n % 2], "crowd", f"n{n}") for n in range(50)])
        assert {one.status for one in replies} == {200}
        one, other = await shown(nodes[0], "crowd"), await shown(nodes[1], "crowd")
        assert one == other
        assert one["seq"] == one["turns"] == 50
        said = [message["content"] for message in one["messages"]]
        assert sorted(said[::2]) == sorted(f"n{n}" for n in range(50))
        assert said[1::2] == [f"to {text}" for text in said[::2]], "a question and its answer stay together"


async def test_of_turns_at_once_that_may_not_meet_one_is_kept(redis_url: str) -> None:
    async with AsyncExitStack() as block:
        backend = await block.enter_async_context(Backend(answer))
        kept = kept_in(redis_url, conflicts=ConflictRule.STRICT)
        nodes = [await block.enter_async_context(running(backend, sessions=kept)) for _ in range(2)]
        replies = await asyncio.gather(*[say(nodes[n % 2], "strict", f"n{n}") for n in range(8)])
        counted = Counter(one.status for one in replies)
        assert counted[200] >= 1
        assert counted[200] + counted[409] == 8
        assert (await shown(nodes[0], "strict"))["seq"] == counted[200]


async def test_a_session_stays_with_its_backend_through_another_gateway(redis_url: str) -> None:
    async with AsyncExitStack() as block:
        backends = [await block.enter_async_context(Backend(answer)) for _ in range(4)]
        kept = kept_in(redis_url, fresh_seconds=0)
        nodes = [await block.enter_async_context(running(*backends, sessions=kept)) for _ in range(3)]
        for session in range(4):
            routes = set()
            for node in nodes:
                reply = await say(node, f"sticky-{session}", "hello", history=False)
                routes.add(said_of(reply, b"x-headrace-route").split(b"backend=")[1].split(b";")[0])
                await until(lambda node=node: node.metric("headrace_session_writes_queued") == 0)  # type: ignore[misc]
            assert len(routes) == 1


async def test_a_redis_that_freezes_costs_affinity_and_no_request(redis: TcpServer) -> None:
    async with (
        Backend(answer) as one,
        Backend(answer) as two,
        running(one, two, sessions=kept_in(redis.url, timeout_ms=30, max_queued_writes=20)) as gateway,
    ):
        assert (await say(gateway, "before", "x", history=False)).status == 200
        redis.freeze()
        for n in range(60):
            assert (await say(gateway, f"frozen-{n}", "x", history=False)).status == 200
        assert gateway.metric("headrace_session_store_breaker_open") == 1
        assert gateway.metric("headrace_session_writes_queued") <= 20
        assert gateway.metric("headrace_session_writes_dropped_total", kind="home") > 0
        refused = await say(gateway, "history", "x")
        assert (refused.status, refused.value(b"x-headrace-reason")) == (503, b"session_store_unavailable")
        assert int(said_of(refused, b"retry-after")) >= 1
        redis.thaw()
        await until(lambda: gateway.metric("headrace_session_store_breaker_open") == 0)
        await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
        assert (await say(gateway, "history", "x")).status == 200


async def test_a_redis_that_takes_no_writes_gives_no_history_that_lacks_a_turn(redis: TcpServer) -> None:
    async with (
        Backend(answer) as backend,
        running(backend, sessions=kept_in(redis.url, timeout_ms=500)) as gateway,
    ):
        assert (await say(gateway, "s", "one")).status == 200
        await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
        redis.command("REPLICAOF", "127.0.0.1", "1")
        assert (await say(gateway, "s", "two")).status == 200, "its turn is on its way"
        await until(
            lambda: (
                gateway.metric("headrace_session_store_calls_total", call="append", outcome="read_only") > 0
            )
        )
        refused = await say(gateway, "s", "three")
        assert (refused.status, refused.value(b"x-headrace-reason")) == (503, b"session_store_unavailable")
        redis.command("REPLICAOF", "NO", "ONE")
        await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
        assert (await say(gateway, "s", "three")).status == 200
        said = [one["content"] for one in (await shown(gateway, "s"))["messages"]]
        assert said == ["one", "to one", "two", "to two", "three", "to three"]


async def test_a_redis_that_died_is_used_again_when_it_is_back(redis: TcpServer) -> None:
    async with Backend(answer) as backend, running(backend, sessions=kept_in(redis.url)) as gateway:
        assert (await say(gateway, "s", "zero")).status == 200
        # Else that turn is written when the server is back, as it should be.
        await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
        redis.kill()
        for _ in range(4):
            assert (await say(gateway, "s", "lost")).status == 503
        redis.start_again()
        await until(lambda: gateway.metric("headrace_session_store_breaker_open") == 0)
        assert (await say(gateway, "s", "one")).status == 200
        assert (await shown(gateway, "s"))["seq"] == 1, "the server came back empty"


async def test_another_redis_takes_over_at_a_reload_and_nothing_that_waits_is_lost(
    redis: TcpServer, redis_url: str
) -> None:
    async with Backend(answer) as backend, running(backend, sessions=kept_in(redis.url)) as gateway:
        assert (await say(gateway, "moved", "one")).status == 200
        inner = gateway.gateway
        inner.configure(replace(inner.settings, sessions=kept_in(redis_url)))
        assert (await gateway.get("/v1/sessions/moved")).status == 404
        inner.configure(replace(inner.settings, sessions=kept_in(redis.url)))
        assert (await shown(gateway, "moved"))["seq"] == 1
