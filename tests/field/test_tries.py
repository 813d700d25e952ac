"""Second tries and the connections they need: bounded, elsewhere, and never on a client's account."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import openai
import pytest

from gateway.settings import RetrySettings, ServerSettings
from tests.backend import Backend, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.field.official import node_hears, official
from tests.running import running

EVENT = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'
FINISH = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


async def test_b053_a_full_engine_is_not_asked_again_and_the_client_is_told_when_to_come_back() -> None:
    headers = [(b"Retry-After", b"2"), (b"x-ratelimit-remaining-requests", b"0")]
    full = Script(status=429, headers=headers, chunks=[b"{}"])
    async with Backend(lambda _: full) as backend, running(backend) as gateway:
        for stream in (False, True):
            answer = await gateway.post({"stream": stream})
            assert (answer.status, answer.value(b"retry-after")) == (429, b"2")
        assert len(backend.exchanges) == 2


async def test_b054_tries_of_client_and_gateway_do_not_multiply() -> None:
    calls, client_tries = 50, 3
    retries = RetrySettings(max_retries=2, budget_share=0.2, budget_floor=1)
    full = Script(status=503, headers=[(b"retry-after-ms", b"1")], chunks=[b"{}"])
    async with AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(Backend(lambda _: full)) for _ in range(3)]
        gateway = await stack.enter_async_context(running(*fleet, retries=retries))
        api = await stack.enter_async_context(official(gateway, retries=client_tries - 1))

        async def call() -> None:
            with pytest.raises(openai.InternalServerError):
                await api.chat.completions.create(model="m", messages=[])

        await asyncio.gather(*[call() for _ in range(calls)])
        came = calls * client_tries
        hits = sum(len(backend.exchanges) for backend in fleet)
        second_tries = gateway.metric("headrace_retries_total")
        assert hits == came + second_tries
        # As documented: a share of the requests, or the floor for each of the ten seconds that are remembered.
        assert second_tries <= max(0.2 * came, 1 * 10)
        assert gateway.metric("headrace_retry_budget_refusals_total") > 0


async def test_b062_six_hundred_streams_to_one_engine_run_at_once() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: sse_script(EVENT, gate, FINISH, b"[DONE]")) as backend,
        running(backend) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = [await stack.enter_async_context(await gateway.begin(b'{"stream":true}')) for _ in range(600)]
        await backend.until(lambda: len(backend.exchanges) == 600)
        assert gateway.metric("headrace_upstream_connections", state="busy") == 600
        assert gateway.metric("headrace_requests_waiting") == 0
        gate.set()
        answers = [await connection.read_answer() for connection in crowd]
        assert all(answer.status == 200 and answer.complete for answer in answers)
        assert gateway.metric("headrace_refusals_total") == 0


async def test_b063_a_client_keeps_its_connection_between_turns_for_longer_than_others_do() -> None:
    assert ServerSettings().keep_alive_seconds > 60, "what load balancers and the clients' pools keep"

    chat = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    async with (
        Backend(lambda _: json_script(chat)) as backend,
        running(backend) as gateway,
        official(gateway) as api,
    ):
        for _ in range(100):
            await api.chat.completions.create(model="m", messages=[])
        assert gateway.server.connections == 1
        assert len({exchange.connection for exchange in backend.exchanges}) == 1
        backend.script = lambda _: sse_script(EVENT, FINISH, b"[DONE]")
        seen = set(gateway.server._state.connections)

        async def watch() -> None:
            while True:
                seen.update(gateway.server._state.connections)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        heard = await node_hears(gateway, 20)
        watching.cancel()
        await asyncio.wait([watching])
        assert [one.error for one in heard] == [None] * 20
        # Node may begin a turn before it has read the end of the last one, which takes a second connection.
        assert 2 <= len(seen) <= 3
        await until(gateway.is_quiet)


async def test_b084_a_stream_that_is_left_gives_its_slot_to_the_next() -> None:
    def script(request: Request) -> Script:
        return json_script({}) if request.body == b"{}" else sse_script(EVENT, EVENT, Gate())

    async with Backend(script) as backend, running(backend, window=1) as gateway:
        for number in range(50):
            async with await gateway.begin(b'{"stream":true}') as connection:
                await anext(connection.pieces(await connection.read_head()))
            await (await backend.exchange(2 * number)).peer_closed.wait()
            assert (await gateway.post({})).status == 200
        assert gateway.metric("headrace_aborts_total", cause="client_left") == 50
