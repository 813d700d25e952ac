"""What a new configuration does to the next request and does not do to a running one, inside one process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect

from gateway.server import Load, Server
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
from tests import client
from tests.backend import Backend, Gate, Script
from tests.emulator.running import until
from tests.gateway.realtime_stage import Engine, settings_for
from tests.running import Running, one_pool, running

CHANGES: dict[str, tuple[dict[str, Any], Callable[[client.Answer], bool]]] = {
    "max_body_mb": ({"server": ServerSettings(max_body_mb=0.001)}, lambda answer: answer.status == 413),
    "cors": (
        {"server": ServerSettings(cors_origins=("*",))},
        lambda answer: answer.value(b"access-control-allow-origin") == b"*",
    ),
    "aliases": ({"aliases": {"m": "n"}}, lambda answer: answer.status == 404),
    "window and queue": (
        {"window": 1, "queue": QueueSettings(max_waiting=0)},
        lambda answer: answer.value(b"x-headrace-reason") == b"queue_full",
    ),
    "timeouts": (
        {"timeouts": TimeoutSettings(first_byte_seconds=0.05)},
        lambda answer: answer.value(b"x-headrace-reason") == b"first_byte_timeout",
    ),
    "connections": (
        {"upstream": UpstreamSettings(max_connections=1)},
        lambda answer: answer.value(b"x-headrace-reason") == b"upstream_full",
    ),
}


@pytest.mark.parametrize(("changes", "holds"), CHANGES.values(), ids=CHANGES.keys())
async def test_a_new_configuration_holds_from_the_next_request_on(
    changes: dict[str, Any], holds: Callable[[client.Answer], bool]
) -> None:
    body = b'{"model":"m","pad":"' + b"x" * 2000 + b'"}'
    headers = [(b"Origin", b"https://a.example")]
    first = Gate()
    async with (
        Backend(lambda _: Script(before_head=first, chunks=[b"ok"])) as backend,
        running(backend) as gateway,
    ):
        running_one = await gateway.begin(body, headers=headers)
        await backend.exchange()
        backend.script = lambda _: Script(before_head=Gate() if "timeouts" in changes else None)
        gateway.gateway.configure(one_pool([backend], **changes))
        assert holds(await gateway.post(body, headers=headers))
        first.set()
        answer = await running_one.read_answer()
        assert (answer.status, answer.body) == (200, b"ok"), "it keeps what it began with"
        assert answer.value(b"access-control-allow-origin") is None
        running_one.close()


async def test_the_request_log_and_the_probes_follow_a_new_configuration() -> None:
    async with (
        Backend(record_probes=True) as backend,
        running(backend, log=LogSettings(requests=False)) as gateway,
    ):
        await gateway.post({})
        asked = len(backend.exchanges)
        often = ProbeSettings(interval_seconds=0.05)
        gateway.gateway.configure(one_pool([backend], probes=often, log=LogSettings(requests=True)))
        await gateway.post({})
        await until(lambda: len(gateway.log) == 1)
        await backend.until(lambda: len(backend.exchanges) > asked + 8)
        gateway.gateway.configure(one_pool([backend], log=LogSettings(requests=False)))
        await gateway.post({})
    assert len(gateway.log) == 1


async def test_a_new_window_lets_waiting_requests_in_and_a_new_backend_takes_them() -> None:
    gate = Gate()
    held_back = Script(before_head=gate, chunks=[b"ok"])
    async with (
        Backend(lambda _: held_back) as one,
        Backend(lambda _: held_back) as two,
        running(one, window=1) as gateway,
    ):
        held = [await gateway.begin({}) for _ in range(4)]
        await until(lambda: gateway.gateway.router.waiting == 3)
        gateway.gateway.configure(one_pool([one], window=2))
        await one.exchange(1)
        assert gateway.gateway.router.waiting == 2
        gateway.gateway.configure(one_pool([one, two], window=2))
        await two.exchange(1)
        assert gateway.gateway.router.waiting == 0
        gate.set()
        for connection in held:
            assert (await connection.read_answer()).body == b"ok"
            connection.close()


@asynccontextmanager
async def reloading(settings: Settings, load: Load) -> AsyncIterator[Running]:
    log: list[bytes] = []
    server = Server(settings, load, log.append)
    await server.listen()
    try:
        yield Running(server, log)
    finally:
        await server.drain()


async def test_a_file_that_changes_again_while_it_is_read_is_read_again() -> None:
    async with Backend() as old, Backend() as new:
        file = [one_pool([old])]
        reading, go_on = threading.Event(), threading.Event()

        def load() -> Settings:
            content = file[0]
            reading.set()
            go_on.wait(client.WAIT_SECONDS)
            return content

        async with reloading(file[0], load) as gateway:
            gateway.server.reload()
            await until(reading.is_set)
            file[0] = one_pool([new])
            for _ in range(3):
                gateway.server.reload()
            go_on.set()
            await until(lambda: gateway.metric("headrace_config_reloads_total", result="ok") == 2)
            assert (await gateway.post({})).status == 200
            assert (len(old.exchanges), len(new.exchanges)) == (0, 1)


async def test_an_authority_that_has_gone_since_it_was_checked_is_a_failed_reload() -> None:
    async with Backend() as backend:
        vanished = BackendSettings(url="https://127.0.0.1:1", ca_file="/vanished.pem")
        broken = Settings(pools=(PoolSettings(name="other", backends=(vanished,)),), aliases={"m": "none"})
        settings = one_pool([backend])
        async with reloading(settings, lambda: broken) as gateway:
            gateway.server.reload()
            await until(lambda: gateway.metric("headrace_config_reloads_total", result="failed") == 1)
            assert gateway.gateway.settings == settings
            assert (await gateway.post({"model": "m"})).status == 200
            assert len(backend.exchanges) == 1


async def test_a_websocket_opened_after_a_reload_has_the_new_bound_on_its_messages() -> None:
    async with Engine() as engine:
        small = settings_for(engine, server=ServerSettings(port=0, max_body_mb=0.001))
        async with reloading(settings_for(engine, server=ServerSettings(port=0)), lambda: small) as gateway:
            gateway.server.reload()
            await until(lambda: gateway.metric("headrace_config_reloads_total", result="ok") == 1)
            url = f"ws://127.0.0.1:{gateway.port}/v1/realtime?model=m"
            async with connect(url, proxy=None, close_timeout=1) as socket:
                await socket.send(b"x" * 2000)
                async with asyncio.timeout(client.WAIT_SECONDS):
                    await socket.wait_closed()
                assert socket.close_code == 1009
