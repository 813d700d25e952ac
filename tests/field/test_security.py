"""Field cases of security: keys that stay here, bounds of heads, logs that nobody can forge, and clients that ask for more than is theirs."""

from __future__ import annotations

import asyncio
import base64
import json
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    PoolSettings,
    ServerSettings,
    Settings,
    TenantSettings,
)
from policies.terms import Lane
from tests import client
from tests.backend import Backend, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.gateway_process import GatewayProcess
from tests.running import CHAT, JSON, Running, running, running_with
from tests.system.crowd import Header, route
from tests.system.test_keys import handshake

KEY = b"gk-0123456789-of-the-gateway"
DIGEST = sha256(KEY).hexdigest()
BEARER: Header = (b"Authorization", b"Bearer " + KEY)
FORM: Header = (b"Content-Type", b"multipart/form-data; boundary=e")
TARGETS = [
    CHAT,
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/audio/transcriptions",
    "/v1/something/new",
    "/tokenize",
]
OWN = [(b"x-headrace-lane", b"batch"), (b"x-headrace-" + KEY[:5], KEY), (b"x-session-id", KEY)]


def whole(backend: Backend) -> bytes:
    """All heads and bodies that a backend ever got."""
    return b"".join(one.request.raw_head + one.request.body for one in backend.exchanges)


PLACES: dict[str, tuple[str, list[Header]]] = {
    "bearer": ("", [BEARER]),
    "x-api-key": ("", [(b"x-api-key", KEY)]),
    "api-key": ("", [(b"Api-Key", KEY)]),
    "cookie beside it": ("", [BEARER, (b"Cookie", b"a=1; token=" + KEY)]),
    "cookie alone": ("", [(b"Cookie", b"key=" + KEY)]),
    "query beside it": ("?key=" + KEY.decode(), [BEARER]),
    "query alone": ("?a=1&api_key=" + KEY.decode() + "&b=2", []),
    "query by any name": ("?token=" + KEY.decode() + "&a=1&b=2&auth=x;key=" + KEY.decode(), [BEARER]),
    "header by any name": (
        "",
        [
            BEARER,
            (b"X-Goog-Api-Key", KEY),
            (b"Referer", b"http://a/?key=" + KEY),
            (b"X-Auth-Token", b"t " + KEY),
        ],
    ),
    "encoded name": ("?%61pi%5Fkey=" + KEY.decode(), []),
    "basic": ("", [(b"Authorization", b"Basic " + base64.b64encode(b"me:" + KEY))]),
    "own headers": ("", [BEARER, *OWN]),
    "proxy authorization": ("", [BEARER, (b"Proxy-Authorization", b"Bearer " + KEY)]),
}


@pytest.mark.parametrize("place", PLACES)
async def test_b140_a_key_of_the_gateway_reaches_no_engine_from_any_place_on_any_route(place: str) -> None:
    query, headers = PLACES[place]
    async with (
        Backend(lambda _: json_script({}, status=503), record_probes=True) as full,
        Backend(record_probes=True) as well,
        running(full, well, tenants=(TenantSettings(name="t", key_sha256=(DIGEST,)),)) as gateway,
    ):
        for target in TARGETS:
            body, media = (b"--e--\r\n", FORM) if "audio" in target else (b"{}", JSON)
            for _ in range(2):
                raw = client.request("POST", target + query, [media, *headers], body)
                assert (await gateway.send(raw)).status in (200, 503)
        await gateway.get("/v1/files" + query, *headers)
        await gateway.send(
            handshake(*headers, (b"Sec-WebSocket-Protocol", b"realtime, openai-insecure-api-key." + KEY))
        )
        assert len(full.exchanges) > 2 and len(well.exchanges) > 10
        for backend in (full, well):
            assert KEY not in whole(backend)
            assert base64.b64encode(b"me:" + KEY) not in whole(backend)
        assert b"/v1/something/new?a=1&b=2 " in whole(well) or "a=1" not in query


async def test_b141_a_second_backend_gets_nothing_that_was_meant_for_the_first() -> None:
    async with Backend(lambda _: json_script({}, status=500)) as one, Backend() as other:
        backends = (
            BackendSettings(url=one.url, api_key="secret-of-one"),
            BackendSettings(url=other.url, api_key="secret-of-other"),
        )
        settings = Settings(pools=(PoolSettings(name="p", backends=backends),), server=ServerSettings(port=0))
        async with running_with(settings) as gateway:
            vendors = [
                (b"X-Vllm-Priority", b"-9"),
                (b"X-Override-Rid", b"1"),
                (b"X-Data-Parallel-Rank", b"3"),
            ]
            while not one.exchanges:
                answer = await gateway.post({}, headers=[(b"Authorization", b"Bearer mine"), *vendors])
                assert answer.status == 200
            for backend, secret in ((one, b"secret-of-one"), (other, b"secret-of-other")):
                for exchange in backend.exchanges:
                    assert exchange.request.values(b"authorization") == [b"Bearer " + secret]
                assert not any(
                    word in whole(backend).lower()
                    for word in (b"mine", b"x-vllm", b"x-override", b"parallel")
                )
            assert b"secret-of-one" not in whole(other)


def peak_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


ENDLESS = b"GET /v1/models HTTP/1.1\r\nHost: g\r\nX-Endless: " + b"a" * (1 << 20)
HUGE = {
    "a header of 1 MiB": (client.request("GET", "/v1/models", [(b"X-Huge", b"a" * (1 << 20))]), 431),
    "20,000 headers": (
        client.request("GET", "/v1/models", [(b"X-N%d" % n, b"1") for n in range(20_000)]),
        431,
    ),
    "a target of 1 MiB": (client.request("GET", "/v1/models?" + "a" * (1 << 20)), 414),
    "a header that does not end": (ENDLESS, 431),
}


async def test_b143_huge_and_countless_headers_are_refused_and_cost_no_memory() -> None:
    async with Backend() as backend, GatewayProcess("--backend", backend.url) as gateway:
        before = peak_kib(gateway.pid)
        for name, (raw, status) in HUGE.items():

            async def ask(raw: bytes = raw) -> int:
                try:
                    return (await client.send(gateway.port, raw)).status
                except EOFError:
                    return 0  # closed while this client still wrote: its kernel dropped the answer

            statuses = set(await asyncio.gather(*[ask() for _ in range(100)]))
            assert statuses <= {status, 431, 0} and statuses - {0}, name
            assert peak_kib(gateway.pid) - before < 50 * 1024, name
        assert (await client.send(gateway.port, client.request("GET", "/v1/models"))).status == 200


NASTY = ["a%0d%0aINFO fake", "x\x1b[31mred", "x\x00y", "\r\nINFO fake", "\u2028INFO fake\x85", "y" * 10_240]
LATIN = [text.encode("latin-1", "ignore") for text in NASTY]


async def test_b144_no_value_of_a_client_can_forge_or_split_a_line_of_a_log(tmp_path: Path) -> None:
    async with (
        Backend(lambda _: json_script({})) as backend,
        GatewayProcess("--backend", backend.url) as gateway,
    ):
        sent = 0
        for text, raw_text in zip(NASTY, LATIN, strict=True):
            body = {
                "model": text,
                "user": text,
                "session_id": text,
                "messages": [{"role": text, "content": text}],
            }
            await client.send(gateway.port, client.request("POST", CHAT, [JSON], json.dumps(body).encode()))
            sent += 1
            for name in (
                b"X-Request-Id",
                b"X-Session-Id",
                b"X-Business-Type",
                b"X-Headrace-Tenant",
                b"User-Agent",
            ):
                raw = client.request("POST", CHAT, [JSON, (name, raw_text)], b"{}")
                answer = await client.send(gateway.port, raw)
                assert answer.status in (200, 400)
                sent += answer.status == 200
    lines = gateway.stdout.decode().split("\n")
    assert lines.pop() == ""
    assert len([line for line in lines if json.loads(line)["path"] == CHAT]) == len(lines) == sent
    assert all(line.isprintable() and len(line) < 2000 for line in lines)
    for line in gateway.stderr.decode().splitlines():
        assert line.isprintable() and "INFO fake" not in line and len(line) < 1000, line


async def test_b146_a_huge_request_id_makes_no_larger_stream_than_a_short_one() -> None:
    def script(request: Request) -> Script:
        event = b'{"id":"%b","choices":[{"delta":{"content":"some words"}}]}' % (
            request.value(b"x-request-id") or b""
        )
        return sse_script(*[event] * 1000, b'{"choices":[{"delta":{},"finish_reason":"stop"}]}', b"[DONE]")

    async with Backend(script) as backend, running(backend) as gateway:
        sizes = []
        for request_id in (b"s" * 28, b"x" * 60 * 1024):
            answer = await gateway.post(b'{"stream":true}', headers=[(b"X-Request-Id", request_id)])
            assert answer.complete
            sizes.append(len(answer.body))
        assert sizes[1] < 1.1 * sizes[0]


LOW = TenantSettings(name="low", key_sha256=(sha256(b"low").hexdigest(),), max_lane=Lane.STANDARD)
HIGH = TenantSettings(name="high", key_sha256=(sha256(b"high").hexdigest(),), max_lane=Lane.EMERGENCY)


async def test_b147_a_client_cannot_name_itself_urgent_or_somebody_else() -> None:
    low = (b"Authorization", b"Bearer low")
    urgent: list[list[Header]] = [
        [(b"x-headrace-lane", b"emergency")],
        [(b"x-priority", b"emergency")],
        [(b"x-smg-priority", b"system")],
        [(b"x-headrace-tenant", b"high"), (b"x-headrace-lane", b"emergency")],
        [(b"priority", b"u=0")],
    ]
    async with (
        Backend() as backend,
        running(backend, window=4, tenants=(LOW, HIGH), anonymous=AnonymousSettings(allow=False)) as gateway,
    ):
        for headers in urgent:
            answer = await gateway.post(
                {"priority": -100, "service_tier": "priority"}, headers=[low, *headers]
            )
            assert route(answer)["lane"] == "standard", headers
            assert backend.exchanges.pop().request.json().get("priority") is None
        assert ignored(gateway, "lane") == len(urgent)
        assert ignored(gateway, "tenant") == 1
        assert gateway.metric("headrace_requests_total", lane="emergency") == 0


async def test_b147_a_thousand_invented_tenants_of_one_key_are_one_flow() -> None:
    async with (
        Backend() as backend,
        running(backend, window=1, tenants=(LOW, HIGH)) as gateway,
        await gateway.connect() as connection,
    ):
        before = _flows(gateway)
        for number in range(1000):
            invented = b"t%d" % number
            headers = [
                (b"Authorization", b"Bearer low"),
                (b"x-headrace-tenant", invented),
                (b"x-llm-d-inference-fairness-id", invented),
                (b"x-headrace-business", invented),
            ]
            await connection.send(client.request("POST", CHAT, [JSON, *headers], b"{}"))
            assert route(await connection.read_answer())["business"] == "default"
        assert _flows(gateway) <= before | {("low", "default")}
        await until(lambda: ignored(gateway, "tenant") == 1000)
        assert ignored(gateway, "fairness") == ignored(gateway, "business") == 1000


def ignored(gateway: Running, hint: str) -> float:
    return gateway.metric("headrace_ignored_hints_total", hint=hint)


def _flows(gateway: Running) -> set[tuple[str, str]]:
    """Tenants and business types that are anywhere on the page of metrics."""
    return {
        (sample.labels["tenant"], sample.labels.get("business", "default"))
        for family in gateway.gateway.telemetry.registry.collect()
        for sample in family.samples
        if "tenant" in sample.labels
    }
