"""The load that an engine tells on its answers: who is asked for it, what becomes of it, and what a client sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pytest

from gateway.emulator.settings import EngineSettings
from gateway.settings import (
    BackendSettings,
    PoolSettings,
    ProbeSettings,
    ServerSettings,
    Settings,
    WindowSettings,
)
from policies.dialects import Dialect, EngineReport
from routing.backend import Backend as Known
from tests import client
from tests.backend import Backend, Request, Script, json_script, sse_script
from tests.captures import load
from tests.emulator.running import engine, until
from tests.running import CHAT, Running, Served, running_with

COMPLETIONS = "/v1/completions"
ASKS = b"endpoint-load-metrics-format"
TELLS = b"endpoint-load-metrics"
TOLD = b"TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.5"
MOVING = WindowSettings(min=1, max=8)
PAGE = b'vllm:num_requests_running{engine="0"} 7.0\nvllm:prefix_cache_hits_total{engine="0"} 5.0\n'
"""Of a load that an answer does not tell; it says nothing of queue and cache, so that the first request is asked for them."""
ONCE = ProbeSettings(load_seconds=3600)


def settings_of(*backends: Served, window: WindowSettings | None = MOVING) -> Settings:
    served = tuple(BackendSettings(url=backend.url) for backend in backends)
    pool = PoolSettings(name="p", window=window, backends=served)
    return Settings(pools=(pool,), server=ServerSettings(port=0), probes=ONCE)


def telling(value: bytes = TOLD) -> Backend:
    """A vLLM that tells its load on every answer, asked or not."""

    def script(request: Request) -> Script:
        streamed = request.json().get("stream")
        answer = sse_script(b"{}", b"[DONE]") if streamed else json_script({"choices": []})
        return Script(headers=[*answer.headers, (TELLS, value)], chunks=answer.chunks, framing=answer.framing)

    backend = Backend(script)
    backend.probes["/metrics"] = Script(chunks=[PAGE])
    return backend


def known(gateway: Running) -> Known:
    [backend] = gateway.gateway.router.fleet
    return backend


async def loads_read(gateway: Running) -> None:
    await until(lambda: all(one.report is not None for one in gateway.gateway.router.fleet))


@pytest.mark.parametrize("window", [MOVING, WindowSettings()], ids=["moving", "automatic"])
@pytest.mark.parametrize("target", [CHAT, COMPLETIONS])
async def test_vllm_is_asked_for_its_load_and_what_the_page_told_beside_it_stays_known(
    target: str, window: WindowSettings
) -> None:
    async with telling() as backend, running_with(settings_of(backend, window=window)) as gateway:
        await loads_read(gateway)
        answer = await gateway.post({"stream": False}, target)
        assert answer.status == 200 and answer.value(TELLS) is None, "the client did not ask"
        assert answer.body == b'{"choices": []}'
        assert backend.exchanges[0].request.values(ASKS) == [b"TEXT"]
        assert known(gateway).report == EngineReport(waiting=3, running=7, kv_usage=0.5, prefix_hits=5)
        assert gateway.metric("headrace_engine_requests_waiting") == 3
        assert gateway.metric("headrace_engine_requests_running") == 7


@pytest.mark.parametrize(
    ("body", "target"),
    [
        ({"stream": True}, CHAT),
        ({"input": "x"}, "/v1/embeddings"),
        ({"input": "x"}, "/v1/responses"),
    ],
)
async def test_nothing_is_asked_along_with_what_vllm_tells_no_load_on(
    body: dict[str, Any], target: str
) -> None:
    async with telling() as backend, running_with(settings_of(backend)) as gateway:
        await loads_read(gateway)
        answer = await gateway.post(body, target)
        assert backend.exchanges[0].request.value(ASKS) is None
        assert answer.value(TELLS) == TOLD, "what the gateway did not ask for is the client's"
        assert known(gateway).report == EngineReport(running=7, prefix_hits=5)


@pytest.mark.parametrize(
    "window",
    [None, WindowSettings(max=8), WindowSettings(min=8, max=8), WindowSettings(max=8, max_tokens=1000)],
    ids=["none", "fixed", "from 8 to 8", "fixed, tokens"],
)
async def test_an_engine_whose_window_does_not_move_is_not_asked(window: WindowSettings | None) -> None:
    async with telling() as backend, running_with(settings_of(backend, window=window)) as gateway:
        await loads_read(gateway)
        answer = await gateway.post({})
        assert backend.exchanges[0].request.value(ASKS) is None
        assert answer.value(TELLS) == TOLD


async def test_an_engine_that_is_not_vllm_is_not_asked() -> None:
    async with telling() as backend:
        backend.probes["/version"] = Script(status=404, reason=b"Not Found")
        backend.probes["/ready"] = Script()
        backend.probes["/server_info"] = json_script({"model_path": "/m", "version": "0.5.23"})
        backend.probes["/v1/loads"] = json_script({"loads": [{"num_running_reqs": 0}]})
        async with running_with(settings_of(backend)) as gateway:
            await until(lambda: known(gateway).dialect is Dialect.SGLANG)
            backend.exchanges.clear()  # what it was asked on the way is no request
            await gateway.post({})
            assert backend.exchanges[0].request.value(ASKS) is None


@pytest.mark.parametrize("form", [b"JSON", b"text", b"", b"nonsense"])
async def test_a_client_that_asks_for_itself_gets_what_it_asked_for(form: bytes) -> None:
    async with telling() as backend, running_with(settings_of(backend)) as gateway:
        await loads_read(gateway)
        answer = await gateway.post({}, headers=[(b"Endpoint-Load-Metrics-Format", form)])
        assert backend.exchanges[0].request.values(ASKS) == [form]
        assert answer.value(TELLS) == TOLD


@pytest.mark.parametrize("value", [b"", b"BIN AAAA", b"TEXT nothing, at=all", b"JSON {"])
async def test_a_load_that_cannot_be_read_tells_nothing_and_is_kept_from_the_client(value: bytes) -> None:
    async with telling(value) as backend, running_with(settings_of(backend)) as gateway:
        await loads_read(gateway)
        answer = await gateway.post({})
        assert (answer.status, answer.value(TELLS)) == (200, None)
        assert known(gateway).report == EngineReport(running=7, prefix_hits=5)


async def test_an_engine_that_does_not_tell_costs_the_client_nothing() -> None:
    async with Backend() as backend, running_with(settings_of(backend)) as gateway:
        await until(lambda: known(gateway).dialect is Dialect.VLLM)
        answer = await gateway.post({})
        assert backend.exchanges[0].request.values(ASKS) == [b"TEXT"]
        assert answer.status == 200 and known(gateway).report is None


async def test_an_attempt_that_moves_asks_the_next_engine_for_itself() -> None:
    """The first one that is tried pushes back and tells its load with that; either may be it."""
    statuses: Iterator[int] = chain([503], repeat(200))

    def script(_: Request) -> Script:
        answer = json_script({"choices": []}, status=next(statuses))
        return Script(status=answer.status, headers=[*answer.headers, (TELLS, TOLD)], chunks=answer.chunks)

    async with Backend(script) as one, Backend(script) as two:
        for backend in (one, two):
            backend.probes["/metrics"] = Script(chunks=[PAGE])
        async with running_with(settings_of(one, two)) as gateway:
            await loads_read(gateway)
            answer = await gateway.post({})
            assert (answer.status, answer.value(TELLS)) == (200, None)
            asked = [backend.exchanges[0].request.values(ASKS) for backend in (one, two)]
            assert asked == [[b"TEXT"], [b"TEXT"]]
            assert [one.report and one.report.waiting for one in gateway.gateway.router.fleet] == [3, 3]


async def test_the_captured_answers_of_a_real_vllm_are_understood() -> None:
    [capture] = [one for one in load("vllm-0.32.0") if one.name == "chat-orca-text"]
    value = capture.answer.value(TELLS)
    assert value is not None
    async with telling(value) as backend, running_with(settings_of(backend)) as gateway:
        await loads_read(gateway)
        await gateway.post({})
        assert known(gateway).report == EngineReport(waiting=0, running=7, kv_usage=0.0, prefix_hits=5)


async def test_an_emulated_engine_is_asked_as_soon_as_its_page_is_an_old_one() -> None:
    settings = EngineSettings(time_scale=0, kv_blocks=2048)
    async with engine(settings) as server, running_with(settings_of(server)) as gateway:
        await loads_read(gateway)
        from_page = known(gateway).report
        answers: Sequence[client.Answer] = []
        async with asyncio.timeout(client.WAIT_SECONDS):
            while known(gateway).report is from_page:
                answers = [*answers, await gateway.post({"messages": [{"role": "user", "content": "hello"}]})]
        assert {(answer.status, answer.value(TELLS)) for answer in answers} == {(200, None)}
        assert known(gateway).report == from_page, "it is idle now as it was then, and its sizes are the same"
