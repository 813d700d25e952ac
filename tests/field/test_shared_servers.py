"""Sessions in a Redis of several servers: a Sentinel's, a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import redis

from gateway.session_settings import SessionSettings
from tests.backend import Backend
from tests.emulator.running import until
from tests.field.test_sessions import answer, shown, turn
from tests.redis_server import SENTINEL_PASSWORD, redis_cluster, sentinel_trio
from tests.running import running


async def test_b093_a_sentinels_connections_are_bounded() -> None:
    with sentinel_trio() as trio:
        sessions = SessionSettings(redis_url=trio.url, sentinel_password=SENTINEL_PASSWORD, timeout_ms=10_000)
        async with Backend(answer) as backend, running(backend, sessions=sessions) as gateway:
            for _ in range(10):
                replies = await asyncio.gather(*[gateway.send(turn(f"b093-{n}", "x")) for n in range(50)])
                assert {reply.status for reply in replies} == {200}
            with redis.Redis(port=trio.master.port) as found:
                here: Any = found
                ours = [one for one in here.client_list() if one["name"] == "headrace"]
                assert 1 <= len(ours) <= 32


async def test_b098_no_call_needs_keys_of_two_slots() -> None:
    with redis_cluster() as url:
        sessions = SessionSettings(redis_url=url, timeout_ms=10_000, max_turns=2)
        async with (
            Backend(answer) as one,
            Backend(answer) as two,
            running(one, two, sessions=sessions) as gateway,
        ):
            for history in (True, True, True, False):
                batch = [gateway.send(turn(f"b098-{n}", "x", history=history)) for n in range(100)]
                assert {reply.status for reply in await asyncio.gather(*batch)} == {200}
            await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
            calls = gateway.metric("headrace_session_store_calls_total")
            assert calls == gateway.metric("headrace_session_store_calls_total", outcome="ok") > 0
            assert (await shown(gateway, "b098-7"))["turns"] == 2, "the ring is kept there too"
