"""A client that goes away ends the engine's work for it, on every route and whatever stands between; one that has had its answer is no abort."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.classifier_file import written
from gateway.session_settings import SessionSettings
from gateway.settings import (
    AnonymousSettings,
    BusinessTypeSettings,
    ClassifierSettings,
    MatchSettings,
    ServerSettings,
    TenantSettings,
)
from policies.terms import Lane
from policies.text_classifier import TextClassifier
from tests import client
from tests.backend import Backend, Gate, Request, Script, sse_script
from tests.emulator.running import until
from tests.redis_server import tcp_server
from tests.running import CHAT, post_request, running

EVENT = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'
LAST = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'

ROUTES = [
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/audio/transcriptions",
    "/v1/audio/speech",
    "/v1/something/new",
    "/generate",
]


async def test_b020_a_stream_that_is_left_ends_on_every_route() -> None:
    clock = asyncio.get_running_loop().time
    async with Backend(lambda _: sse_script(EVENT, Gate())) as backend, running(backend) as gateway:
        for number, target in enumerate(ROUTES):
            async with await gateway.begin(b'{"stream":true}', target) as connection:
                head = await connection.read_head()
                assert head.status == 200, target
                await anext(connection.pieces(head))
            left_at = clock()
            exchange = await backend.exchange(number)
            await exchange.peer_closed.wait()
            assert exchange.closed_at - left_at < 2.0, target
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_aborts_total", cause="client_left") == len(ROUTES)


KEY = (b"Authorization", b"Bearer bank-key")
BUSINESS = BusinessTypeSettings(
    name="cards", match=MatchSettings(keywords=("card",)), latency_target_ms=600_000
)
TENANT = TenantSettings(name="bank", key_sha256=(sha256(b"bank-key").hexdigest(),), max_lane=Lane.EMERGENCY)
IN_BETWEEN: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "cors": lambda _url, _model: {"server": ServerSettings(port=0, cors_origins=("*",))},
    "keys": lambda _url, _model: {"tenants": (TENANT,), "anonymous": AnonymousSettings(allow=False)},
    "business types": lambda _url, _model: {"business_types": (BUSINESS,)},
    "a classifier": lambda _url, model: {
        "business_types": (BUSINESS,),
        "classifier": ClassifierSettings(file=model),
    },
    "histories in redis": lambda url, _model: {"sessions": SessionSettings(redis_url=url)},
    "a window": lambda _url, _model: {"window": 4},
}


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with tcp_server() as server:
        yield server.url


@pytest.mark.parametrize("named", [(), *[(name,) for name in IN_BETWEEN], tuple(IN_BETWEEN)], ids="+".join)
async def test_b021_nothing_that_can_be_switched_on_hides_a_clients_leaving(
    named: Sequence[str], redis_url: str, tmp_path: Path
) -> None:
    model = tmp_path / "model.json"
    model.write_bytes(
        written(TextClassifier(("cards", "loans"), 10.0, {"plastic": (400, -400), "borrow": (-400, 400)}))
    )
    sections: dict[str, Any] = {}
    for name in named:
        sections |= IN_BETWEEN[name](redis_url, str(model))
    chat = {"model": "m", "messages": [{"role": "user", "content": "my plastic"}]}
    history = [(b"X-Headrace-Session", b"s"), (b"X-Headrace-History", b"server")]
    headers = [KEY, (b"Origin", b"https://a.example"), (b"traceparent", b"00-0af7-b7ad-01"), *history]
    async with (
        Backend(lambda _: Script(before_head=Gate())) as backend,
        running(backend, **sections) as gateway,
    ):
        async with await gateway.begin(chat, headers=headers):
            await (await backend.exchange()).body_complete.wait()
        left_at = asyncio.get_running_loop().time()
        await backend.exchanges[0].peer_closed.wait()
        assert backend.exchanges[0].closed_at - left_at < 2.0
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_aborts_total", cause="client_left") == 1
        assert gateway.metric("headrace_session_store_calls_total", outcome="ok") > 0 or (
            "histories in redis" not in named
        )
    [line] = gateway.log
    assert (line["outcome"], line["business"]) == (
        "aborted",
        "cards" if "a classifier" in named else "default",
    )


async def until_done_is_read(connection: client.Connection) -> None:
    seen = b""
    while b"data: [DONE]\n" not in seen:
        seen += await connection.read_some()


async def test_b024_who_closes_at_done_has_had_a_success_with_all_that_follows_once() -> None:
    times = 200

    def script(_: Request) -> Script:
        return sse_script(EVENT, LAST, USAGE, b"[DONE]", Gate())

    headers = [(b"X-Headrace-Session", b"s"), (b"X-Headrace-History", b"server")]
    async with Backend(script) as backend, running(backend) as gateway:
        for number in range(times):
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": f"{number}"}]}
            connection = await gateway.connect()
            await connection.send(post_request(body, headers=headers))
            await until_done_is_read(connection)
            connection.reset() if number % 2 else connection.close()
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_requests_total", status="2xx") == times
        assert gateway.metric("headrace_aborts_total") == gateway.metric("headrace_cut_answers_total") == 0
        assert gateway.metric("headrace_tokens_total", kind="completion") == 2 * times
        session = json.loads((await gateway.get("/v1/sessions/s")).body)
        assert session["seq"] == times, "each turn was kept, and once"
    assert [line["outcome"] for line in gateway.log] == ["ok"] * times
