"""The load that the emulated engine tells on its answers, to who asks for it."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from gateway.emulator.settings import EngineSettings
from gateway.engine_report import read_load_header
from tests import client
from tests.captures import load
from tests.emulator.running import chat_request, engine, until

LONG = 30_000
ASKS = b"endpoint-load-metrics-format"
TELLS = b"endpoint-load-metrics"


@pytest.mark.parametrize("name", ["chat-orca-json", "chat-orca-text"])
async def test_an_idle_engine_tells_its_load_to_the_byte_as_it_was_captured(name: str) -> None:
    [capture] = [one for one in load("vllm-0.32.0") if one.name == name]
    async with engine(EngineSettings(time_scale=0, model="tiny", max_model_len=8192)) as server:
        answer = await client.send(server.port, capture.request())
        assert answer.value(TELLS) == capture.answer.value(TELLS) is not None


@pytest.mark.parametrize(
    ("headers", "fields", "status"),
    [
        ((), {}, 200),
        (((ASKS, b"BIN"),), {}, 200),
        (((ASKS, b"TEXT"),), {"stream": True}, 200),
        (((ASKS, b"TEXT"),), {"model": "another"}, 404),
    ],
    ids=["not asked", "another form", "stream", "error"],
)
async def test_no_other_answer_tells_the_load(
    headers: tuple[tuple[bytes, bytes], ...], fields: dict[str, object], status: int
) -> None:
    async with engine() as server:
        answer = await client.send(server.port, chat_request("hello", headers, **fields))
        assert (answer.status, answer.value(TELLS)) == (status, None)


async def test_the_load_is_told_as_it_is_when_the_answer_leaves() -> None:
    settings = EngineSettings(base_ms=20, slope_ms=0, max_num_seqs=1)
    async with engine(settings) as server, AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(await client.connect(server.port)) for _ in range(4)]
        first, short, *_ = connections
        for count, connection in enumerate(connections, 1):
            tokens = 1 if connection is short else LONG
            await connection.send(chat_request("hello", ((ASKS, b"text"),), max_tokens=tokens))
            await until(lambda count=count: server.engine.load == count)  # type: ignore[misc]
        first.close()
        told = read_load_header((await short.read_answer()).value(TELLS) or b"")
        assert told.waiting == 1, "of two that waited, one has its place by now"
        assert told.kv_usage is not None and 0 < told.kv_usage < 1
