"""Who gets /metrics and /admin, and on which listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from gateway.admin import is_loopback
from gateway.admin_settings import AdminSettings
from gateway.configuration import ConfigurationError, parse
from gateway.configuration.check import check_command
from gateway.server import Server
from gateway.settings import ServerSettings, Settings
from tests import client
from tests.backend import Backend, Script
from tests.emulator.running import until
from tests.gateway_process import free_port
from tests.running import Running, one_pool, running, running_with

PAGES = ("/metrics", "/admin/state", "/admin/rules", "/admin/affinity")
FORCE = b'{"force":"on","seconds":600,"by":"test"}'
RULE = "/admin/rules/memory-baseline"
JSON = (b"content-type", b"application/json")
KEY = (b"authorization", b"Bearer admin-key")


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def force(*headers: tuple[bytes, bytes]) -> bytes:
    return client.request("POST", RULE, [JSON, *headers], FORCE)


def reason(answer: client.Answer) -> bytes | None:
    return answer.value(b"x-headrace-reason")


async def statuses(port: int, *headers: tuple[bytes, bytes], host: str = "127.0.0.1") -> list[int]:
    answers = [await client.send(port, client.request("GET", page, headers), host) for page in PAGES]
    return [answer.status for answer in answers]


async def test_by_default_they_are_where_clients_are_served_and_forces_work_on_loopback() -> None:
    async with Backend() as backend, running(backend) as gateway:
        assert await statuses(gateway.port) == [200] * 4
        assert gateway.server.admin_port is None
        assert (await gateway.send(force())).status == 200
        assert (await gateway.get("/admin/state/")).status == 404, (
            "no redirect to a host of the client's choice"
        )
        assert (await gateway.get("/admin/none")).status == 404


async def test_a_listener_of_their_own_serves_these_pages_and_the_clients_one_does_not() -> None:
    async with Backend() as backend:
        admin = AdminSettings(host="127.0.0.2", port=0)
        async with running_with(one_pool([backend], admin=admin)) as gateway:
            own = gateway.server.admin_port
            assert own is not None and own != gateway.port
            assert await statuses(own, host="127.0.0.2") == [200] * 4
            assert (await client.send(own, force(), "127.0.0.2")).status == 200
            with pytest.raises(ConnectionError):
                await client.connect(own)
            for raw in (*(client.request("GET", page) for page in PAGES), force()):
                answer = await gateway.send(raw)
                assert (answer.status, reason(answer)) == (404, b"unknown_path")
            for path, status in (("/healthz", 200), ("/readyz", 200), ("/v1/models", 404), ("/load", 404)):
                assert (await client.send(own, client.request("GET", path), "127.0.0.2")).status == status
            assert (await gateway.get("/healthz")).status == (await gateway.get("/v1/models")).status == 200
            chat = client.request("POST", "/v1/chat/completions", [JSON], b"{}")
            refused = await client.send(own, chat, "127.0.0.2")
            assert (refused.status, reason(refused)) == (404, b"unknown_path")
            assert backend.exchanges == [], "no engine is reached from there"
            offer = [(b"Connection", b"upgrade"), (b"Upgrade", b"websocket")]
            socket = client.request("GET", "/v1/realtime", offer)
            assert (await client.send(own, socket, "127.0.0.2")).status == 404


async def test_with_a_key_every_one_of_these_pages_needs_it() -> None:
    admin = AdminSettings(key_sha256=(digest("other"), digest("admin-key").upper()))
    for apart in (admin, replace(admin, port=0)):
        async with Backend() as backend, running(backend, admin=apart) as gateway:
            port = gateway.server.admin_port or gateway.port
            assert await statuses(port) == [401] * 4
            assert await statuses(port, (b"authorization", b"Bearer wrong")) == [401] * 4
            assert (
                await statuses(port, (b"authorization", b"Bearer " + digest("admin-key").encode()))
                == [401] * 4
            )
            assert await statuses(port, KEY) == await statuses(port, (b"x-api-key", b"other")) == [200] * 4
            refused = await client.send(port, force())
            assert (refused.status, reason(refused)) == (401, b"unauthorized")
            assert refused.value(b"www-authenticate") == b"Bearer" and b'"error"' in refused.body
            assert (await client.send(port, client.request("GET", "/admin/none"))).status == 401
            assert (await client.send(port, force(KEY, (b"origin", b"https://ours.test")))).status == 200
            assert (await client.send(port, client.request("GET", "/healthz"))).status == 200
            assert gateway.metric("headrace_refusals_total", reason="unauthorized") == 14


async def test_a_refused_force_leaves_its_connection_usable() -> None:
    admin = AdminSettings(key_sha256=(digest("admin-key"),))
    async with (
        Backend() as backend,
        running(backend, admin=admin) as gateway,
        await gateway.connect() as connection,
    ):
        seen = []
        for raw in (force(), force(KEY), client.request("GET", "/metrics"), force(KEY)):
            await connection.send(raw)
            seen.append((await connection.read_answer()).status)
        assert seen == [401, 200, 401, 200]


@pytest.mark.parametrize("apart", [False, True], ids=["with clients", "apart"])
async def test_where_other_hosts_reach_them_forces_are_refused_until_there_is_a_key(apart: bool) -> None:
    server = ServerSettings(port=0, host="127.0.0.1" if apart else "0.0.0.0")
    admin = AdminSettings(host="0.0.0.0", port=0 if apart else None)
    async with Backend() as backend:
        async with running(backend, server=server, admin=admin) as gateway:
            port = gateway.server.admin_port or gateway.port
            assert await statuses(port) == [200] * 4
            answer = await client.send(port, force())
            assert (answer.status, reason(answer)) == (403, b"forbidden")
            assert b"admin.key_sha256" in answer.body and b"admin.port" in answer.body
            for method in ("PUT", "DELETE", "PATCH"):
                other = client.request(method, RULE, [JSON], FORCE)
                assert (await client.send(port, other)).status == 403
        keyed = replace(admin, key_sha256=(digest("admin-key"),))
        async with running(backend, server=server, admin=keyed) as gateway:
            assert (await client.send(gateway.server.admin_port or gateway.port, force(KEY))).status == 200


PASSED_ON = {
    "a proxy's client": [(b"X-Forwarded-For", b"203.0.113.9")],
    "a proxy's scheme": [(b"X-Forwarded-Proto", b"https")],
    "the standard": [(b"Forwarded", b"for=203.0.113.9")],
    "a real address": [(b"X-Real-IP", b"203.0.113.9")],
    "a proxy": [(b"Via", b"1.1 edge")],
    "another name": [(b"host", b"evil.example")],
    "another name and port": [(b"host", b"evil.example:8080")],
    "another address": [(b"host", b"[2001:db8::1]:8080")],
}


@pytest.mark.parametrize("case", PASSED_ON)
async def test_without_a_key_what_a_proxy_passes_on_or_another_name_leads_to_is_refused(case: str) -> None:
    headers = PASSED_ON[case]
    if headers[0][0] != b"host":
        headers = [(b"host", b"127.0.0.1"), *headers]
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    async with Backend() as backend, running(backend) as gateway:
        for method, path, status in (
            (b"GET", b"/admin/state", 403),
            (b"POST", b"/admin/rules/batch-idle", 403),
            (b"GET", b"/metrics", 200),
        ):
            raw = b"%b %b HTTP/1.1\r\n%bcontent-length: 2\r\n\r\n{}" % (method, path, lines)
            answer = await gateway.send(raw)
            assert answer.status == status
            assert status == 200 or answer.value(b"x-headrace-reason") == b"forbidden"
        assert gateway.metric("headrace_refusals_total", reason="forbidden") == 2


@pytest.mark.parametrize(
    "host", [b"localhost", b"LOCALHOST:8080", b"127.0.0.1:1", b"127.8.8.8", b"[::1]:8080", b""]
)
async def test_without_a_key_this_machine_has_several_names(host: bytes) -> None:
    async with Backend() as backend, running(backend) as gateway:
        assert (await gateway.send(b"GET /admin/state HTTP/1.1\r\nHost: %b\r\n\r\n" % host)).status == 200


async def test_with_a_key_a_proxy_may_stand_before_them() -> None:
    admin = AdminSettings(key_sha256=(sha256(b"key-of-operators").hexdigest(),))
    headers = [(b"Authorization", b"Bearer key-of-operators"), (b"X-Forwarded-For", b"203.0.113.9")]
    async with Backend() as backend, running(backend, admin=admin) as gateway:
        assert (await gateway.get("/admin/state", *headers)).status == 200


async def test_without_a_key_no_web_page_forces_a_rule_or_reads_them_across_origins() -> None:
    server = ServerSettings(port=0, cors_origins=("*",))
    origin = (b"origin", b"https://elsewhere.test")
    async with Backend() as backend, running(backend, server=server) as gateway:
        assert (await gateway.send(force(origin))).status == 403
        preflight = [origin, (b"access-control-request-method", b"POST")]
        assert (await gateway.send(client.request("OPTIONS", RULE, preflight))).status == 403
        for page in PAGES:
            assert (await gateway.get(page, origin)).value(b"access-control-allow-origin") is None
        assert (await gateway.get("/v1/models", origin)).value(b"access-control-allow-origin") == b"*"


async def test_a_target_that_only_looks_different_is_guarded_too() -> None:
    admin = AdminSettings(key_sha256=(digest("admin-key"),))
    async with Backend() as backend, running(backend, admin=admin) as gateway:
        for target in (
            "/%61dmin/state",
            "/admin/%73tate",
            "/metrics?x",
            "http://h/metrics",
            "/metrics#x",
            "/./metrics",
            "//metrics",
            "/v1/../metrics",
            "/v1/..%2fmetrics",
            "/METRICS",
            "/metrics/",
            "/admin",
            "/admin//state",
        ):
            answer = await gateway.get(target)
            assert answer.status in (401, 404), target
            assert b"headrace_" not in answer.body
        assert backend.exchanges == []


@asynccontextmanager
async def reloading(settings: Settings, then: Settings) -> AsyncIterator[Running]:
    log: list[bytes] = []
    server = Server(settings, lambda: then, log.append)
    await server.listen()
    gateway = Running(server, log)
    try:
        server.reload()
        await until(lambda: gateway.metric("headrace_config_reloads_total", result="ok") == 1)
        yield gateway
    finally:
        await server.drain()


async def test_a_reload_changes_the_keys() -> None:
    async with Backend() as backend:
        old = one_pool([backend], admin=AdminSettings(key_sha256=(digest("old"),)))
        new = one_pool([backend], admin=AdminSettings(key_sha256=(digest("admin-key"),)))
        async with reloading(old, new) as gateway:
            assert await statuses(gateway.port, (b"authorization", b"Bearer old")) == [401] * 4
            assert await statuses(gateway.port, KEY) == [200] * 4


async def test_a_reload_moves_no_listener_and_forces_go_by_where_it_really_listens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    async with Backend() as backend:
        everywhere = one_pool([backend], server=ServerSettings(port=0, host="0.0.0.0"))
        apart = one_pool([backend], admin=AdminSettings(port=0))
        async with reloading(everywhere, apart) as gateway:
            assert gateway.server.admin_port is None
            assert (await gateway.send(force())).status == 403
            assert await statuses(gateway.port) == [200] * 4
        assert "take effect at the next start" in caplog.text
        assert "shown to whoever reaches 0.0.0.0" in caplog.text
        async with reloading(apart, everywhere) as gateway:
            assert await statuses(gateway.port) == [404] * 4
            assert await statuses(gateway.server.admin_port or 0) == [200] * 4


async def test_they_are_still_shown_while_requests_drain() -> None:
    gate = asyncio.Event()
    async with Backend() as backend:
        settings = one_pool([backend], admin=AdminSettings(port=0))
        server = Server(settings, None, lambda lines: None)
        await server.listen()
        gateway = Running(server, [])
        backend.script = lambda _: Script(before_head=gate)
        one = await gateway.begin({})
        await until(lambda: gateway.gateway.requests_in_flight == 1)
        draining = asyncio.create_task(server.drain())
        await until(lambda: gateway.gateway.is_draining)
        assert await statuses(server.admin_port or 0) == [200] * 4
        ready = await client.send(server.admin_port or 0, client.request("GET", "/readyz"))
        assert ready.status == 503
        gate.set()
        assert (await one.read_answer()).status == 200
        one.close()
        await draining
        with pytest.raises(ConnectionError):
            await client.connect(server.admin_port or 0)


async def test_an_address_in_use_is_named_and_nothing_is_left_listening() -> None:
    async with Backend() as backend:
        port = free_port()
        settings = one_pool(
            [backend], server=ServerSettings(port=port), admin=AdminSettings(port=backend.port)
        )
        server = Server(settings, None, lambda lines: None)
        with pytest.raises(OSError) as raised:
            await server.serve()
        assert raised.value.filename == f"127.0.0.1:{backend.port}" and raised.value.strerror
        with pytest.raises(ConnectionError):
            await client.connect(port)


@pytest.mark.parametrize(
    ("host", "loopback"),
    {
        "127.0.0.1": True,
        "127.9.9.9": True,
        "::1": True,
        "localhost": True,
        "LocalHost": True,
        "0.0.0.0": False,
        "::": False,
        "10.0.0.1": False,
        "localhost.example": False,
    }.items(),
)
def test_an_address_is_loopback_only_where_no_other_host_reaches_it(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


POOLS = "pools: [{name: p, backends: [{url: 'http://127.0.0.1:1'}]}]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    {
        "admin: {key_sha256: [secret]}": "admin.key_sha256[0]: is not a SHA-256",
        "admin: {host: 'a b'}": "admin.host: is neither an IP address",
        "admin: {port: 70000}": "admin.port: 70000 is out of range",
        "server: {port: 81}\nadmin: {port: 81}": "admin.port: is where clients are served",
        "admin: {port: 8080}": "admin.port: is where clients are served",
        f"tenants: [{{name: t, key_sha256: [{digest('a')}]}}]\nadmin: {{key_sha256: [{digest('a').upper()}]}}": "a key belongs to one tenant, or to `admin`",
    }.items(),
)
def test_a_configuration_that_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(POOLS + text, "f", {})
    assert says in str(raised.value) and "secret" not in str(raised.value)


def test_ports_that_do_not_meet_are_allowed() -> None:
    for text in ("admin: {port: 0}\nserver: {port: 0}", "admin: {host: 127.0.0.2, port: 8080}", ""):
        assert parse(POOLS + text, "f", {}).admin is not None


@pytest.mark.parametrize(
    ("text", "warns"),
    {
        "": False,
        "server: {host: '0.0.0.0'}": True,
        "server: {host: '0.0.0.0'}\nadmin: {port: 9}": False,
        "admin: {port: 9, host: '::'}": True,
        f"admin: {{port: 9, host: '::', key_sha256: [{digest('a')}]}}": False,
    }.items(),
)
def test_check_warns_where_other_hosts_see_them(
    text: str, warns: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(POOLS + text)
    assert check_command(str(file), {}) == 0
    written = capsys.readouterr()
    assert written.err.startswith("warning: /metrics and /admin are shown") is warns
    assert "\n/metrics and /admin " in written.out
