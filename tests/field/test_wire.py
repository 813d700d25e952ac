"""Heads, bodies, statuses: what an engine and a client say to each other is passed on as it was said, and what the gateway says is in form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.session_settings import SessionSettings
from gateway.settings import (
    AnonymousSettings,
    BusinessTypeSettings,
    QueueSettings,
    ServerSettings,
    TenantSettings,
)
from policies.terms import Lane
from tests import client
from tests.backend import Backend, Framing, Gate, Request, Script, json_script, sse_script
from tests.field.official import CLIENTS, Heard, official
from tests.gateway_process import GatewayProcess
from tests.running import CHAT, JSON, Running, running
from tests.script import SSE

clients = pytest.mark.parametrize("hears", CLIENTS.values(), ids=CLIENTS.keys())
Hears = Callable[[Running, int], Awaitable[list[Heard]]]


@pytest.mark.parametrize("status", [200, 400])
async def test_b027_a_compressed_answer_is_said_to_be_and_is(status: int) -> None:
    packed = gzip.compress(b'{"a":1}', mtime=0)
    script = Script(status=status, headers=[JSON, (b"content-encoding", b"gzip")], chunks=[packed])
    async with (
        Backend(lambda _: script) as backend,
        running(backend) as gateway,
        httpx.AsyncClient() as web,
    ):
        answer = await web.post(f"{gateway.url}{CHAT}", json={}, headers={"Accept-Encoding": "gzip"})
        assert (answer.status_code, answer.json()) == (status, {"a": 1})
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["content-length"] == f"{len(packed)}"


async def test_b030_an_engines_wish_to_be_left_alone_reaches_the_client_which_obeys_it() -> None:
    headers = [(b"Retry-After", b"7"), (b"x-ratelimit-remaining-requests", b"0")]
    busy = Script(status=429, headers=headers, chunks=[b"{}"])
    chat = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    async with Backend(lambda _: busy) as backend, running(backend) as gateway:
        answer = await gateway.post({})
        assert [answer.value(name.lower()) for name, _ in headers] == [value for _, value in headers]
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            backend.script = lambda _: json_script(chat)

        async with official(gateway, retries=1) as api:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("openai._base_client.anyio.sleep", sleep)
                await api.chat.completions.create(model="m", messages=[])
        assert waits == [7.0]


async def test_b033_a_browser_is_told_its_rights_without_a_key_and_on_every_refusal() -> None:
    origin = (b"Origin", b"https://a.example")
    server = ServerSettings(port=0, cors_origins=("https://a.example",))
    tenants = (TenantSettings(name="bank", key_sha256=(sha256(b"bank-key").hexdigest(),)),)
    closed = AnonymousSettings(allow=False)
    full = QueueSettings(max_waiting=0)
    gate = Gate()
    async with (
        Backend(lambda _: Script(status=429, before_head=gate)) as backend,
        running(backend, server=server, tenants=tenants, anonymous=closed, window=1, queue=full) as gateway,
    ):

        async def allowed(headers: list[tuple[bytes, bytes]]) -> int:
            answer = await gateway.post({}, headers=[origin, *headers])
            assert answer.value(b"access-control-allow-origin") == origin[1]
            return answer.status

        ask = [
            origin,
            (b"Access-Control-Request-Method", b"POST"),
            (b"Access-Control-Request-Headers", b"authorization,content-type"),
        ]
        preflight = await gateway.send(client.request("OPTIONS", CHAT, ask))
        assert preflight.status in (200, 204)
        assert preflight.value(b"access-control-allow-origin") == origin[1]
        assert b"POST" in (preflight.value(b"access-control-allow-methods") or b"")
        assert b"authorization" in (preflight.value(b"access-control-allow-headers") or b"").lower()
        assert await allowed([]) == 401
        assert await allowed([(b"Authorization", b"Bearer wrong")]) == 401
        key = (b"Authorization", b"Bearer bank-key")
        async with await gateway.begin({}, headers=[key]) as running_one:
            await backend.exchange()
            assert await allowed([key]) == 503
            gate.set()
            assert (await running_one.read_answer()).status == 429
        assert await allowed([key]) == 429


STRICT_BODIES: dict[str, bytes] = {
    CHAT: b'{"model":"m","messages":[{"role":"user","content":"x"}]}',
    "/v1/completions": b'{"model":"m","prompt":"x"}',
    "/v1/embeddings": b'{"model":"m","input":"x"}',
    "/v1/responses": b'{"model":"m","input":"x"}',
    "/v1/messages": b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}',
    "/v1/rerank": b'{"model":"m","query":"x","documents":["y"]}',
    "/v1/score": b'{"model":"m","text_1":"x","text_2":"y"}',
    "/tokenize": b'{"model":"m","prompt":"x"}',
    "/generate": b'{"text":"x"}',
}


async def test_b036_no_key_that_the_client_did_not_send_reaches_an_engine() -> None:
    hints = [
        (b"x-headrace-session", b"s"),
        (b"x-priority", b"interactive"),
        (b"x-headrace-deadline-ms", b"60000"),
        (b"x-business-type", b"cards"),
    ]
    features: dict[str, Any] = {
        "anonymous": AnonymousSettings(trust_headers=True, max_lane=Lane.EMERGENCY),
        "business_types": (BusinessTypeSettings(name="cards", lane=Lane.BATCH, latency_target_ms=60_000),),
        "sessions": SessionSettings(),
    }
    async with Backend() as backend, running(backend, window=4, **features) as gateway:
        for target, body in STRICT_BODIES.items():
            for streamed in (b"", b',"stream":false'):
                sent = body[:-1] + streamed + b"}"
                answer = await gateway.post(sent, target, hints)
                assert answer.status == 200
                assert (answer.value(b"x-headrace-route") or b"").startswith(b"business=cards;")
                got = backend.exchanges.pop().request
                assert got.body == sent
                assert not [name for name, _ in got.headers if name.startswith((b"x-headrace", b"x-prio"))]


LENIENT = [
    b'{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}',
    b'{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function"}]}]}',
    b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"zz"}]}]}',
    b'{"model":"m","messages":[],"tool_choice":{"type":"function","function":{"name":"f"}}}',
    b'{"model":"m","prompt":"x","stop":"y"}',
    b'{"model":"m","prompt":["x","y"],"stop":["y","z"]}',
    b'{"model":"m","prompt":[1,2,3]}',
    b'{"model":"m","prompt":[[1,2],[3]],"max_tokens":1.0}',
    b'{"model":"m","messages":{"role":"user"},"max_tokens":"7","n":null,"stream":null}',
    b'{"model":"m","messages":[1,"x",null,[]],"tools":"x","functions":7,"user":{}}',
]


async def test_b038_what_only_the_engine_can_judge_reaches_it_unchanged() -> None:
    async with Backend() as backend, running(backend, window=4) as gateway:
        for body in LENIENT:
            for target in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"):
                answer = await gateway.post(body, target)
                assert answer.status == 200, (target, body, answer.body)
                assert backend.exchanges.pop().request.body == body


ODD_JSON = (
    b'{"choices":[{"index":0,"logprobs":{"logprob":-Infinity,"a":NaN,"b":1e400,"c":-0.0,"d":12345678901234567890},'
    b'"t":"\\ud800","delta":{},"finish_reason":"stop"}],"x":1,"x":2,"usage":{"prompt_tokens":3,"completion_tokens":2}}'
)


async def test_b041_numbers_that_json_does_not_have_pass_and_usage_beside_them_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def script(request: Request) -> Script:
        if b"stream" in request.body:
            said = [b"data: " + ODD_JSON + b"\n\n", b"data: [DONE]\n\n"]
            return Script(headers=[SSE], chunks=said, framing=Framing.CHUNKED)
        return Script(headers=[JSON], chunks=[ODD_JSON])

    async with Backend(script) as backend, running(backend) as gateway:
        plain = await gateway.post({})
        assert (plain.status, plain.body) == (200, ODD_JSON)
        assert gateway.metric("headrace_tokens_total", kind="completion") == 2
        streamed = await gateway.post({"stream": True})
        assert streamed.body == b"data: " + ODD_JSON + b"\n\ndata: [DONE]\n\n" and streamed.complete
        assert gateway.metric("headrace_tokens_total", kind="completion") == 4
        assert gateway.metric("headrace_cut_answers_total") == 0
    assert not [record for record in caplog.records if record.exc_info]


@clients
@pytest.mark.parametrize("code", [400, 429, 500])
async def test_b045_an_error_under_status_200_is_raised_by_the_client_and_is_no_success(
    hears: Hears, code: int
) -> None:
    event = b'{"error":{"message":"the engine said no","type":"y","code":%d}}' % code
    async with Backend(lambda _: sse_script(event, b"[DONE]")) as backend, running(backend) as gateway:
        answer = await gateway.post({"stream": True})
        assert answer.body == b"data: " + event + b"\n\ndata: [DONE]\n\n"
        assert gateway.metric("headrace_cut_answers_total") == 1
        [heard] = await hears(gateway, 1)
        assert heard.chunks == [] and "the engine said no" in (heard.error or "")
        assert gateway.metric("headrace_cut_answers_total") == 2
        assert gateway.present() == [True]


@pytest.mark.parametrize("status", [401, 429])
async def test_b048_an_error_stays_an_error_where_a_name_is_rewritten(status: int) -> None:
    error = {"error": {"message": "not you", "type": "authentication_error", "param": None, "code": status}}
    async with (
        Backend(lambda _: json_script(error, status=status)) as backend,
        running(backend, aliases={"fast": "m"}) as gateway,
    ):
        for stream in (False, True):
            answer = await gateway.post({"model": "fast", "stream": stream})
            assert (answer.status, json.loads(answer.body)) == (status, error)
        async with official(gateway) as api:
            with pytest.raises(openai.APIStatusError) as caught:
                await api.chat.completions.create(model="fast", messages=[])
        assert caught.value.status_code == status and "not you" in caught.value.message


ENGINES: dict[str, Script] = {
    "404 json": json_script({"error": {"message": "no"}}, status=404),
    "422 text": Script(status=422, headers=[(b"content-type", b"text/plain")], chunks=[b"no such field"]),
    "500 empty": Script(status=500),
    "418 html": Script(status=418, headers=[(b"content-type", b"text/html")], chunks=[b"<p>teapot</p>"]),
}


@pytest.mark.parametrize("script", ENGINES.values(), ids=ENGINES.keys())
async def test_b047_an_engines_refusal_keeps_its_status_its_type_and_its_body(script: Script) -> None:
    async with Backend(lambda _: script) as backend, running(backend) as gateway:
        for stream in (False, True):
            answer: Any = await gateway.post({"stream": stream})
            assert (answer.status, answer.body) == (script.status, b"".join(script.chunks))  # type: ignore[arg-type]
            assert answer.value(b"content-type") == (script.headers[0][1] if script.headers else None)
            assert answer.complete and answer.value(b"x-headrace-reason") is None


async def test_b039_a_body_above_the_limit_takes_no_more_memory_than_the_limit(tmp_path: Path) -> None:
    limit, large = 16 << 20, 50 << 20
    config = tmp_path / "headrace.yaml"
    async with Backend() as backend:
        pools = [{"name": "p", "backends": [{"url": backend.url}]}]
        config.write_text(json.dumps({"pools": pools, "server": {"max_body_mb": limit >> 20}}))
        async with GatewayProcess("--config", str(config)) as gateway:

            def most_bytes() -> int:
                status = Path(f"/proc/{gateway.pid}/status").read_text()
                return 1024 * int(status.split("VmHWM:")[1].split()[0])

            async def send(size: int, chunk_bytes: int) -> client.Answer:
                body = b'{"model":"m","x":"' + b"x" * (size - 20) + b'"}'
                raw = client.request("POST", CHAT, [JSON], body, chunk_bytes=chunk_bytes)
                return await client.send(gateway.port, raw)

            for chunk_bytes in (0, 65_536):
                assert (await send(100_000, chunk_bytes)).status == 200
            before, seen = most_bytes(), len(backend.exchanges)
            for chunk_bytes in (0, 65_536):
                for size in (limit + 1, large):
                    answer = await send(size, chunk_bytes)
                    assert (answer.status, answer.value(b"x-headrace-reason")) == (413, b"body_too_large")
                    assert set(json.loads(answer.body)["error"]) >= {"message", "type", "code"}
            assert most_bytes() - before <= limit + (1 << 20)
            assert len(backend.exchanges) == seen, "none of it reached the engine"
            for chunk_bytes in (0, 65_536):
                assert (await send(limit, chunk_bytes)).status == 200
                assert len(backend.exchanges[-1].request.body) == limit
