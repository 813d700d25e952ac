"""One configuration after the other under running requests, and the end of all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from gateway.upstream.client import Exchange, Upstream
from gateway.upstream.endpoint import Endpoint, ProtocolT
from gateway.upstream.failures import FirstByteTimeout, ResponseBroken
from policies.terms import BackendId
from tests.backend import Backend, Ending, Gate, Script
from tests.gateway.upstream.loops import names_of_running_loop
from tests.gateway.upstream.pools import GET, cancelled, failure_of, fetch, plain, raw, read_all, until

A, B = BackendId("a"), BackendId("b")
UPSTREAM, TIMEOUTS = UpstreamSettings(), TimeoutSettings()


async def test_a_backend_whose_settings_stay_keeps_its_connections() -> None:
    async with Backend() as backend:
        upstream = Upstream()
        for _ in range(3):
            upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
            await fetch(upstream.pool(A))
        assert backend.accepted == 1
        upstream.close()
        await backend.until(lambda: not backend.connections)


@pytest.mark.parametrize("change", [{"api_key": "k"}, {"url": "http://127.0.0.1:1"}])
async def test_a_backend_whose_settings_change_gets_a_pool_of_its_own_and_the_old_one_closes(
    change: dict[str, Any],
) -> None:
    async with Backend() as backend:
        upstream = Upstream()
        upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        old = upstream.pool(A)
        await fetch(old)
        changed = BackendSettings(**{"url": backend.url, **change})
        upstream.configure([(A, changed)], UPSTREAM, TIMEOUTS)
        assert upstream.pool(A) is not old
        await backend.until(lambda: not backend.connections)
        upstream.close()


async def test_an_exchange_runs_to_its_end_although_its_backend_was_retired() -> None:
    gate = Gate()
    async with Backend(lambda _: Script(chunks=[b"body"], before_head=gate)) as backend:
        upstream = Upstream()
        upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        pool = upstream.pool(A)
        task = asyncio.create_task(fetch(pool))
        await backend.exchange()
        upstream.configure([], UPSTREAM, TIMEOUTS)
        gate.set()
        assert await task == (200, b"body")
        assert (pool.busy, pool.idle) == (0, 0)
        await backend.until(lambda: not backend.connections)
        upstream.close()


async def test_a_lease_on_a_backend_that_is_retired_before_its_exchange_is_still_served() -> None:
    async with Backend() as backend:
        upstream = Upstream()
        upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        upstream.configure([(B, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        pool = upstream.pool(A)
        assert (await fetch(pool))[0] == 200
        assert (pool.busy, pool.idle) == (0, 0)
        assert [id for id, _ in upstream.pools()] == [B]
        upstream.close()
        await backend.until(lambda: not backend.connections)


async def test_a_retired_pool_is_forgotten_by_the_next_configuration_that_finds_it_idle() -> None:
    gate = Gate()
    async with Backend(lambda _: Script(chunks=[b"body"], before_head=gate)) as backend:
        upstream = Upstream()
        upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        pool = upstream.pool(A)
        task = asyncio.create_task(fetch(pool))
        await backend.exchange()
        for _ in range(3):
            upstream.configure([], UPSTREAM, TIMEOUTS)
            assert upstream.pool(A) is pool
        gate.set()
        assert await task == (200, b"body")
        upstream.configure([], UPSTREAM, TIMEOUTS)
        with pytest.raises(KeyError):
            upstream.pool(A)
        await backend.until(lambda: not backend.connections)


async def test_a_backend_that_is_retired_and_comes_back_starts_anew_beside_its_old_exchange() -> None:
    gate = Gate()
    scripts = [Script(chunks=[b"old"], before_head=gate), Script(chunks=[b"new"])]
    async with Backend(lambda _: scripts.pop(0)) as backend:
        upstream = Upstream()
        backends = [(A, BackendSettings(url=backend.url))]
        upstream.configure(backends, UPSTREAM, TIMEOUTS)
        old = upstream.pool(A)
        task = asyncio.create_task(fetch(old))
        await backend.exchange()
        upstream.configure([], UPSTREAM, TIMEOUTS)
        upstream.configure(backends, UPSTREAM, TIMEOUTS)
        assert upstream.pool(A) is not old
        assert await fetch(upstream.pool(A)) == (200, b"new")
        gate.set()
        assert await task == (200, b"old")
        await backend.until(lambda: len(backend.connections) == upstream.pool(A).idle == 1)
        upstream.close()
        await backend.until(lambda: not backend.connections)


async def test_new_timeouts_and_bounds_hold_for_the_next_exchange() -> None:
    async with Backend(lambda _: Script(before_head=Gate())) as backend:
        upstream = Upstream()
        backends = [(A, BackendSettings(url=backend.url))]
        upstream.configure(backends, UPSTREAM, TIMEOUTS)
        upstream.configure(backends, UPSTREAM, TimeoutSettings(first_byte_seconds=0.02))
        assert isinstance(await failure_of(fetch(upstream.pool(A))), FirstByteTimeout)
        upstream.close()


async def test_a_new_resolve_time_holds_for_a_backend_that_stays() -> None:
    async with Backend() as backend:
        names = names_of_running_loop()
        names.names["engine.test"] = ["127.0.0.1"]
        upstream = Upstream()
        backends = [(A, BackendSettings(url=f"http://engine.test:{backend.port}"))]
        for seconds, asked in ((1000, 1), (1000, 1), (0, 2), (0, 3)):
            settings = UpstreamSettings(resolve_seconds=seconds, max_idle_connections=0)
            upstream.configure(backends, settings, TIMEOUTS)
            await fetch(upstream.pool(A))
            assert names.asked["engine.test"] == asked
        upstream.close()


async def test_a_configuration_that_cannot_be_taken_over_changes_nothing(tmp_path: Path) -> None:
    async with Backend() as backend:
        upstream = Upstream()
        good = BackendSettings(url=backend.url)
        upstream.configure([(A, good)], UPSTREAM, TIMEOUTS)
        pool = upstream.pool(A)
        await fetch(pool)
        bad = BackendSettings(url="https://127.0.0.1", ca_file=str(tmp_path / "gone"))
        with pytest.raises(OSError, match="No such file"):
            upstream.configure([(A, BackendSettings(url="http://other")), (B, bad)], UPSTREAM, TIMEOUTS)
        assert upstream.pool(A) is pool
        await fetch(pool)
        assert backend.accepted == 1
        upstream.close()
        await backend.until(lambda: not backend.connections)


async def test_closing_ends_what_is_idle_and_what_is_busy_when_it_is_done() -> None:
    scripts = [raw(plain(b"x")), raw(plain(b"y"))]
    async with Backend(lambda request: scripts.pop(0)(request)) as backend:
        upstream = Upstream()
        upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        pool = upstream.pool(A)
        await fetch(pool)
        async with Exchange(pool, GET, b"", True) as answer:
            upstream.close()
            assert pool.busy == 1
            assert await read_all(answer) == b"y"
        assert (pool.busy, pool.idle) == (0, 0)
        await backend.until(lambda: not backend.connections)


class GatedEndpoint(Endpoint):
    def __init__(self, url: str) -> None:
        super().__init__(BackendSettings(url=url), 30)
        self.asked = 0
        self.gate = Gate()

    async def connect(self, factory: Callable[[], ProtocolT], connect_seconds: float) -> ProtocolT:
        self.asked += 1
        await self.gate.wait()
        return await super().connect(factory, connect_seconds)


async def test_who_is_still_connecting_when_all_is_closed_is_served_and_keeps_nothing() -> None:
    async with Backend() as backend:
        upstream = Upstream()
        upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
        pool = upstream.pool(A)
        pool.endpoint = endpoint = GatedEndpoint(backend.url)
        leaving, staying = (asyncio.create_task(fetch(pool)) for _ in range(2))
        await until(lambda: endpoint.asked == 2)
        upstream.close()
        await cancelled(leaving)
        assert pool.busy == 1
        endpoint.gate.set()
        assert (await staying)[0] == 200
        assert (pool.busy, pool.idle) == (0, 0)
        await backend.until(lambda: not backend.connections)


async def test_an_engine_that_dies_takes_all_its_exchanges_and_idle_connections_with_it() -> None:
    backend = Backend(lambda _: Script(before_head=Gate(), ending=Ending.SILENT))
    await backend.start()
    upstream = Upstream()
    upstream.configure([(A, BackendSettings(url=backend.url))], UPSTREAM, TIMEOUTS)
    pool = upstream.pool(A)
    tasks = [asyncio.create_task(fetch(pool)) for _ in range(5)]
    await backend.until(lambda: len(backend.exchanges) == 5)
    await backend.stop()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, ResponseBroken)
    await until(lambda: (pool.busy, pool.idle) == (0, 0))
    upstream.close()
