"""The real engines are told apart, and their own load is read while they are busy."""

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest

from gateway.engine_pages import EnginePages
from gateway.engine_report import read_metrics
from policies.dialects import Dialect, EngineReport
from policies.restart import has_restarted, tells_life, would_tell
from tests.engine.engines import ENGINES, MODEL, Engine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(120, func_only=True),
    pytest.mark.parametrize("engine", ENGINES, indirect=True),
]

STREAM = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me a very long story."}],
    "max_tokens": 4000,
    "ignore_eos": True,
    "stream": True,
}
PROMPT_WORDS = 400
LONG_PROMPT = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Of restarts: " + "another word " * PROMPT_WORDS}],
    "max_tokens": 2,
}


async def test_the_dialect_of_an_engine_is_found_and_its_load_follows_what_it_does(engine: Engine) -> None:
    async with httpx.AsyncClient(base_url=engine.url, timeout=30) as client:
        pages = EnginePages(client)
        assert await pages.health() == ""
        dialect, flags = await pages.identify()
        assert dialect == engine.name and flags.version
        await _report(pages, lambda report: report.running == 0)
        async with client.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
            lines = answer.aiter_lines()  # kept: with it the answer would be closed
            await anext(lines)
            busy = await _report(pages, lambda report: report.running == 1)
        assert busy.waiting == 0 and busy.kv_usage is not None
        assert busy.token_capacity is not None and busy.token_capacity > 1000


async def test_an_engine_tells_what_a_restart_would_change_and_what_its_prefix_cache_found(
    engine: Engine,
) -> None:
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        pages = EnginePages(client)
        dialect, _ = await pages.identify()
        before = await pages.load()
        counters_before = read_metrics((await client.get("/metrics")).content, dialect)
        for _ in range(2):
            (await client.post("/v1/chat/completions", json=LONG_PROMPT)).raise_for_status()
        hit_before = counters_before.prefix_hits or 0  # SGLang has no such series before its first hit
        async with asyncio.timeout(30):
            while True:
                counters = read_metrics((await client.get("/metrics")).content, dialect)
                if (counters.prefix_hits or 0) - hit_before >= PROMPT_WORDS:
                    break
        after = await pages.load()
    assert before is not None and after is not None
    assert tells_life(before) and would_tell(before, after) and not has_restarted(before, after)
    assert counters.prefix_queries is not None and counters_before.prefix_queries is not None
    assert counters.prefix_queries - counters_before.prefix_queries >= 2 * PROMPT_WORDS
    if dialect is Dialect.VLLM:
        assert after.started_at == before.started_at
        assert after.started_at is not None and after.started_at <= time.time()
    else:
        assert after.started_at is None
        assert after.prefilled_tokens is not None and before.prefilled_tokens is not None
        assert after.prefilled_tokens - before.prefilled_tokens >= PROMPT_WORDS


async def _report(pages: EnginePages, wanted: Callable[[EngineReport], bool]) -> EngineReport:
    async with asyncio.timeout(30):
        while True:
            report = await pages.load()
            assert report is not None
            if wanted(report):
                return report
