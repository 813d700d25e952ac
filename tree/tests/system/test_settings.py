"""What each setting does, as far as the tests of its part do not show it; `test_every_setting` has the whole table.

Where a short limit and its default both end in seconds, a second gateway with the default, begun earlier, shows which of the two held.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from gateway.configuration.check import check_command
from gateway.server import Server
from gateway.settings import (
    BackendSettings,
    LogSettings,
    PoolSettings,
    ProbeSettings,
    QueueSettings,
    ServerSettings,
    Settings,
    TimeoutSettings,
    UpstreamSettings,
)
from gateway.upstream.client import Exchange, Upstream
from policies.terms import BackendId
from tests import client
from tests.backend import Backend, Gate, Script
from tests.emulator.running import nothing_came, until
from tests.gateway.upstream.loops import names_of_running_loop
from tests.gateway_process import free_port
from tests.running import CHAT, Running, one_pool, running, running_with


@asynccontextmanager
async def running_beside(settings: Callable[[Backend], Settings]) -> AsyncIterator[tuple[Running, Running]]:
    """A gateway with every default, and then one with `settings`, each in front of a backend of its own."""
    async with (
        Backend() as one,
        Backend() as two,
        running(one) as patient,
        running_with(settings(two)) as short,
    ):
        yield patient, short


async def test_host_and_port_are_where_it_listens() -> None:
    port = free_port("::1")
    async with Backend() as backend:
        server = Server(one_pool([backend], server=ServerSettings(host="::1", port=port)), None, print)
        await server.listen()
        try:
            assert (await client.send(port, client.request("GET", "/readyz"), "::1")).status == 200
            with pytest.raises(ConnectionRefusedError):
                await client.connect(port)
        finally:
            await server.drain()


async def test_max_header_kb_bounds_a_head() -> None:
    async with Backend() as backend:
        for kilobytes, sizes in {1: [(600, 200), (1100, 431)], 128: [(100_000, 200), (140_000, 431)]}.items():
            server = ServerSettings(port=0, max_header_kb=kilobytes)
            async with running(backend, server=server) as gateway:
                for size, status in sizes:
                    assert (await gateway.get("/readyz", (b"x-long", b"x" * size))).status == status


async def test_header_seconds_bound_a_slow_head() -> None:
    server = ServerSettings(port=0, header_seconds=0.05)
    async with (
        running_beside(lambda backend: one_pool([backend], server=server)) as (patient, short),
        await patient.connect() as waiting,
        await short.connect() as ended,
    ):
        await waiting.send(b"GET / HT")
        await ended.send(b"GET / HT")
        assert (await ended.read_answer()).status == 408
        assert nothing_came(waiting)


async def test_drain_seconds_bound_what_runs_at_the_end() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        running(backend) as patient,
        running(backend, server=ServerSettings(port=0, drain_seconds=0)) as short,
        await patient.begin({}) as finished,
        await short.begin({}) as cut,
    ):
        await backend.exchange(1)
        draining = asyncio.create_task(patient.server.drain())
        await until(lambda: patient.gateway.is_draining)
        await short.server.drain()
        assert (await cut.read_answer()).status == 503
        assert not draining.done()
        gate.set()
        assert (await finished.read_answer()).status == 200
        await draining


async def test_connect_seconds_bound_the_wait_for_a_connection() -> None:
    """Nobody answers the TLS handshake; with the default of 2 s the other gateway still waits for it."""
    once = ProbeSettings(interval_seconds=3600, timeout_seconds=0.05, failures=100)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        async with (
            running(url, probed=False, probes=once) as patient,
            running(url, probed=False, probes=once, timeouts=TimeoutSettings(connect_seconds=0.05)) as short,
            await patient.begin({}) as waiting,
        ):
            await until(lambda: patient.in_flight() == [1])
            await until(
                lambda: all(
                    one.probe_failures for gateway in (patient, short) for one in gateway.gateway.router.fleet
                )
            )
            answer = await short.post({})
            assert (answer.status, answer.value(b"x-headrace-reason")) == (502, b"backend_unreachable")
            assert b"within 0.05 s" in answer.body
            assert nothing_came(waiting)


@pytest.mark.parametrize("most", [0, 2])
async def test_max_idle_connections_bound_what_is_kept(most: int) -> None:
    gate = Gate()
    upstream = UpstreamSettings(max_idle_connections=most, idle_seconds=3600)
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        running(backend, upstream=upstream) as gateway,
    ):
        held = [await gateway.begin({}) for _ in range(5)]
        await backend.exchange(4)
        gate.set()
        for connection in held:
            assert (await connection.read_answer()).status == 200
            connection.close()
        await until(gateway.is_quiet)
        assert gateway.metric("headrace_upstream_connections", state="idle") == most


async def test_idle_seconds_end_a_kept_connection() -> None:
    def settings(backend: Backend) -> Settings:
        return one_pool([backend], upstream=UpstreamSettings(idle_seconds=0.05))

    def kept(gateway: Running) -> float:
        return gateway.metric("headrace_upstream_connections", state="idle")

    async with running_beside(settings) as (patient, short):
        for gateway in (patient, short):
            assert (await gateway.post({})).status == 200
        await until(lambda: kept(short) == 0)
        assert kept(patient) == 1


async def test_resolve_seconds_bound_the_trust_in_an_address() -> None:
    loop = names_of_running_loop()
    loop.names["engine.test"] = ["127.0.0.1"]
    async with Backend() as backend:
        settings = BackendSettings(url=f"http://engine.test:{backend.port}")
        for trusted, asked in ((3600.0, 1), (0.0, 3)):
            loop.asked.clear()
            upstream, id = Upstream(), BackendId("e")
            rules = UpstreamSettings(resolve_seconds=trusted, max_idle_connections=0)
            upstream.configure([(id, settings)], rules, TimeoutSettings())
            for _ in range(3):
                async with Exchange(
                    upstream.pool(id), b"GET / HTTP/1.1\r\nhost: e\r\n\r\n", b"", True
                ) as answer:
                    assert answer.status == 200
            assert loop.asked["engine.test"] == asked
            upstream.close()


def asked(backend: Backend) -> list[str]:
    return [exchange.request.path for exchange in backend.exchanges]


async def test_interval_seconds_lie_between_probes() -> None:
    async with (
        Backend(record_probes=True) as rare,
        Backend(record_probes=True) as often,
        running(rare),
        running(often, probes=ProbeSettings(interval_seconds=0.05)),
    ):
        await often.until(lambda: asked(often).count("/health") >= 4)
        assert asked(rare).count("/health") == asked(rare).count("/v1/models") == 1


async def test_timeout_seconds_bound_a_probe() -> None:
    silent = Backend(record_probes=True)
    silent.probes["/version"] = Script(before_head=Gate())
    patience, haste = ProbeSettings(failures=1), ProbeSettings(failures=1, timeout_seconds=0.05)
    async with silent, running(silent, probed=False, probes=patience) as patient:
        await silent.exchange()
        async with running(silent, probed=False, probes=haste) as short:
            await until(lambda: short.present() == [False])
            assert patient.present() == [True]


@pytest.mark.parametrize("failures", [1, 2])
async def test_so_many_failures_take_a_backend_out(failures: int) -> None:
    probes = ProbeSettings(interval_seconds=0.05, failures=failures)
    async with Backend(record_probes=True) as ill, running(ill, probes=probes) as gateway:
        ill.probes["/health"] = Script(status=500)
        await until(lambda: gateway.present() == [False])
        answers = [exchange.script.status for exchange in ill.exchanges if exchange.script]
        assert answers.count(500) == failures


async def test_max_waiting_bounds_the_queue() -> None:
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        running(backend, window=2, queue=QueueSettings(max_waiting=1)) as gateway,
    ):
        held = [await gateway.begin({}) for _ in range(3)]
        await until(lambda: gateway.gateway.router.waiting == 1)
        assert gateway.in_flight() == [2], "the window's size"
        answer = await gateway.post({})
        assert (answer.status, answer.value(b"x-headrace-reason")) == (503, b"queue_full")
        assert answer.value(b"retry-after")
        gate.set()
        for connection in held:
            assert (await connection.read_answer()).status == 200
            connection.close()


async def test_max_wait_seconds_bound_the_wait() -> None:
    queue = QueueSettings(max_wait_seconds=0.05)
    gate = Gate()
    async with (
        Backend(lambda _: Script(before_head=gate)) as backend,
        running(backend, window=1) as patient,
        running(backend, window=1, queue=queue) as short,
    ):
        held = [await gateway.begin({}) for gateway in (patient, short) for _ in range(2)]
        await backend.exchange(1)
        answer = await asyncio.wait_for(first_of(held), client.WAIT_SECONDS)
        assert (answer.status, answer.value(b"x-headrace-reason")) == (504, b"queue_timeout")
        assert (patient.gateway.router.waiting, short.gateway.router.waiting) == (1, 0)
        gate.set()
        for connection in held:
            connection.close()


async def first_of(connections: list[client.Connection]) -> client.Answer:
    """The answer that comes first; the others go on waiting."""
    reading = [asyncio.create_task(connection.read_answer()) for connection in connections]
    done, others = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    return done.pop().result()


async def test_the_request_log_can_be_switched_off() -> None:
    async with Backend() as backend:
        for wanted in (True, False):
            async with running(backend, log=LogSettings(requests=wanted)) as gateway:
                assert (await gateway.post({})).status == 200
            assert len(gateway.log) == int(wanted), "what was left is written at the end"


async def test_names_and_urls_of_pools_and_backends_say_where_a_request_went() -> None:
    async with Backend(models=["a"]) as one, Backend(models=["b"]) as two:
        pools = (
            PoolSettings(name="first", backends=(BackendSettings(url=one.url, name="gpu-1"),)),
            PoolSettings(name="second", backends=(BackendSettings(url=f"{two.url}/prefix/"),)),
        )
        two.probes |= {f"/prefix{path}": script for path, script in two.probes.items()}
        async with running_with(Settings(pools=pools, server=ServerSettings(port=0))) as gateway:
            unnamed = two.url.removeprefix("http://")
            for model, place in (
                ("a", "pool=first;backend=gpu-1;"),
                ("b", f"pool=second;backend={unnamed};"),
            ):
                route = (await gateway.post({"model": model})).value(b"x-headrace-route") or b""
                assert place in route.decode()
            assert (one.exchanges[0].request.target, two.exchanges[0].request.target) == (
                CHAT,
                f"/prefix{CHAT}",
            )
            assert gateway.metric("headrace_requests_total", pool="first", backend="gpu-1") == 1


async def test_ca_file_verifies_requests_and_probes(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    async with Backend(tls=server_side) as backend:
        for ca_file, present in ((str(tmp_path / "ca.pem"), True), ("", False)):
            backends = (BackendSettings(url=backend.url, ca_file=ca_file),)
            settings = Settings(
                pools=(PoolSettings(name="p", backends=backends),), server=ServerSettings(port=0)
            )
            async with running_with(settings) as gateway:
                assert gateway.present() == [present]
                assert (await gateway.post({})).status == (200 if present else 503)
    assert len(backend.exchanges) == 1


def test_the_role_of_a_pool_is_what_check_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text("pools: [{name: p, role: low-latency, backends: [{url: 'http://a'}]}]\n")
    assert check_command(str(file), {}) == 0
    assert "pool p: role low-latency" in capsys.readouterr().out
