"""The real engines are told apart, and their own load is read while they are busy."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from gateway.engine_pages import EnginePages
from gateway.foreign_page import ForeignPages
from gateway.settings import BackendSettings
from policies.dialects import Dialect, EngineReport
from policies.restart import has_restarted, would_tell
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


async def test_the_dialect_of_an_engine_is_found_and_its_load_follows_what_it_does(engine: Engine) -> None:
    foreign = ForeignPages(BackendSettings(url=engine.url), 30)
    async with httpx.AsyncClient(base_url=engine.url, timeout=30) as client:
        pages = EnginePages(foreign)
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
        # By these a restart is known.
        if dialect is Dialect.VLLM:
            assert busy.started_at is not None and busy.started_at > 1e9
            assert busy.prefix_hits is not None and busy.prefix_queries is not None
            assert 0 <= busy.prefix_hits <= busy.prefix_queries > 0
        else:
            assert busy.prefilled_tokens is not None and busy.prefilled_tokens > 0
        idle = await _report(pages, lambda report: report.running == 0)
        assert would_tell(busy, idle) and not has_restarted(busy, idle)
    foreign.close()


async def _report(pages: EnginePages, wanted: Callable[[EngineReport], bool]) -> EngineReport:
    async with asyncio.timeout(30):
        while True:
            report = await pages.load()
            assert report is not None
            if wanted(report):
                return report
