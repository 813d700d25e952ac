"""A client that goes away takes its work off the engine, as the engine's own counters tell.

Asked directly as well: an engine that went on by itself would make the gateway's test say nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from tests.engine.engines import ENGINES, MODEL, Engine, EngineName, Load, read_load

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(240, func_only=True),
    pytest.mark.parametrize("engine", ENGINES, indirect=True),
    pytest.mark.parametrize("way", ["directly", "through-the-gateway"]),
]

# A bound against hanging, not a measure: SGLang looks for a plain call's client every 4 s, and on two busy
# cores an engine's HTTP side has been seen to stand still for 13 s.
LOOKED_FOR_SECONDS = 60
# Whether an engine stopped early is read from its counters, so the answer must not end while the test looks.
# A full context takes half a minute; eight of them more than one. SGLang gets one: for several answers it first
# runs a request of its own to warm its cache, which counts as completed.
ANSWERS: dict[EngineName, int] = {"vllm": 8, "sglang": 1}
# More than the eight that an engine runs at once.
CROWD = 12

Clients = Callable[[str], openai.AsyncOpenAI]


def endless(engine: Engine) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Do not stop."}],
        "n": ANSWERS[engine.name],
        "max_tokens": 8_000,
        "extra_body": {"ignore_eos": True},
    }


async def test_leaving_a_stream_ends_it_in_the_engine(
    engine: Engine, gateway: str, way: str, openai_client: Clients
) -> None:
    client = openai_client(engine.url if way == "directly" else gateway)
    async with httpx.AsyncClient(timeout=LOOKED_FOR_SECONDS) as watcher:
        before = await _load_when(watcher, engine, lambda load: load.running == 0)
        stream = await client.chat.completions.create(stream=True, **endless(engine))
        await anext(aiter(stream))
        await _load_when(watcher, engine, lambda load: load.running > 0)

        await stream.close()

        after = await _load_when(watcher, engine, lambda load: load.running == 0)
    assert after.completed <= before.completed


async def test_leaving_a_plain_call_ends_it_in_the_engine(
    engine: Engine, gateway: str, way: str, openai_client: Clients
) -> None:
    client = openai_client(engine.url if way == "directly" else gateway)
    async with httpx.AsyncClient(timeout=LOOKED_FOR_SECONDS) as watcher:
        before = await _load_when(watcher, engine, lambda load: load.running == 0)
        call = asyncio.create_task(client.chat.completions.create(**endless(engine)))
        await _load_when(watcher, engine, lambda load: load.running > 0)

        call.cancel()

        after = await _load_when(watcher, engine, lambda load: load.running == 0)
    assert after.completed <= before.completed


async def test_a_crowd_that_leaves_at_once_empties_the_engine_and_its_queue(
    engine: Engine, gateway: str, way: str, openai_client: Clients
) -> None:
    client = openai_client(engine.url if way == "directly" else gateway)
    async with httpx.AsyncClient(timeout=LOOKED_FOR_SECONDS) as watcher:
        before = await _load_when(watcher, engine, lambda load: load.running == 0)
        crowd = [asyncio.create_task(_read_to_the_end(client, engine)) for _ in range(CROWD)]
        await _load_when(watcher, engine, lambda load: load.running > 0)

        for member in crowd:
            member.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)

        after = await _load_when(watcher, engine, lambda load: load.running + load.waiting == 0)
    assert after.completed <= before.completed


async def _read_to_the_end(client: openai.AsyncOpenAI, engine: Engine) -> None:
    async with await client.chat.completions.create(stream=True, **endless(engine)) as stream:
        async for _ in stream:
            pass


async def _load_when(watcher: httpx.AsyncClient, engine: Engine, condition: Callable[[Load], bool]) -> Load:
    """The engine's load at the first look that satisfies the condition."""
    async with asyncio.timeout(LOOKED_FOR_SECONDS):
        while not condition(load := await read_load(watcher, engine)):
            pass
    return load
