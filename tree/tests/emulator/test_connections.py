"""Leaving, waiting, queueing and reusing connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from gateway.emulator.server import start
from gateway.emulator.settings import EngineSettings, SchedulingPolicy
from tests import client
from tests.emulator.captures import captured_answer
from tests.emulator.running import CHAT, JSON, chat, chat_body, chat_request, decoded, engine, get, until

ENDLESS = EngineSettings(base_ms=20, slope_ms=0, max_num_seqs=1)
LONG = 30_000


@pytest.mark.parametrize(
    "leave", [client.Connection.close, client.Connection.shut_write, client.Connection.reset]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_takes_its_running_and_its_waiting_request_with_it(
    leave: Callable[[client.Connection], None], stream: bool
) -> None:
    async with engine(ENDLESS) as server:
        running, waiting = await client.connect(server.port), await client.connect(server.port)
        async with running, waiting:
            await running.send(chat_request(stream=stream, max_tokens=LONG, n=2, temperature=1))
            await waiting.send(chat_request(stream=stream, max_tokens=LONG))
            await until(lambda: server.engine.load == 3)
            leave(waiting)
            await until(lambda: server.engine.load == 2)
            leave(running)
            await until(lambda: server.engine.load == 0)
        await until(lambda: server.connections == 0)
        assert sum(server.engine.measurements.success.values()) == 0
        assert server.engine.blocks.used == 0


async def test_a_stream_has_its_headers_while_it_waits_for_a_slot() -> None:
    async with (
        engine(ENDLESS) as server,
        await client.connect(server.port) as running,
        await client.connect(server.port) as waiting,
    ):
        await running.send(chat_request(stream=True, max_tokens=LONG))
        await until(lambda: len(server.engine.running) == 1)
        await waiting.send(chat_request(stream=True, max_tokens=LONG))
        assert (await waiting.read_head()).status == 200
        assert len(server.engine.waiting) == 1
        assert decoded(await get(server, "/load")) == {"server_load": 2}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_queue_is_a_503_in_the_captured_words_while_health_stays_good(stream: bool) -> None:
    settings = EngineSettings(base_ms=20, slope_ms=0, max_num_seqs=1, max_num_queued_reqs=2)
    async with engine(settings) as server:
        async with await client.connect(server.port) as one, await client.connect(server.port) as other:
            for connection in (one, other):
                await connection.send(chat_request(max_tokens=LONG))
            await until(lambda: server.engine.load == 2)
            refused = await chat(server, stream=stream)
            assert refused.status == 503
            assert refused.body == captured_answer("variants/queue-full")
            assert refused.value(b"retry-after") is None
            assert (await get(server, "/health")).status == 200
            metrics = (await get(server, "/metrics")).body
        assert (
            b'vllm:admission_rejections_total{model_name="emulated",reason="max_num_queued_reqs"} 1.0'
            in metrics
        )
        await until(lambda: server.engine.load == 0)
        assert (await chat(server, max_tokens=1)).status == 200


async def test_the_priority_header_overrides_the_body_and_rubbish_in_it_is_ignored() -> None:
    settings = EngineSettings(
        base_ms=20, slope_ms=0, max_num_seqs=1, scheduling_policy=SchedulingPolicy.PRIORITY
    )
    async with engine(settings) as server:
        async with await client.connect(server.port) as running:
            await running.send(chat_request(max_tokens=LONG))
            await until(lambda: len(server.engine.running) == 1)
            order: list[str] = []

            async def ask(name: str, header: bytes, in_body: int) -> None:
                request = chat_request(name, ((b"X-Vllm-Priority", header),), priority=in_body, max_tokens=1)
                assert (await client.send(server.port, request)).status == 200
                order.append(name)

            requests = [("last", b"9", -9), ("middle", b"none", 0), ("first", b"-9", 9)]
            asking = []
            for count, (name, header, in_body) in enumerate(requests, 1):
                asking.append(asyncio.create_task(ask(name, header, in_body)))
                await until(lambda count=count: len(server.engine.waiting) == count)  # type: ignore[misc]
        await asyncio.gather(*asking)
        assert order == ["first", "middle", "last"]


async def test_requests_of_one_connection_are_answered_in_order_even_if_they_come_together() -> None:
    async with engine() as server:
        async with await client.connect(server.port) as connection:
            requests = [chat_request(request_id=str(number), stream=number % 2 == 0) for number in range(4)]
            await connection.send(b"".join(requests))
            answers = [await connection.read_answer() for _ in requests]
        assert all(answer.complete for answer in answers)
        assert [b'"id":"chatcmpl-%d"' % number in answer.body for number, answer in enumerate(answers)] == [
            True
        ] * 4


async def test_a_reader_that_reads_nothing_does_not_hold_up_the_engine() -> None:
    async with engine() as server:
        async with await client.connect(server.port, receive_buffer_bytes=4096) as connection:
            await connection.send(chat_request(stream=True, max_tokens=4000))
            await until(lambda: server.engine.measurements.generation_tokens == 4000)
            answer = await connection.read_answer()
        assert answer.complete
        assert len(answer.chunk_sizes) == 4000 + 3, "role, tokens, [DONE] and the final chunk"


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async with (
        engine(EngineSettings(base_ms=20, slope_ms=0, keep_alive_seconds=1)) as server,
        await client.connect(server.port) as busy,
        await client.connect(server.port) as idle,
    ):
        await busy.send(chat_request(stream=True, max_tokens=LONG))
        await until(lambda: len(server.engine.running) == 1)
        assert await idle.read_some() == b""
        assert len(server.engine.running) == 1


async def test_http_1_0_and_connection_close_end_the_connection_after_the_answer() -> None:
    async with engine() as server:
        for request in (
            client.request("POST", CHAT, [JSON], chat_body(), version=b"HTTP/1.0"),
            chat_request("x", ((b"Connection", b"close"),)),
        ):
            async with await client.connect(server.port) as connection:
                await connection.send(request)
                answer = await connection.read_answer()
                assert answer.value(b"connection") == b"close"
                assert await connection.read_some() == b""


async def test_a_body_in_chunks_and_one_that_waits_for_100_continue_are_read() -> None:
    async with engine() as server:
        body = chat_body("水利" * 100)
        chunked = client.request("POST", CHAT, [JSON], body, chunk_bytes=7)
        assert (await client.send(server.port, chunked)).status == 200
        async with await client.connect(server.port) as connection:
            whole = client.request("POST", CHAT, [JSON, (b"Expect", b"100-continue")], body)
            await connection.send(whole[: -len(body)])
            assert b"100 Continue" in await connection.read_some()
            await connection.send(body, more=True)
            assert (await connection.read_answer()).status == 200


async def test_what_is_no_http_gets_a_400_and_a_body_beyond_the_bound_a_413() -> None:
    async with engine(EngineSettings(time_scale=0, max_body_bytes=100)) as server:
        assert (await client.send(server.port, b"nonsense\r\n\r\n")).status == 400
        assert (await chat(server, "x" * 200)).status == 413


async def test_it_listens_on_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")
    server = await start(EngineSettings(time_scale=0), "", 0, path)
    try:
        async with await client.connect(path=path) as connection:
            await connection.send(chat_request())
            assert orjson.loads((await connection.read_answer()).body)["model"] == "emulated"
    finally:
        await server.close()
