"""The gateway as a plain ASGI application, without the front of `headrace serve`: whole answers, streams, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.app import Gateway
from gateway.settings import LogSettings
from tests.asgi import Call
from tests.backend import Backend, Gate, Script, json_script, sse_script
from tests.emulator.running import until
from tests.running import CHAT, JSON, one_pool

EVENT = b'{"choices":[{"delta":{"content":"x"}}]}'


@asynccontextmanager
async def under_another_server(backend: Backend) -> AsyncIterator[Gateway]:
    before = asyncio.all_tasks()
    gateway = Gateway(one_pool([backend], log=LogSettings(requests=False)), lambda _: None)
    try:
        yield gateway
        assert gateway.requests_in_flight == 0
        assert [one.in_flight for one in gateway.router.fleet] == [0]
    finally:
        await gateway.close()
    await until(lambda: asyncio.all_tasks() <= before)


def posted(gateway: Gateway, body: bytes | None) -> Call:
    return Call(gateway, "POST", CHAT, [JSON], body)


async def test_a_body_in_parts_gets_its_answer_whole() -> None:
    async with Backend(lambda _: json_script({"a": 1})) as backend, under_another_server(backend) as gateway:
        async with posted(gateway, None) as call:
            call.feed(b'{"model"')
            call.feed(b':"m"}', more=False)
            status, _ = await call.start()
            assert (status, await call.body()) == (200, b'{"a": 1}')
            await call.result()
        assert (await backend.exchange()).request.body == b'{"model":"m"}'


async def test_a_stream_is_passed_on_while_it_comes() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: sse_script(EVENT, gate, b"[DONE]")) as backend,
        under_another_server(backend) as gateway,
        posted(gateway, b'{"stream":true}') as call,
    ):
        assert (await call.start())[0] == 200
        assert (await call.message())["body"] == b"data: " + EVENT + b"\n\n"
        gate.set()
        assert await call.body() == b"data: [DONE]\n\n"
        await call.result()


@pytest.mark.parametrize("script", [Script(before_head=Gate()), sse_script(EVENT, Gate())])
async def test_a_client_that_leaves_ends_its_request_at_the_engine(script: Script) -> None:
    async with (
        Backend(lambda _: script) as backend,
        under_another_server(backend) as gateway,
        posted(gateway, b'{"stream":true}') as call,
    ):
        exchange = await backend.exchange()
        if not script.before_head:
            await call.start()
            await call.message()
        call.disconnect()
        await call.result()
        await exchange.peer_closed.wait()
        assert not call.sent or call.sent[-1].get("more_body"), "no end that looks like a whole answer's"


async def test_a_client_that_leaves_in_its_body_leaves_nothing_behind() -> None:
    async with Backend() as backend, under_another_server(backend) as gateway, posted(gateway, None) as call:
        call.feed(b"{")
        await until(lambda: gateway.requests_in_flight == 1)
        call.disconnect()
        await call.result()
        assert call.sent == []


async def test_what_runs_at_the_end_is_told_so() -> None:
    async with (
        Backend(lambda _: Script(before_head=Gate())) as backend,
        under_another_server(backend) as gateway,
        posted(gateway, b"{}") as call,
    ):
        await backend.exchange()
        gateway.interrupt_all()
        status, headers = await call.start()
        assert (status, dict(headers)[b"x-headrace-reason"]) == (503, b"shutting_down")
        await call.body()
        await call.result()
