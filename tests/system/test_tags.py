"""What the gateway decides about a request before it chooses a backend, as the client sees it in `x-headrace-route`, and what an engine sees of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    BusinessTypeSettings,
    MatchSettings,
    PoolSettings,
    PromptTokensSettings,
    ServerSettings,
    Settings,
    TenantSettings,
)
from policies.dialects import Dialect
from policies.pool_choice import PoolRole
from policies.terms import Lane
from tests.backend import Backend, Ending, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.running import CHAT, Running, running, running_with
from tests.system.crowd import Header, route

BANK: Header = (b"Authorization", b"Bearer bank-key")
SHOP: Header = (b"Authorization", b"Bearer shop-key")
SYSTEM = "You are the desk for loans.\nAnswer in one line."


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


TENANTS = (
    TenantSettings(
        name="bank", key_sha256=(digest("bank-key"),), max_lane=Lane.EMERGENCY, trust_headers=True
    ),
    TenantSettings(name="shop", key_sha256=(digest("shop-key"),)),
    TenantSettings(name="night", max_lane=Lane.STANDARD, default_lane=Lane.BATCH),
    TenantSettings(name="desk", key_sha256=(digest("desk-key"),), business_type="wealth"),
)
TYPES = (
    BusinessTypeSettings(
        name="cards",
        lane=Lane.INTERACTIVE,
        match=MatchSettings(keywords=("信用卡", "credit card"), regex=(r"\bcard ending \d{4}\b",)),
    ),
    BusinessTypeSettings(
        name="loans",
        match=MatchSettings(
            system_prompts=(SYSTEM,), system_prompt_sha256=(digest("你是贷款助手。"),), models=("loan-bot",)
        ),
    ),
    BusinessTypeSettings(name="wealth", lane=Lane.BATCH, match=MatchSettings(keywords=("理财",))),
    BusinessTypeSettings(name="search", match=MatchSettings(paths=("/v1/embeddings",))),
)


def chat(user: str, system: str = "", **members: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    return {**members, "messages": [*messages, {"role": "user", "content": user}]}


def two_pools(fast: Backend, slow: Backend, **sections: Any) -> Settings:
    return Settings(
        pools=(
            PoolSettings(
                name="fast", role=PoolRole.LOW_LATENCY, backends=(BackendSettings(url=fast.url, name="f1"),)
            ),
            PoolSettings(name="slow", backends=(BackendSettings(url=slow.url, name="s1"),)),
        ),
        server=ServerSettings(port=0),
        **sections,
    )


# --- the business type ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "target", "headers", "business"),
    [
        (chat("Block my CREDIT card now"), CHAT, [], "cards"),
        (chat("我的信用卡丢了"), CHAT, [], "cards"),
        ('{"messages":[{"role":"user","content":"我的信用卡丢了"}]}'.encode(), CHAT, [], "cards"),
        (chat("the card ending 4711 is lost"), CHAT, [], "cards"),
        (chat("推荐一款理财产品"), CHAT, [], "wealth"),
        ({"prompt": "Which credit card is best?"}, "/v1/completions", [], "cards"),
        ({"input": "credit card"}, "/v1/responses", [], "cards"),
        (chat("hello", SYSTEM + "\n"), CHAT, [], "loans"),
        (chat("你好", "你是贷款助手。"), CHAT, [], "loans"),
        (chat("credit card", SYSTEM), CHAT, [], "loans"),
        (chat("hello", "Talk about a credit card."), CHAT, [], "cards"),
        (chat("credit card", model="loan-bot"), CHAT, [], "loans"),
        ({"input": "credit card"}, "/v1/embeddings", [], "search"),
        (chat("hello"), CHAT, [], "default"),
        (chat("credit card"), CHAT, [(b"Authorization", b"Bearer desk-key")], "wealth"),
        (chat("credit card"), CHAT, [BANK, (b"X-Headrace-Business", b"loans")], "loans"),
        (chat("credit card"), CHAT, [BANK, (b"x-business-type", b"wealth")], "wealth"),
        (chat("credit card"), CHAT, [BANK, (b"x-headrace-business", b"default")], "default"),
        (chat("credit card"), CHAT, [BANK, (b"x-headrace-business", b"unheard-of")], "cards"),
        (chat("credit card"), CHAT, [SHOP, (b"x-headrace-business", b"loans")], "cards"),
        (chat("credit card"), CHAT, [(b"x-business-type", b"loans")], "cards"),
    ],
)
async def test_the_business_type_is_told_by_what_counts_first(
    body: dict[str, Any] | bytes, target: str, headers: list[Header], business: str
) -> None:
    sections: dict[str, Any] = {"tenants": TENANTS, "business_types": TYPES, "aliases": {"loan-bot": "m"}}
    async with Backend() as backend, running(backend, **sections) as gateway:
        answer = await gateway.post(body, target, headers)
        assert (answer.status, route(answer)["business"]) == (200, business)
        assert gateway.metric("headrace_requests_total", business=business) == 1
        if isinstance(body, bytes):
            assert backend.exchanges[0].request.body == body


async def test_a_trusted_anonymous_client_may_name_its_business_type_where_there_are_no_tenants() -> None:
    named = [(b"x-headrace-business", b"wealth")]
    async with Backend() as backend:
        async with running(backend, business_types=TYPES) as gateway:
            assert route(await gateway.post({}, headers=named))["business"] == "default"
        trusted = AnonymousSettings(trust_headers=True)
        async with running(backend, business_types=TYPES, anonymous=trusted) as gateway:
            assert route(await gateway.post({}, headers=named))["business"] == "wealth"


# --- the lane -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "members", "lane"),
    [
        ([SHOP, (b"x-headrace-lane", b"emergency")], {}, "interactive"),
        ([(b"x-headrace-lane", b"emergency")], {}, "interactive"),
        ([BANK, (b"x-headrace-lane", b"emergency")], {}, "emergency"),
        ([BANK, (b"X-Priority", b"high")], {}, "interactive"),
        ([SHOP, (b"x-priority", b"low")], {}, "batch"),
        ([SHOP, (b"priority", b"u=7, i")], {}, "batch"),
        ([SHOP, (b"x-headrace-lane", b"odd")], {}, "standard"),
        ([SHOP], {"priority": -5}, "interactive"),
        ([SHOP], {"service_tier": "flex"}, "batch"),
        ([SHOP, (b"x-headrace-lane", b"batch")], {"service_tier": "priority"}, "batch"),
        ([SHOP], {}, "standard"),
        ([BANK, (b"x-headrace-tenant", b"night")], {}, "batch"),
        ([BANK, (b"x-headrace-tenant", b"night"), (b"x-headrace-lane", b"emergency")], {}, "standard"),
        ([SHOP, (b"x-headrace-tenant", b"night")], {}, "standard"),
        ([BANK, (b"x-headrace-tenant", b"nobody")], {}, "standard"),
    ],
)
async def test_a_lane_is_asked_for_and_clamped_to_what_the_tenant_may_use(
    headers: list[Header], members: dict[str, Any], lane: str
) -> None:
    async with Backend() as backend, running(backend, tenants=TENANTS) as gateway:
        answer = await gateway.post(chat("hello", **members), headers=headers)
        assert (answer.status, route(answer)["lane"]) == (200, lane)
        assert gateway.metric("headrace_requests_total", lane=lane) == 1


async def test_a_business_types_lane_counts_unless_the_client_asks_for_another() -> None:
    async with Backend() as backend, running(backend, business_types=TYPES) as gateway:
        body = chat("credit card")
        assert route(await gateway.post(body))["lane"] == "interactive"
        assert route(await gateway.post(body, headers=[(b"x-priority", b"batch")]))["lane"] == "batch"


# --- the route, and pins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_the_route_tells_all_that_was_decided(stream: bool) -> None:
    def script(_: Request) -> Script:
        return sse_script(b'{"choices":[]}', b"[DONE]") if stream else json_script({})

    async with Backend(script) as fast, Backend(script) as slow:
        settings = two_pools(fast, slow, business_types=TYPES)
        async with running_with(settings) as gateway:
            answer = await gateway.post(chat("信用卡", stream=stream))
            assert route(answer) == {
                "business": "cards",
                "length": "short",
                "lane": "interactive",
                "path": "cold",
                "pool": "fast",
                "backend": "f1",
                "queue_ms": "0",
                "attempts": "1",
                "prefix_chars": "0",
                "cached_tokens": "0",
            }
            assert route(await gateway.post(chat("hello", stream=stream)))["pool"] == "slow"
            unread = await gateway.get("/v1/files")
            assert (route(unread)["length"], route(unread)["pool"]) == ("unknown", "slow")


async def test_only_a_trusted_client_may_name_pool_and_backend() -> None:
    async with Backend() as fast, Backend() as slow:
        async with running_with(two_pools(fast, slow, tenants=TENANTS)) as gateway:
            for pin in ((b"x-headrace-pool", b"fast"), (b"x-headrace-backend", b"f1")):
                for who, pool in (([BANK], "fast"), ([SHOP], "slow"), ([], "slow")):
                    answer = await gateway.post(chat("hello"), headers=[*who, pin])
                    assert (answer.status, route(answer)["pool"]) == (200, pool), (who, pin)
        assert (len(fast.exchanges), len(slow.exchanges)) == (2, 4)


async def test_a_pin_to_a_pool_that_is_not_there_is_the_trusted_clients_mistake() -> None:
    pin = (b"x-headrace-pool", b"nowhere")
    async with Backend() as backend, running(backend, tenants=TENANTS) as gateway:
        for body in (chat("hello"), chat("hello", stream=True)):
            refused = await gateway.post(body, headers=[BANK, pin])
            assert (refused.status, refused.value(b"x-headrace-reason")) == (400, b"no_pool")
            error = json.loads(refused.body)["error"]
            assert (error["code"], error["type"]) == (400, "invalid_request_error")
            assert refused.value(b"retry-after") is None
        assert backend.exchanges == []
        assert (await gateway.post(chat("hello"), headers=[SHOP, pin])).status == 200


async def test_a_business_types_pools_are_the_only_ones_it_uses() -> None:
    types = (BusinessTypeSettings(name="cards", pools=("fast",), match=MatchSettings(keywords=("card",))),)
    async with (
        Backend() as fast,
        Backend() as slow,
        running_with(two_pools(fast, slow, business_types=types)) as gateway,
    ):
        assert route(await gateway.post(chat("card")))["pool"] == "fast"
        assert route(await gateway.post(chat("hello")))["pool"] == "slow"
        await fast.stop()
        assert (await gateway.post(chat("card"))).status in (502, 503)
        assert route(await gateway.post(chat("hello")))["pool"] == "slow"


# --- lengths --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["word ", "信用"])
async def test_the_prompts_length_chooses_the_pool(text: str) -> None:
    async with Backend() as short, Backend() as long:
        pools = (
            PoolSettings(
                name="short",
                prompt_tokens=PromptTokensSettings(max=300),
                backends=(BackendSettings(url=short.url),),
            ),
            PoolSettings(
                name="long",
                prompt_tokens=PromptTokensSettings(min=300, max=20_000),
                backends=(BackendSettings(url=long.url),),
            ),
        )
        async with running_with(Settings(pools=pools, server=ServerSettings(port=0))) as gateway:
            seen = []
            for times in (10, 600, 9000):
                answer = route(await gateway.post(chat(text * times)))
                seen.append((answer["length"], answer["pool"]))
            assert seen == [("short", "short"), ("medium", "long"), ("long", "long")]
            refused = await gateway.post(chat(text * 30_000))
            assert (refused.status, refused.value(b"x-headrace-reason")) == (400, b"no_pool")
            assert (await gateway.get("/v1/files")).status == 200  # what has no length goes anywhere


async def _until_short(gateway: Running, body: dict[str, Any], most: int) -> int:
    """After how many answers a prompt that counted as medium counts as short."""
    assert route(await gateway.post(body))["length"] == "medium"
    for answers in range(1, most):
        if route(await gateway.post(body))["length"] == "short":
            return answers
    return most


@pytest.mark.parametrize("stream", [False, True])
async def test_what_engines_report_corrects_the_estimated_length(stream: bool) -> None:
    usage = {"prompt_tokens": 120, "completion_tokens": 2, "total_tokens": 122}
    finish = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    told = json.dumps({"choices": [], "usage": usage}).encode()

    def script(_: Request) -> Script:
        if stream:
            return sse_script(b'{"choices":[{"delta":{"content":"x"}}]}', finish, told, b"[DONE]")
        return json_script({"choices": [], "usage": usage})

    async with Backend(script) as backend, running(backend) as gateway:
        body = chat("word " * 600, stream=stream, model="m")
        assert await _until_short(gateway, body, 40) < 40
        if stream:
            asked = backend.exchanges[0].request.json()["stream_options"]
            assert asked == {"include_usage": True}
            assert b"usage" not in (await gateway.post(body)).body
        other = chat("word " * 600, model="")
        assert route(await gateway.post(other))["length"] == "medium", "learnt for the model alone"


async def test_answers_that_broke_teach_nothing() -> None:
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}).encode()

    def script(_: Request) -> Script:
        return sse_script(b'{"choices":[{"delta":{"content":"x"}}]}', usage, ending=Ending.CUT)

    async with Backend(script) as backend, running(backend) as gateway:
        body = chat("word " * 600, stream=True, model="m")
        assert await _until_short(gateway, body, 12) == 12


# --- what an engine sees --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [[BANK], [SHOP], []])
async def test_no_hint_for_the_gateway_reaches_an_engine(who: Sequence[Header]) -> None:
    hints = [
        (b"x-headrace-business", b"cards"),
        (b"X-Headrace-Lane", b"batch"),
        (b"x-headrace-session", b"s"),
        (b"x-headrace-tenant", b"night"),
        (b"x-headrace-deadline-ms", b"60000"),
        (b"x-headrace-path", b"hot"),
        (b"x-headrace-pool", b"default"),
        (b"x-headrace-relegate", b"true"),
        (b"x-business-type", b"cards"),
        (b"x-priority", b"low"),
        (b"x-session-id", b"s"),
        (b"x-smg-priority", b"bulk"),
        (b"x-smg-routing-key", b"k"),
    ]
    async with Backend() as backend, running(backend, tenants=TENANTS, business_types=TYPES) as gateway:
        assert (await gateway.post(chat("hello"), headers=[*who, *hints])).status == 200
        names = {name for name, _ in backend.exchanges[0].request.headers}
        assert names == {b"host", b"content-type", b"content-length", b"x-request-id"}


ODD_BODY = (
    b'{ "priority" : -9,\n "big": 12345678901234567890123, "priority":7 , "messages": [ {"priority": 1} ] }'
)


@pytest.mark.parametrize(
    ("tenants", "headers", "expected"),
    [
        ((), [], ODD_BODY),
        (TENANTS, [BANK], ODD_BODY),
        (TENANTS, [SHOP], b'{\n "big": 12345678901234567890123, "messages": [ {"priority": 1} ] }'),
        (TENANTS, [], b'{\n "big": 12345678901234567890123, "messages": [ {"priority": 1} ] }'),
    ],
)
@pytest.mark.parametrize("target", [CHAT, "/v1/completions", "/v1/embeddings"])
async def test_a_bodys_priority_passes_only_from_a_client_that_is_trusted_or_where_all_are_equal(
    tenants: tuple[TenantSettings, ...], headers: list[Header], expected: bytes, target: str
) -> None:
    async with Backend() as backend, running(backend, tenants=tenants) as gateway:
        assert (await gateway.post(ODD_BODY, target, headers)).status == 200
        assert backend.exchanges[0].request.body == expected


SGLANG_INFO = {"model_path": "/m", "version": "0.5.23", "enable_priority_scheduling": True}


@pytest.mark.parametrize(
    ("dialect", "priorities"), [(Dialect.VLLM, [0, 1, 2, 3]), (Dialect.SGLANG, [3, 2, 1, 0])]
)
@pytest.mark.parametrize("asked", [None, -99])
async def test_an_engine_that_schedules_by_priority_is_told_the_lane_and_nothing_else(
    dialect: Dialect, priorities: list[int], asked: int | None
) -> None:
    async with Backend() as backend:
        if dialect is Dialect.SGLANG:
            backend.probes["/version"] = Script(status=404, reason=b"Not Found")
            backend.probes["/ready"] = Script()
            backend.probes["/server_info"] = json_script(SGLANG_INFO)
            backend.probes["/v1/loads"] = json_script({"loads": [{"num_running_reqs": 0}]})
        pool = PoolSettings(name="p", engine_priority=True, backends=(BackendSettings(url=backend.url),))
        settings = Settings(pools=(pool,), server=ServerSettings(port=0), tenants=TENANTS)
        async with running_with(settings) as gateway:
            await until(lambda: next(iter(gateway.gateway.router.fleet)).dialect is dialect)
            backend.exchanges.clear()  # what it was asked on the way is no request
            said = {} if asked is None else {"priority": asked}
            for who in (BANK, SHOP):
                for lane, priority in zip(Lane, priorities, strict=True):
                    if who is SHOP and lane is Lane.EMERGENCY:
                        continue
                    hint = (b"x-headrace-lane", lane.value.encode())
                    await gateway.post({"messages": [], **said}, headers=[who, hint])
                    assert backend.exchanges.pop().request.json() == {"messages": [], "priority": priority}
            await gateway.post({"input": "x", **said}, "/v1/embeddings", [SHOP])
            assert backend.exchanges.pop().request.json() == {"input": "x"}
