"""Who a client is: its key, what a wrong one gets, and that no key for this gateway ever reaches an engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from gateway.settings import (
    AnonymousSettings,
    BackendSettings,
    PoolSettings,
    RetrySettings,
    ServerSettings,
    Settings,
    TenantSettings,
)
from policies.terms import Lane
from tests import client
from tests.backend import Backend, Script, json_script
from tests.running import CHAT, JSON, Running, post_request, running, running_with
from tests.system.crowd import Header, route

BANK_KEY: Header = (b"Authorization", b"Bearer bank-key")
WRONG_KEY: Header = (b"Authorization", b"Bearer wrong")
KEY_NAMES = (b"authorization", b"x-api-key", b"api-key")
CLOSED = AnonymousSettings(allow=False)


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


BANK = TenantSettings(name="bank", key_sha256=(digest("bank-key"),), default_lane=Lane.BATCH)
SHOP = TenantSettings(name="shop", key_sha256=(digest("shop-key"), digest("old-key")))


def lane(answer: client.Answer) -> str:
    return route(answer)["lane"]


def assert_unauthorized(answer: client.Answer) -> dict[str, Any]:
    assert (answer.status, answer.value(b"x-headrace-reason")) == (401, b"unauthorized")
    assert answer.value(b"www-authenticate") == b"Bearer"
    assert answer.value(b"content-type") == b"application/json"
    assert answer.value(b"x-request-id") and answer.value(b"retry-after") is None
    error: dict[str, Any] = json.loads(answer.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", 401)
    return error


def handshake(*headers: Header) -> bytes:
    upgrade = [
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", b"AAAAAAAAAAAAAAAAAAAAAA=="),
    ]
    return client.request("GET", "/v1/realtime?model=m", [*upgrade, *headers])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([BANK_KEY], "batch"),
        ([(b"authorization", b"bearer shop-key")], "standard"),
        ([(b"X-Api-Key", b"bank-key")], "batch"),
        ([(b"Api-Key", b"old-key")], "standard"),
        ([(b"X-Api-Key", b"shop-key"), BANK_KEY], "batch"),
    ],
)
async def test_a_key_says_which_tenant_it_is(headers: list[Header], expected: str) -> None:
    async with Backend() as backend, running(backend, tenants=(BANK, SHOP), anonymous=CLOSED) as gateway:
        answer = await gateway.post({}, headers=headers)
        assert (answer.status, lane(answer)) == (200, expected)


@pytest.mark.parametrize("body", [b"{}", b'{"stream":true}'])
@pytest.mark.parametrize("anonymous", [CLOSED, AnonymousSettings()])
async def test_a_wrong_key_is_refused_even_where_none_would_be_let_in(
    body: bytes, anonymous: AnonymousSettings
) -> None:
    async with Backend() as backend, running(backend, tenants=(BANK,), anonymous=anonymous) as gateway:
        for wrong in (WRONG_KEY, (b"x-api-key", b"bank-ke"), (b"api-key", b"BANK-KEY")):
            error = assert_unauthorized(await gateway.post(body, headers=[wrong]))
            assert wrong[1].removeprefix(b"Bearer ").decode() not in error["message"]
        assert backend.exchanges == []
        assert gateway.metric("headrace_refusals_total", reason="unauthorized") == 3


@pytest.mark.parametrize(
    "headers", [[], [(b"Authorization", b"Bearer ")], [(b"Authorization", b"Basic eDp5")]]
)
async def test_a_missing_key_is_refused_only_where_anonymous_clients_may_not_call(
    headers: Sequence[Header],
) -> None:
    async with Backend() as backend:
        async with running(backend, tenants=(BANK,), anonymous=CLOSED) as gateway:
            assert_unauthorized(await gateway.post({}, headers=headers))
            assert backend.exchanges == []
        async with running(backend, tenants=(BANK,)) as gateway:
            answer = await gateway.post({}, headers=headers)
            assert (answer.status, lane(answer)) == (200, "standard")


@pytest.mark.parametrize(
    "target", [CHAT, "/v1/embeddings", "/v1/audio/transcriptions", "/v1/files", "/version"]
)
async def test_every_path_that_leads_to_an_engine_asks_for_the_key(target: str) -> None:
    method = "GET" if target in ("/v1/files", "/version") else "POST"
    async with Backend(record_probes=True) as backend:
        async with running(backend, tenants=(BANK,), anonymous=CLOSED) as gateway:
            body = b"{}" if method == "POST" else None
            assert_unauthorized(
                await gateway.send(client.request(method, target, [JSON, (b"x-from", b"client")], body))
            )
        assert not any(exchange.request.value(b"x-from") for exchange in backend.exchanges)


async def test_one_connection_may_change_its_key_and_outlives_a_refusal_with_a_body_unread() -> None:
    large = json.dumps({"prompt": "x" * 3_000_000}).encode()
    async with (
        Backend() as backend,
        running(backend, tenants=(BANK, SHOP), anonymous=CLOSED) as gateway,
        await gateway.connect() as connection,
    ):
        seen = []
        for key, body in (
            ([BANK_KEY], b"{}"),
            ([WRONG_KEY], b"{}"),
            ([BANK_KEY], b"{}"),
            ([(b"Authorization", b"Bearer shop-key")], b"{}"),
            ([], large),
            ([BANK_KEY], b'{"n":1}'),
        ):
            await connection.send(post_request(body, headers=key))
            answer = await connection.read_answer()
            seen.append(answer.status if answer.status != 200 else lane(answer))
        assert seen == ["batch", 401, "batch", "standard", 401, "batch"]
        assert len(backend.exchanges) == 4


async def test_a_reload_that_takes_a_key_away_holds_for_connections_that_are_open() -> None:
    async with (
        Backend() as backend,
        running(backend, tenants=(BANK, SHOP), anonymous=CLOSED) as gateway,
        await gateway.connect() as connection,
    ):
        raw = post_request(b"{}", headers=[BANK_KEY])
        await connection.send(raw)
        assert (await connection.read_answer()).status == 200
        before = gateway.gateway.settings
        after = Settings(pools=before.pools, server=before.server, tenants=(SHOP,), anonymous=CLOSED)
        gateway.gateway.configure(after)
        await connection.send(raw)
        assert_unauthorized(await connection.read_answer())


async def _keys_of(gateway: Running, backend: Backend, headers: list[Header]) -> dict[bytes, list[bytes]]:
    backend.exchanges.clear()
    assert (await gateway.post({}, headers=headers)).status == 200
    request = backend.exchanges[0].request
    return {name: request.values(name) for name in KEY_NAMES if request.values(name)}


async def test_a_key_of_this_gateway_reaches_no_engine_under_any_of_its_names() -> None:
    all_names = [
        BANK_KEY,
        (b"X-Api-Key", b"bank-key"),
        (b"Api-Key", b"other"),
        (b"Authorization", b"Bearer 2"),
    ]
    async with Backend() as backend, running(backend, tenants=(BANK,)) as gateway:
        assert await _keys_of(gateway, backend, all_names) == {}
        assert await _keys_of(gateway, backend, [(b"Api-Key", b"bank-key")]) == {}


async def test_without_tenants_a_key_passes_as_it_came() -> None:
    headers = [(b"Authorization", b"Bearer  sk-1 "), (b"X-Api-Key", b"a"), (b"Api-Key", b"b")]
    async with Backend() as backend, running(backend) as gateway:
        assert await _keys_of(gateway, backend, headers) == {
            b"authorization": [b"Bearer  sk-1"],
            b"x-api-key": [b"a"],
            b"api-key": [b"b"],
        }


async def test_an_engine_gets_its_own_key_in_place_of_the_gateways_also_at_a_second_try() -> None:
    async with (
        Backend(lambda _: json_script({}, status=503)) as full,
        Backend(lambda _: json_script({}, status=503)) as also_full,
    ):
        backends = (
            BackendSettings(url=full.url, api_key="engine-1"),
            BackendSettings(url=also_full.url),
        )
        settings = Settings(
            pools=(PoolSettings(name="p", backends=backends),),
            server=ServerSettings(port=0),
            tenants=(BANK,),
            retries=RetrySettings(max_retries=1),
        )
        async with running_with(settings) as gateway:
            assert (await gateway.post({}, headers=[BANK_KEY, (b"api-key", b"x")])).status == 503
        seen = [backend.exchanges[0].request.values(b"authorization") for backend in (full, also_full)]
        assert seen == [[b"Bearer engine-1"], []]
        assert not any(one.exchanges[0].request.values(b"api-key") for one in (full, also_full))


async def test_a_realtime_handshake_needs_the_key_and_keeps_it_from_the_engine() -> None:
    says_no = Script(status=403, headers=[(b"content-type", b"text/plain")], chunks=[b"engine"])
    async with (
        Backend(lambda _: says_no) as backend,
        running(backend, tenants=(BANK,), anonymous=CLOSED) as gateway,
    ):
        for headers in ([], [WRONG_KEY], [(b"x-api-key", b"wrong")]):
            assert_unauthorized(await gateway.send(handshake(*headers)))
        assert backend.exchanges == []
        own = [(b"x-headrace-lane", b"batch"), (b"x-priority", b"high"), (b"api-key", b"also")]
        answer = await gateway.send(handshake(BANK_KEY, *own))
        assert (answer.status, answer.body) == (403, b"engine")
        names = {name for name, _ in backend.exchanges[0].request.headers}
        assert not names & {*KEY_NAMES, b"x-headrace-lane", b"x-priority"}
