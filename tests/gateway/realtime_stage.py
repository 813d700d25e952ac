"""What the tests of `/v1/realtime` are played on: engines that speak WebSocket, and a gateway on a real port in front of them.

`async with Engine() as engine` listens on a free port (or `path=`, or with `tls=`). Each socket that it accepts comes out of
`await engine.socket()`, for the test to read, write and close; `refusal` answers handshakes over HTTP instead, and while `may_answer` is not
set they wait. `async with Stage(settings) as stage` serves `Realtime` on the real front; `await stage.record()` is the next socket's record,
which comes when everything is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from types import TracebackType
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve, unix_serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from gateway.configuration import backend_name
from gateway.departure import Departure
from gateway.front import FrontProtocol
from gateway.realtime import Realtime
from gateway.record import Record
from gateway.settings import BackendSettings, PoolSettings, Settings, WindowSettings
from gateway.tagging import Tagging
from gateway.telemetry import Telemetry
from gateway.turnstile import Turnstile
from gateway.upstream.client import Upstream
from gateway.websocket_front import WebSocketFront
from policies.terms import BackendId, PoolName
from routing.backend import Backend, BackendPlan
from routing.router import Router
from routing.rules import Rules

WAIT_SECONDS = 20
HANDSHAKE = (
    b"GET /v1/realtime?model=m HTTP/1.1\r\nhost: gateway.test\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  # the state of plain objects, which no event tells of
            await asyncio.sleep(0)


class Engine:
    def __init__(
        self,
        *,
        path: str | None = None,
        tls: ssl.SSLContext | None = None,
        subprotocols: tuple[str, ...] = (),
    ) -> None:
        self.handshakes: list[Request] = []
        self.refusal: HTTPStatus | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.url = f"unix://{path}" if path else ""
        self._path = path
        self._tls = tls
        self._subprotocols = [Subprotocol(name) for name in subprotocols] or None
        self._sockets: asyncio.Queue[ServerConnection] = asyncio.Queue()
        self._accepted: list[ServerConnection] = []
        self._block = contextlib.AsyncExitStack()

    async def socket(self) -> ServerConnection:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._sockets.get()

    async def __aenter__(self) -> Engine:
        arguments: dict[str, Any] = {
            "process_request": self._process,
            "subprotocols": self._subprotocols,
            "ssl": self._tls,
            "compression": None,
            "max_size": None,
            "close_timeout": 1,
        }
        if self._path:
            _ = await self._block.enter_async_context(unix_serve(self._hold, self._path, **arguments))
            return self
        server = await self._block.enter_async_context(serve(self._hold, "127.0.0.1", 0, **arguments))
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._accepted:
            connection.transport.abort()
        await self._block.aclose()

    async def _process(self, connection: ServerConnection, request: Request) -> Response | None:
        if "upgrade" not in request.headers:  # a probe
            return connection.respond(HTTPStatus.OK, '{"object": "list", "data": [{"id": "m"}]}')
        self.handshakes.append(request)
        await self.may_answer.wait()
        return None if self.refusal is None else connection.respond(self.refusal, '{"engine": "says no"}')

    async def _hold(self, connection: ServerConnection) -> None:
        self._accepted.append(connection)
        self._sockets.put_nowait(connection)
        await connection.wait_closed()


def settings_for(*engines: Engine | str, window: int | None = None, **sections: Any) -> Settings:
    backends = tuple(BackendSettings(url=each if isinstance(each, str) else each.url) for each in engines)
    return settings_of(*backends, window=window, **sections)


def settings_of(*backends: BackendSettings, window: int | None = None, **sections: Any) -> Settings:
    bound = None if window is None else WindowSettings(max=window)
    return Settings(pools=(PoolSettings(name="p", window=bound, backends=backends),), **sections)


class Stage:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.draining = False
        self.live: set[Departure] = set()
        self.router = Router(Rules())
        self.turnstile = Turnstile(self.router, settings.queue.max_wait_seconds)
        self.upstream = Upstream()
        self.telemetry = Telemetry(lambda: (self.router, self.upstream, len(self.live), 0.0))
        self.state = ServerState()
        self.port = 0
        self._records: asyncio.Queue[Record] = asyncio.Queue()
        self._listener: asyncio.Server
        self._clients: list[ClientConnection] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.app = Realtime(
            self.turnstile,
            self.upstream,
            self.telemetry,
            self.live,
            lambda: self.settings,
            lambda: self.draining,
            lambda: self._records.put_nowait,
            lambda: Tagging(self.settings),
        )
        window = settings.pools[0].window
        backends = [(BackendId(backend_name(each)), each) for each in settings.pools[0].backends]
        self.upstream.configure(backends, settings.upstream, settings.timeouts)
        self.router.configure(
            [BackendPlan(id, PoolName("p"), window.max if window else None) for id, _ in backends], Rules()
        )
        for id, _ in backends:
            self.router.engines.learn_models(id, frozenset({"m", "m/2"}))

    @property
    def backend(self) -> Backend:
        return next(iter(self.router.fleet))

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def connect(self, target: str = "/v1/realtime?model=m", **arguments: Any) -> ClientConnection:
        arguments = {"proxy": None, "compression": None, "max_size": None, "close_timeout": 1} | arguments
        client = await connect(self.url + target, **arguments)
        self._clients.append(client)
        return client

    async def begin(self, head: bytes = HANDSHAKE) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which a handshake was sent and no answer is awaited."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        writer.write(head)
        return reader, writer

    async def record(self) -> Record:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._records.get()

    async def __aenter__(self) -> Stage:
        config = Config(
            self.app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            ws=WebSocketFront,
            ws_max_size=int(self.settings.server.max_body_mb * 1024 * 1024),
            ws_per_message_deflate=False,
        )
        config.load()
        loop = asyncio.get_running_loop()

        def front() -> FrontProtocol:
            return FrontProtocol(config, self.state, self.settings.server, lambda: self.draining, loop)

        self._listener = await loop.create_server(front, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        for transport in [each.transport for each in self._clients] + [
            each.transport for each in self._writers
        ]:
            transport.abort()
        for connection in list(self.state.connections):
            connection.transport.abort()
        while self.state.tasks:
            await asyncio.wait(self.state.tasks, timeout=WAIT_SECONDS)
        await until(lambda: not self.state.connections)
        self.upstream.close()
        assert [backend.in_flight for backend in self.router.fleet if backend.in_flight] == []
        assert self.router.waiting == 0
        assert not self.live


@contextlib.asynccontextmanager
async def played(window: int | None = None, **sections: Any) -> AsyncIterator[tuple[Engine, Stage]]:
    """One engine and the gateway in front of it."""
    async with Engine() as engine, Stage(settings_for(engine, window=window, **sections)) as stage:
        yield engine, stage


@contextlib.asynccontextmanager
async def opened(
    window: int | None = None, **sections: Any
) -> AsyncIterator[tuple[ClientConnection, ServerConnection, Stage]]:
    """The same with a socket through it: the client's end, the engine's end."""
    async with played(window, **sections) as (engine, stage):
        client = await stage.connect()
        yield client, await engine.socket(), stage


async def refusal(
    stage: Stage, target: str = "/v1/realtime?model=m"
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, error and headers of a handshake that has to fail."""
    with pytest.raises(InvalidStatus) as refused:
        await stage.connect(target)
    response = refused.value.response
    assert response.body is not None
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return response.status_code, json.loads(response.body)["error"], headers
