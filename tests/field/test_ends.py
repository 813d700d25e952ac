"""The end of a process, seen by a load balancer that looks once in a while and by clients that keep their connections."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests import client
from tests.backend import Backend, json_script
from tests.emulator.running import until
from tests.gateway_process import GatewayProcess
from tests.running import post_request

READY = client.request("GET", "/readyz")
ASK = post_request({"model": "m"})


@asynccontextmanager
async def leaving(folder: Path, backend: Backend, seconds: float) -> AsyncIterator[GatewayProcess]:
    path = folder / "headrace.yaml"
    pools = [{"name": "p", "backends": [{"url": backend.url}]}]
    path.write_text(json.dumps({"pools": pools, "server": {"leave_seconds": seconds}}))
    async with GatewayProcess("--config", str(path)) as gateway:
        yield gateway


async def test_b132_a_gateway_that_leaves_serves_until_its_load_balancer_has_noticed(tmp_path: Path) -> None:
    async with Backend() as backend, leaving(tmp_path, backend, 3600) as gateway:
        is_wanted = [True]
        answered: list[int] = []

        async def balancer() -> None:
            """Sends on as long as the last look found it ready: one look for twenty requests."""
            while is_wanted[0]:
                answered.extend([(await client.send(gateway.port, ASK)).status for _ in range(20)])
                is_wanted[0] = (await client.send(gateway.port, READY)).status == 200

        balancing = asyncio.create_task(balancer())
        await until(lambda: len(answered) > 20)
        gateway.signal(signal.SIGTERM)
        await balancing
        assert set(answered) == {200}, "nothing was refused or cut"
        assert (await client.send(gateway.port, client.request("GET", "/healthz"))).status == 200
        assert (await client.send(gateway.port, ASK)).status == 200, "late ones too"
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
    async with Backend() as backend, leaving(tmp_path, backend, 0.05) as gateway:
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0, "and otherwise it ends by itself"
        assert b"serving for another 0.05 s" in gateway.stderr


async def test_b134_a_connection_that_is_kept_ends_with_an_answer_that_says_so(tmp_path: Path) -> None:
    async with Backend(lambda _: json_script({})) as backend, leaving(tmp_path, backend, 3600) as gateway:
        connections = [await client.connect(gateway.port) for _ in range(3)]
        for connection in connections:
            await connection.send(ASK)
            assert (await connection.read_answer()).value(b"connection") != b"close"
        gateway.signal(signal.SIGTERM)
        await until(lambda: b"serving for another" in gateway.stderr)
        for connection in connections:
            await connection.send(ASK)
            last = await connection.read_answer()
            assert (last.status, last.complete, last.value(b"connection")) == (200, True, b"close")
            assert await connection.read_until_closed() == b""
            assert not connection.reset_by_peer
            connection.close()
        gateway.signal(signal.SIGTERM)
        assert await gateway.wait() == 0
