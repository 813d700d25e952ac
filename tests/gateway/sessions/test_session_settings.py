"""Each setting of `sessions` where it takes effect: the store that a configuration opens."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from prometheus_client import CollectorRegistry

from gateway.configuration import ConfigurationError, parse
from gateway.session_settings import SessionSettings
from gateway.sessions.backing import Backing
from gateway.sessions.redis_url import BadRedisUrl, RedisAddress
from gateway.sessions.store import NO_WINDOW, Append, Home, SessionKey, StoreUnavailable, Turn, session_key
from gateway.sessions.turn_metrics import TurnMetrics
from policies.terms import BackendId, PoolName
from routing.backend import BackendPlan
from routing.decision import Lease
from routing.router import Router
from routing.rules import Rules
from tests.redis_server import (
    SENTINEL_PASSWORD,
    SentinelTrio,
    tcp_server,
    tls_in_front,
)
from tests.routing.prompts import of

KEY_A, KEY_B = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def backing(clock: Clock | None = None, **settings: Any) -> AsyncIterator[Backing]:
    clock = clock or Clock()
    rules = Rules()
    router = Router(rules)
    router.configure([BackendPlan(BackendId("b"), PoolName("p"), None)], rules)
    found = Backing(router, TurnMetrics(CollectorRegistry(), clock), clock)
    found.configure(SessionSettings(**{"timeout_ms": 5000, **settings}))
    try:
        yield found
    finally:
        await found.close()


async def put(one: Backing, key: SessionKey, *names: str, tokens: int = 10, size: int = 10) -> None:
    for name in names:
        await one.current.writer.append(
            Append(key, Turn(name, b"x" * size, tokens), one.current.ttl_seconds(key))
        )


async def ids(one: Backing, key: SessionKey) -> list[str]:
    return [turn.id for turn in (await one.current.store.window(key)).turns]


def key(name: str) -> SessionKey:
    return session_key("t", name)


async def test_redis_url_is_where_sessions_are_kept(server: str) -> None:
    async with backing(redis_url=server) as one, backing(redis_url=server) as two, backing() as alone:
        await put(one, key("url"), "a")
        await put(alone, key("url"), "b")
        assert await ids(two, key("url")) == ["a"]
        assert await ids(alone, key("url")) == ["b"]
        assert one.homes is not None
        assert alone.homes is None


async def test_redis_ca_file_is_what_a_certificate_is_held_to(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with tcp_server() as server:
        async with tls_in_front(server.port, authority) as port:
            url = f"rediss://127.0.0.1:{port}"
            async with backing(redis_url=url, redis_ca_file=str(tmp_path / "ca.pem")) as trusted:
                await put(trusted, key("tls"), "a")
                assert await ids(trusted, key("tls")) == ["a"]
            async with backing(redis_url=url) as stranger:
                with pytest.raises(StoreUnavailable):
                    await stranger.current.store.window(key("tls"))


async def test_sentinel_password_opens_the_sentinels(trio: SentinelTrio) -> None:
    async with backing(redis_url=trio.url, sentinel_password=SENTINEL_PASSWORD) as one:
        await put(one, key("sentinel"), "a")
        assert await ids(one, key("sentinel")) == ["a"]
    async with backing(redis_url=trio.url) as without:
        with pytest.raises(StoreUnavailable):
            await without.current.store.window(key("sentinel"))


async def test_min_ttl_seconds_is_how_long_at_least() -> None:
    clock = Clock()
    async with backing(clock, min_ttl_seconds=40) as one:
        sessions = one._router.placement.sessions
        for turn in range(200):
            sessions.sent(1, 1, float(turn))
        assert one.ttl_seconds() == 40
        await put(one, key("short"), "a")
        clock.now = 39
        assert await ids(one, key("short")) == ["a"]
        clock.now = 41
        assert await one.current.store.window(key("short")) == NO_WINDOW


async def test_max_ttl_seconds_is_how_long_at_most() -> None:
    clock = Clock()
    async with backing(clock, max_ttl_seconds=90) as one:
        await put(one, key("long"), "a")
        clock.now = 89
        assert await ids(one, key("long")) == ["a"]
        clock.now = 91
        assert await one.current.store.window(key("long")) == NO_WINDOW


@pytest.fixture(params=["memory", "redis"])
def place(request: pytest.FixtureRequest, server: str) -> dict[str, Any]:
    return {} if request.param == "memory" else {"redis_url": server}


async def test_max_turns_is_how_many_stay(place: dict[str, Any]) -> None:
    async with backing(max_turns=2, **place) as one:
        await put(one, key("turns"), "a", "b", "c")
        assert await ids(one, key("turns")) == ["b", "c"]


async def test_max_tokens_is_how_many_stay(place: dict[str, Any]) -> None:
    async with backing(max_tokens=25, **place) as one:
        await put(one, key("tokens"), "a", "b", "c")
        assert await ids(one, key("tokens")) == ["b", "c"]


async def test_max_session_kb_is_how_much_of_one_stays(place: dict[str, Any]) -> None:
    async with backing(max_session_kb=2, max_entry_kb=1, **place) as one:
        await put(one, key("kb"), "a", "b", "c", size=1000)
        assert await ids(one, key("kb")) == ["b", "c"]
        await put(one, key("kb"), "large", size=1025)
        assert await ids(one, key("kb")) == ["b", "c"]


async def test_max_sessions_is_how_many_are_kept_in_memory() -> None:
    async with backing(max_sessions=2) as one:
        for name in "abc":
            await put(one, key(name), name)
        assert [await ids(one, key(name)) for name in "abc"] == [[], ["b"], ["c"]]


async def test_max_memory_mb_is_how_much_is_kept_in_memory() -> None:
    async with backing(max_memory_mb=1, max_entry_kb=512) as one:
        for name in "abc":
            await put(one, key(name), name, size=500 * 1024)
        assert [await ids(one, key(name)) for name in "abc"] == [[], ["b"], ["c"]]
        one.configure(SessionSettings(max_memory_mb=2, max_entry_kb=512))
        await put(one, key("d"), "d", size=500 * 1024)
        assert [await ids(one, key(name)) for name in "bcd"] == [["b"], ["c"], ["d"]], "a reload keeps them"


async def test_fresh_seconds_is_how_long_nobody_asks(server: str) -> None:
    clock = Clock()
    async with backing(clock, redis_url=server, fresh_seconds=7) as one:
        assert one.homes is not None
        assert one.homes.must_ask(5)
        one._router.placement.sessions.sent(5, 1, 0.0)
        clock.now = 7
        assert not one.homes.must_ask(5)
        clock.now = 7.1
        assert one.homes.must_ask(5)


async def test_max_queued_writes_is_how_many_wait(server: str) -> None:
    async with backing(redis_url=server, max_queued_writes=3) as one:
        assert one.shared is not None
        for name in "abcde":
            one.shared[1].put_home(key(name), Home("b"), 60.0)
        assert one.shared[1].queued == 3


async def test_encryption_keys_seal_what_was_said(server: str) -> None:
    async with (
        backing(redis_url=server, encryption_keys=(KEY_A,)) as sealed,
        backing(redis_url=server, encryption_keys=(KEY_B, KEY_A)) as changed,
        backing(redis_url=server) as plain,
    ):
        await put(sealed, key("sealed"), "a")
        assert await ids(changed, key("sealed")) == ["a"]
        assert await plain.current.store.window(key("sealed")) == NO_WINDOW


async def test_what_waits_is_written_when_the_gateway_leaves(server: str) -> None:
    async with backing(redis_url=server) as one:
        assert one.homes is not None
        lease = one._router.arrive("", 0.0, of("a"))
        assert isinstance(lease, Lease)
        one.homes.went(key("leaving"), lease)
    async with backing(redis_url=server) as two:
        home = await two.current.store.home(key("leaving"))
        assert home is not None
        assert home.backend == "b"


# --- what a configuration may say -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind", "nodes"),
    [
        ("redis://localhost", "server", [("localhost", 6379)]),
        ("rediss://user:p%40ss@[::1]:7000/2", "server", [("::1", 7000)]),
        ("unix:///run/redis.sock", "server", []),
        ("redis+sentinel://:p@a:1,b/main", "sentinel", [("a", 1), ("b", 26379)]),
        ("rediss+cluster://a,b:7001", "cluster", [("a", 6379), ("b", 7001)]),
    ],
)
def test_a_url_says_what_stands_behind_it(url: str, kind: str, nodes: list[tuple[str, int]]) -> None:
    address = RedisAddress(url)
    assert (address.kind, address.nodes) == (kind, nodes)
    assert address.is_tls == url.startswith("rediss")
    if "p%40ss" in url:
        assert (address.username, address.password) == ("user", "p@ss")


@pytest.mark.parametrize(
    "url",
    ["", "localhost", "http://:secret@h", "redis://:secret@a,b", "redis+sentinel://:secret@a", "redis+cluster://:secret@", "unix://",
     "redis://:secret@h:99999", "redis://:secret@h:6379:x", "redis://:secr/et@h", "redis://:secret@h/db", "redis://:secret@h?a=secret",
     "redis://:secret@h#secret", "unix:///a?db=secret", "redis+cluster://:secret@a:0"],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(BadRedisUrl) as raised:
        RedisAddress(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "key", "says"),
    [
        ("min_ttl_seconds: 400", "min_ttl_seconds", "above `max_ttl_seconds`"),
        ("max_entry_kb: 2000", "max_entry_kb", "above `max_session_kb`"),
        ("redis_url: 'http://:secret@h'", "redis_url", "no scheme that is known"),
        ("sentinel_password: secret", "sentinel_password", "without `redis_url`"),
        ("{redis_url: 'redis://h', sentinel_password: secret}", "sentinel_password", "without Sentinels"),
        ("{redis_url: 'redis://h', redis_ca_file: /nowhere}", "redis_ca_file", "without TLS"),
        ("{redis_url: 'rediss://h', redis_ca_file: /nowhere}", "redis_ca_file", "is not a file here"),
        ("{redis_url: 'redis://h', encryption_keys: [secret]}", "encryption_keys", "32 bytes in base64"),
        ("encryption_keys: [secret]", "encryption_keys", "without `redis_url`"),
        ("conflicts: sometimes", "conflicts", "unknown value"),
        ("timeout_ms: 0", "timeout_ms", "out of range"),
    ],
)
def test_what_cannot_work_is_named_and_no_secret_is_shown(lines: str, key: str, says: str) -> None:
    text = f"pools: [{{name: p, backends: [{{url: 'http://a'}}]}}]\nsessions:\n  {lines}\n"
    with pytest.raises(ConfigurationError) as raised:
        parse(text, "f", {})
    [fault] = raised.value.faults
    assert fault.key == f"sessions.{key}"
    assert says in fault.message
    assert "secret" not in str(raised.value)


def test_a_configuration_of_a_shared_store_is_read() -> None:
    text = f"pools: [{{name: p, backends: [{{url: 'http://a'}}]}}]\nsessions: {{redis_url: 'redis://h', encryption_keys: [{KEY_A}]}}"
    sessions = parse(text, "f", {}).sessions
    assert sessions.redis_url == "redis://h"
    assert sessions.encryption_keys == (KEY_A,)
