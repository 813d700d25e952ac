"""The gateway inside the test's own loop, on a real socket, in front of `tests.backend` or emulated engines.

    async with Backend(script) as backend, running(backend) as gateway:
        answer = await gateway.post({"model": "m"})

`running` takes backends (or URLs) for one pool and sections of `Settings` by name; it waits until each backend's first probe is
in (`probed=False` does not). When the block ends without an error it holds the gateway to its promise: within
`client.WAIT_SECONDS` no request is in flight, no lease held, nobody waits, no connection to an engine is busy, and once it is closed no
task is left that was not there before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from gateway.app import Gateway
from gateway.server import Server
from gateway.settings import BackendSettings, PoolSettings, ServerSettings, Settings, WindowSettings
from tests import client
from tests.emulator.running import until

CHAT = "/v1/chat/completions"
JSON = (b"Content-Type", b"application/json")


class Served(Protocol):
    """An engine of either kind: scripted or emulated."""

    @property
    def url(self) -> str: ...


class Running:
    """One running gateway, as a test sees it."""

    def __init__(self, server: Server, log: list[bytes]) -> None:
        self.server = server
        self._log = log

    @property
    def gateway(self) -> Gateway:
        return self.server.gateway

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> list[dict[str, Any]]:
        """The request log so far."""
        return [json.loads(line) for line in b"".join(self._log).splitlines()]

    async def send(self, raw: bytes) -> client.Answer:
        return await client.send(self.port, raw)

    async def get(self, target: str, *headers: tuple[bytes, bytes]) -> client.Answer:
        return await self.send(client.request("GET", target, headers))

    async def post(
        self, body: bytes | dict[str, Any], target: str = CHAT, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> client.Answer:
        return await self.send(post_request(body, target, headers))

    async def connect(self, *, receive_buffer_bytes: int = 0) -> client.Connection:
        return await client.connect(self.port, receive_buffer_bytes=receive_buffer_bytes)

    async def begin(
        self, body: bytes | dict[str, Any], target: str = CHAT, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> client.Connection:
        """A connection on which this request was sent."""
        connection = await self.connect()
        await connection.send(post_request(body, target, headers))
        return connection

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all series of `name` that carry `labels`."""
        return sum(
            sample.value
            for family in self.gateway.telemetry.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def in_flight(self) -> list[int]:
        """Leases per backend."""
        return [backend.in_flight for backend in self.gateway.router.fleet]

    def present(self) -> list[bool]:
        return [backend.is_present() for backend in self.gateway.router.fleet]

    def is_quiet(self) -> bool:
        """Nothing is held for any request."""
        gateway = self.gateway
        return (
            gateway.requests_in_flight == 0
            and gateway.router.waiting == 0
            and not any(self.in_flight())
            and not any(pool.busy for _, pool in gateway.upstream.pools())
        )

    def is_probed(self) -> bool:
        return all(
            backend.models is not None or not backend.is_present() for backend in self.gateway.router.fleet
        )


def post_request(
    body: bytes | dict[str, Any], target: str = CHAT, headers: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.request("POST", target, [JSON, *headers], raw)


def one_pool(backends: Iterable[Served | str], window: int | None = None, **sections: Any) -> Settings:
    """`window` bounds the requests per backend; `sections` are fields of `Settings`."""
    urls = [backend if isinstance(backend, str) else backend.url for backend in backends]
    pool = PoolSettings(
        name="default",
        window=None if window is None else WindowSettings(max=window),
        backends=tuple(BackendSettings(url=url) for url in urls),
    )
    return Settings(pools=(pool,), **{"server": ServerSettings(port=0), **sections})


@asynccontextmanager
async def running(
    *backends: Served | str, window: int | None = None, probed: bool = True, **sections: Any
) -> AsyncIterator[Running]:
    async with running_with(one_pool(backends, window, **sections), probed=probed) as gateway:
        yield gateway


@asynccontextmanager
async def running_with(settings: Settings, *, probed: bool = True) -> AsyncIterator[Running]:
    """The gateway with a whole configuration; its port is always a free one."""
    before = asyncio.all_tasks()
    log: list[bytes] = []
    server = Server(settings, None, log.append)
    gateway = Running(server, log)
    assert settings.server.port == 0, "a test does not choose its port"
    try:
        await server.listen()
        if probed:
            await until(gateway.is_probed)
        yield gateway
        await _until(gateway.is_quiet, "the gateway still holds something for a request")
    except BaseException:
        server.stop()
        server.stop()  # no patience after a failure
        raise
    finally:
        await server.drain()
    await _until(lambda: not server.connections, "client connections are left")
    await _until(lambda: asyncio.all_tasks() <= before, "tasks are left")


async def _until(condition: Any, otherwise: str) -> None:
    try:
        await until(condition)
    except TimeoutError:
        raise AssertionError(f"{otherwise}: {asyncio.all_tasks()}") from None
