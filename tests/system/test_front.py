"""What the gateway's door takes and refuses: malformed, oversized, slow and odd requests, each answered in OpenAI's shape."""

from __future__ import annotations

import asyncio
import contextlib
import json
from hashlib import sha256

import pytest

from gateway.settings import AnonymousSettings, ServerSettings, TenantSettings
from tests import client
from tests.backend import Backend, Gate, Request, Script, sse_script
from tests.framing import encode_chunk
from tests.running import CHAT, JSON, running

HOST = b"Host: gateway.test\r\n"


def refusal(answer: client.Answer) -> tuple[int, str]:
    """Status and message of a gateway-made answer, which has to be whole and OpenAI-shaped."""
    assert answer.complete and answer.value(b"content-type") == b"application/json", answer
    body = json.loads(answer.body)
    assert body.keys() == {"error"}
    error = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == answer.status and error["type"] and error["message"]
    return answer.status, error["message"]


MALFORMED = {
    "not http": b"hello\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no version": b"GET /readyz\r\n\r\n",
    "unknown version": b"GET /readyz HTTP/9.9\r\n" + HOST + b"\r\n",
    "unknown method": b"BREW /readyz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no colon": b"GET /readyz HTTP/1.1\r\n" + HOST + b"nonsense\r\n\r\n",
    "space before the colon": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a : b\r\n\r\n",
    "folded": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a: b\r\n c\r\n\r\n",
    "nul": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a: b\x00c\r\n\r\n",
    "escape": b"GET /readyz HTTP/1.1\r\n" + HOST + b"x-request-id: \x1b[31m\r\n\r\n",
    "both framings": b"POST %b HTTP/1.1\r\n%bContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    % (CHAT.encode(), HOST),
    "two lengths": b"POST %b HTTP/1.1\r\n%bContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"
    % (CHAT.encode(), HOST),
    "negative length": b"POST %b HTTP/1.1\r\n%bContent-Length: -1\r\n\r\n" % (CHAT.encode(), HOST),
    "odd length": b"POST %b HTTP/1.1\r\n%bContent-Length: 2,2\r\n\r\n{}" % (CHAT.encode(), HOST),
    "chunked not last": b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"
    % (CHAT.encode(), HOST),
    "line feed in the target": b"GET /readyz\nx HTTP/1.1\r\n" + HOST + b"\r\n",
    "no host": b"GET /readyz HTTP/1.1\r\n\r\n",
    "a host with a space": b"GET /readyz HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a host with a path": b"GET /readyz HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a host with a user": b"GET /readyz HTTP/1.1\r\nHost: me@a\r\n\r\n",
    "raw space in the target": b"GET /v1/x y HTTP/1.1\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_http_is_refused_with_400_and_the_connection_closed(raw: bytes) -> None:
    async with Backend() as backend, running(backend) as gateway:
        async with await gateway.connect() as connection:
            await connection.send(raw)
            connection._method = b"GET"  # however this request may look
            assert refusal(await connection.read_answer())[0] == 400
            assert await connection.read_until_closed() == b""
        async with await gateway.connect() as connection:
            await connection.send(client.request("GET", "/readyz"))
            assert (await connection.read_answer()).status == 200
            await connection.send(raw)
            connection._method = b"GET"
            assert refusal(await connection.read_answer())[0] == 400
        assert backend.exchanges == []


BAD_BODIES = [
    b"zz\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}x\r\n0\r\n\r\n",
    b"-2\r\n{}\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n{}",
    b"2\n{}\n0\n\n",
    b"2\r\n{}\r\n0\r\nContent-Length: 4\r\n\r\n",
]


@pytest.mark.parametrize("body", BAD_BODIES)
async def test_a_body_with_bad_chunks_is_refused_with_400(body: bytes) -> None:
    head = client.request("POST", CHAT, [JSON, (b"Transfer-Encoding", b"chunked")])
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(head)
        await connection.send(body, more=True)
        assert refusal(await connection.read_answer())[0] == 400
        assert await connection.read_until_closed() == b""
        assert backend.exchanges == []


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /readyz HTTP/1.0\r\n\r\n",
        *[
            b"GET /readyz HTTP/1.1\r\nHost: %b\r\n\r\n" % host
            for host in (b"", b"a_b.example:80", b"[::1]:80", b"1.2.3.4")
        ],
    ],
)
async def test_any_host_that_is_one_is_taken_and_http_1_0_needs_none(raw: bytes) -> None:
    async with Backend() as backend, running(backend) as gateway:
        assert (await gateway.send(raw)).status == 200


BESIDE_THE_BODY = {
    "trailer": b"2\r\n{}\r\n0\r\nx: ",
    "chunk extension": b"2;",
    "many trailers": b"2\r\n{}\r\n0\r\n",
}


@pytest.mark.parametrize("start", BESIDE_THE_BODY)
@pytest.mark.parametrize("key", [True, False], ids=["read", "refused"])
async def test_what_stands_beside_a_body_without_end_is_cut_off(start: str, key: bool) -> None:
    tenant = TenantSettings(name="t", key_sha256=(sha256(b"a-key-of-mine").hexdigest(),))
    keys = [(b"Authorization", b"Bearer a-key-of-mine")] if key else []
    anonymous = AnonymousSettings(allow=False)
    head = client.request("POST", CHAT, [JSON, (b"Transfer-Encoding", b"chunked"), *keys])
    more = b"a: b\r\n" * 2000 if start == "many trailers" else b"x" * 16_000
    async with (
        Backend() as backend,
        running(backend, tenants=(tenant,), anonymous=anonymous) as gateway,
        await gateway.connect() as connection,
    ):
        await connection.send(head)
        if not key:
            assert (await connection.read_answer()).status == 401
        await connection.send(BESIDE_THE_BODY[start], more=True)
        for _ in range(100):
            await connection.send(more, more=True)
        with contextlib.suppress(
            EOFError
        ):  # what was written is lost where the rest of this was still unread
            assert refusal(await connection.read_answer())[0] == 431 and key
        assert await connection.read_until_closed() == b""
        if key:
            assert gateway.metric("headrace_refusals_total", reason="head_too_large") == 1
        assert backend.exchanges == []


async def test_trailers_and_extensions_of_usual_size_pass_however_many_chunks_there_are() -> None:
    body = b'{"model":"m","x":"' + b"x" * 20_000 + b'"}'
    chunks = b"".join(b"1;name=value\r\n%c\r\n" % byte for byte in body)
    head = client.request("POST", CHAT, [JSON, (b"Transfer-Encoding", b"chunked")])
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(head + chunks + b"0\r\nx-sum: 1\r\n\r\n")
        assert (await connection.read_answer()).status == 200
        assert backend.exchanges[0].request.body == body


async def test_offers_of_an_upgrade_are_answered_one_after_another_however_many_there_are() -> None:
    offer = b"GET /readyz HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    count = 1500
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(offer * count)
        for _ in range(count):
            connection._method = b"GET"
            assert (await connection.read_answer()).status == 200


async def test_garbage_behind_a_request_never_cuts_into_its_answer() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: sse_script(b"one", gate, b"[DONE]")) as backend,
        running(backend) as gateway,
        await gateway.begin(b'{"stream":true}') as connection,
    ):
        head = await connection.read_head()
        pieces = connection.pieces(head)
        assert await anext(pieces) == b"data: one\n\n"
        await connection.send(b"\x00garbage\r\n\r\n", more=True)
        await (await backend.exchange()).peer_closed.wait()
        assert await connection.read_until_closed() == b""


OVERSIZED = {
    "one header": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a: " + b"x" * 2**20 + b"\r\n\r\n",
    "many headers": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 20_000 + b"\r\n",
    "many small headers": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a:\r\n" * 1001 + b"\r\n",
    "an endless header": b"GET /readyz HTTP/1.1\r\n" + HOST + b"a: " + b"x" * 100_000,
    "an endless name": b"GET /readyz HTTP/1.1\r\n" + HOST + b"x" * 100_000,
}


@pytest.mark.parametrize("raw", OVERSIZED.values(), ids=OVERSIZED.keys())
async def test_an_oversized_head_is_refused_with_431(raw: bytes) -> None:
    async with Backend() as backend, running(backend) as gateway:
        answer = await gateway.send(raw)
        assert refusal(answer)[0] == 431
        assert answer.value(b"connection") == b"close"


async def test_a_long_target_is_refused_with_414_and_a_16_kib_one_passes() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for size in (16 * 1024 + 1, 40_000, 2**20):
            answer = await gateway.get("/version?" + "x" * (size - 9))
            assert refusal(answer)[0] in (414, 431)
        assert (await gateway.get("/v1/x?" + "y" * (16 * 1024 - 6))).status == 200
        assert len(backend.exchanges) == 1


async def test_a_slow_head_gets_408_and_a_silent_connection_is_closed() -> None:
    server = ServerSettings(port=0, header_seconds=0.05)
    async with Backend() as backend, running(backend, server=server) as gateway:
        for start in (b"G", b"GET /readyz HTTP/1.1\r\nHost: a\r\nx: "):
            async with await gateway.connect() as connection:
                await connection.send(start)
                assert refusal(await connection.read_answer())[0] == 408
                assert await connection.read_until_closed() == b""
        async with await gateway.connect() as connection:
            assert await connection.read_until_closed() == b""
        async with await gateway.connect() as connection:
            await connection.send(client.request("GET", "/readyz"))
            assert (await connection.read_answer()).status == 200
            await connection.send(b"GET /re", more=True)
            assert refusal(await connection.read_answer())[0] == 408


async def test_a_body_that_stops_coming_is_answered_with_408_and_counted() -> None:
    server = ServerSettings(port=0, body_gap_seconds=0.05)
    async with Backend() as backend, running(backend, server=server) as gateway:
        async with await gateway.connect() as connection:
            await connection.send(client.request("POST", CHAT, [(b"Content-Length", b"100")]) + b'{"a"')
            answer = await connection.read_answer()
        assert refusal(answer)[0] == 408 and answer.value(b"x-headrace-reason") == b"body_timeout"
        assert gateway.metric("headrace_refusals_total", reason="body_timeout") == 1
        assert backend.exchanges == []


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    def script(request: Request) -> Script:
        return Script(chunks=[request.body])

    raw = b"".join(client.request("POST", CHAT, [JSON], b'{"n":%d}' % number) for number in range(20))
    async with Backend(script) as backend, running(backend) as gateway, await gateway.connect() as connection:
        await connection.send(raw)
        bodies = [(await connection.read_answer()).body for _ in range(20)]
        assert bodies == [b'{"n":%d}' % number for number in range(20)]


async def test_a_connection_serves_many_requests_and_is_closed_after_its_idle_time() -> None:
    server = ServerSettings(port=0, keep_alive_seconds=0.1)
    async with Backend() as backend, running(backend, server=server) as gateway:
        async with await gateway.connect() as connection:
            for _ in range(10):
                await connection.send(client.request("POST", CHAT, [JSON], b"{}"))
                assert (await connection.read_answer()).status == 200
            assert await connection.read_until_closed() == b""
            assert not connection.reset_by_peer
        assert len({exchange.connection for exchange in backend.exchanges}) == 1


@pytest.mark.parametrize("size", [1023, 1024, 1025, 5_000_000])
@pytest.mark.parametrize("chunk_bytes", [0, 100_000])
async def test_a_body_above_the_limit_gets_413_even_while_it_is_still_sent(
    size: int, chunk_bytes: int
) -> None:
    server = ServerSettings(port=0, max_body_mb=1 / 1024)
    body = b"{" + b" " * (size - 2) + b"}"
    async with Backend() as backend, running(backend, server=server) as gateway:
        answer = await gateway.send(client.request("POST", CHAT, [JSON], body, chunk_bytes=chunk_bytes))
        if size <= 1024:
            assert answer.status == 200 and backend.exchanges[0].request.body == body
        else:
            assert refusal(answer)[0] == 413
            assert answer.value(b"x-headrace-reason") == b"body_too_large"
            assert backend.exchanges == []


async def test_an_endless_chunked_body_is_cut_off() -> None:
    server = ServerSettings(port=0, max_body_mb=0.01)
    async with (
        Backend() as backend,
        running(backend, server=server) as gateway,
        await gateway.connect() as connection,
    ):
        await connection.send(client.request("POST", CHAT, [(b"Transfer-Encoding", b"chunked")]))

        async def feed() -> None:
            while True:
                await connection.send(encode_chunk(b" " * 60_000), more=True)
                await asyncio.sleep(0)  # to a connection that is closed, sending does not yield

        feeding = asyncio.create_task(feed())
        assert refusal(await connection.read_answer())[0] == 413
        assert await connection.read_until_closed() == b""
        feeding.cancel()
        await asyncio.wait([feeding])


REFUSED = [
    ("GET", "/", None, 404),
    ("GET", "/docs", None, 404),
    ("GET", "/v2/thing", None, 404),
    ("GET", "/v1/../metrics", None, 404),
    ("GET", "/v1/%2e%2e/metrics", None, 404),
    ("POST", "/v1//chat/completions", b"{}", 404),
    ("POST", "/v1/chat%2Fcompletions", b"{}", 404),
    ("GET", CHAT, None, 405),
    ("DELETE", "/v1/models", None, 405),
    ("PUT", "/v1/embeddings", b"{}", 405),
    ("POST", "/metrics", b"{}", 405),
    ("POST", CHAT, b"", 400),
    ("POST", CHAT, b"{", 400),
    ("POST", CHAT, b"[1]", 400),
    ("POST", CHAT, b"null", 400),
    ("POST", CHAT, b"\xff\xfe{}", 400),
    ("POST", CHAT, b"[" * 200_000, 400),
    ("POST", CHAT, b'{"model":"unknown"}', 404),
    ("GET", "/v1/models/unknown", None, 404),
] + [
    (method, path, b"{}" if method == "POST" else None, 404)
    for method, path in (
        ("POST", "/sleep"),
        ("POST", "/wake_up"),
        ("POST", "/reset_prefix_cache"),
        ("POST", "/collective_rpc"),
        ("GET", "/server_info"),
        ("POST", "/start_profile"),
        ("POST", "/pause"),
        ("POST", "/abort_requests"),
        ("POST", "/abort_request"),
        ("POST", "/inference/v1/generate"),
        ("POST", "/flush_cache"),
        ("POST", "/update_weights_from_disk"),
        ("POST", "/v1/load_lora_adapter"),
        ("POST", "/v1/unload_lora_adapter"),
        ("POST", "/v1/load_lora_adapter/"),
        ("GET", "/v1/loads"),
        ("POST", "/v1/chat/completions/render"),
        ("GET", "/get_load"),
        ("GET", "/openapi.json"),
    )
]


async def test_whatever_is_refused_before_an_engine_is_openai_shaped_and_tells_its_reason() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for method, target, body, status in REFUSED:
            answer = await gateway.send(client.request(method, target, [JSON], body))
            assert refusal(answer)[0] == status, (method, target)
            assert answer.value(b"x-headrace-reason"), target
        assert backend.exchanges == []


async def test_a_line_end_in_a_target_or_value_cannot_reach_an_engine_or_an_answer() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for target in ("/v1/x%0d%0aevil:%201", "/v1/x%0A", "/v1/models/a%0d%0ab:c"):
            answer = await gateway.get(target)
            assert refusal(answer)[0] == 404
            assert answer.value(b"evil") is None
        answer = await gateway.get("/v1/x?a=%0d%0aevil:1")
        assert backend.exchanges[0].request.target == "/v1/x?a=%0d%0aevil:1"
        await gateway.post({"model": "m\r\nevil: 1"})
        assert len(backend.exchanges) == 1


async def test_a_body_to_get_is_passed_and_does_not_become_the_next_request() -> None:
    async with Backend() as backend, running(backend) as gateway, await gateway.connect() as connection:
        smuggled = client.request("GET", "/metrics")
        await connection.send(client.request("GET", "/v1/things", [], smuggled))
        assert (await connection.read_answer()).status == 200
        await connection.send(client.request("GET", "/healthz"))
        assert (await connection.read_answer()).body == b'{"status":"ok"}'
        assert backend.exchanges[0].request.body == smuggled


PREFLIGHT = [(b"Origin", b"https://a.example"), (b"Access-Control-Request-Method", b"POST")]


async def test_without_cors_an_options_request_is_the_engines() -> None:
    async with Backend(lambda _: Script(status=405)) as backend, running(backend) as gateway:
        answer = await gateway.send(client.request("OPTIONS", CHAT, PREFLIGHT))
        assert (answer.status, backend.exchanges[0].request.method) == (405, "OPTIONS")
        answer = await gateway.post({}, headers=PREFLIGHT[:1])
        assert answer.value(b"access-control-allow-origin") is None


async def test_with_cors_a_preflight_needs_no_backend_and_errors_carry_the_headers() -> None:
    server = ServerSettings(port=0, cors_origins=("https://a.example",))
    async with running("http://127.0.0.1:9", server=server) as gateway:
        preflight = await gateway.send(client.request("OPTIONS", CHAT, PREFLIGHT))
        assert preflight.status == 200
        assert preflight.value(b"access-control-allow-origin") == b"https://a.example"
        refused = await gateway.post({}, headers=PREFLIGHT[:1])
        assert refusal(refused)[0] == 503
        assert refused.value(b"access-control-allow-origin") == b"https://a.example"
        other = await gateway.post({}, headers=[(b"Origin", b"https://b.example")])
        assert other.value(b"access-control-allow-origin") is None


async def test_with_cors_a_browser_can_read_a_stream_and_the_gateways_headers() -> None:
    server = ServerSettings(port=0, cors_origins=("*",))
    async with (
        Backend(lambda _: sse_script(b"[DONE]")) as backend,
        running(backend, server=server) as gateway,
    ):
        answer = await gateway.post(b'{"stream":true}', headers=PREFLIGHT[:1])
        assert (answer.body, answer.complete) == (b"data: [DONE]\n\n", True)
        assert answer.value(b"access-control-allow-origin") in (b"*", b"https://a.example")
        assert b"x-headrace-route" in (answer.value(b"access-control-expose-headers") or b"")


async def test_what_the_front_refuses_has_a_reason_and_is_counted() -> None:
    server = ServerSettings(port=0, max_header_kb=1, header_seconds=0.05)
    heads = {
        "malformed_http": b"NOT HTTP\r\n\r\n",
        "head_too_large": client.request("GET", "/healthz", [(b"x-long", b"a" * 2000)]),
        "target_too_long": b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\n\r\n",
        "head_timeout": b"GET /healthz HTTP/1.1\r\n",
    }
    async with Backend() as backend, running(backend, server=server) as gateway:
        for reason, raw in heads.items():
            answer = await gateway.send(raw)
            assert answer.value(b"x-headrace-reason") == reason.encode()
            assert gateway.metric("headrace_refusals_total", reason=reason) == 1


async def test_a_body_that_is_no_json_passes_on_a_path_that_is_the_engines_to_know() -> None:
    form = (b"Content-Type", b"multipart/form-data; boundary=x")
    body = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n\x00\xff\r\n--x--\r\n'
    async with Backend() as backend, running(backend) as gateway:
        for raw in (body, b"[1]", b'{"model":'):
            answer = await gateway.send(client.request("POST", "/v1/files", [form], raw))
            assert answer.status == 200
        assert [exchange.request.body for exchange in backend.exchanges] == [body, b"[1]", b'{"model":']
