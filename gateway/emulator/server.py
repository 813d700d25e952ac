"""An emulated vLLM-shaped engine behind a real socket; several fit into one event loop.

    server = await start(EngineSettings(time_scale=0), "127.0.0.1", 0)
    ... server.url, server.engine, server.faults ...
    await server.close()

The server is the driver of the scheduler: it steps it by one timer for the whole batch. A step's end is
reckoned from the end of the step before, not from when the timer was served, so late timers do not make the
engine slower than its model; it catches up by at most `CATCH_UP_SECONDS`.

It is an emulation: times, texts and GPU figures are made up by the model in `scheduler` and `metrics_page`,
and every answer says so in its `server` header, `/version` and its model's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from email.utils import formatdate
from importlib import metadata

import orjson

from gateway.emulator.answer import Answer
from gateway.emulator.connection import Connection, Request
from gateway.emulator.errors import not_found, unauthorized, wrong_method
from gateway.emulator.faults import Faults
from gateway.emulator.routes import FAULTS_PATH, ROUTES
from gateway.emulator.scheduler import Engine
from gateway.emulator.settings import EngineSettings
from gateway.emulator.vocabulary import Vocabulary

CATCH_UP_SECONDS = 0.25
_GOLDEN = 0x9E3779B97F4A7C15


def own_version() -> str:
    try:
        release = metadata.version("headrace")
    except metadata.PackageNotFoundError:
        release = "0"
    return f"{release}+headrace-emulator"


class EmulatedServer:
    """Use `start`. `engine` and `faults` are live: tests read the one and set the other."""

    def __init__(self, settings: EngineSettings, host: str, port: int, uds: str) -> None:
        self.settings = settings
        self.engine: Engine[Answer] = Engine(settings)
        self.faults = Faults()
        self.vocabulary = Vocabulary(settings.seed)
        self.version = own_version()
        self.started_at = time.time()
        self.created = int(self.started_at)
        self.model_json = orjson.dumps(settings.model)
        self.host = host
        self.port = port
        self.uds = uds
        self._keys = {b"Bearer " + key.encode() for key in settings.api_keys}
        self._loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._idle: dict[Connection, float] = {}
        self._step_timer: asyncio.Handle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reopen_timer: asyncio.TimerHandle | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._refusing = False
        self._step_due = 0.0
        self._numbers = 0
        self._head_second = -1
        self._head_lines = b""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._connections)

    @property
    def accepting(self) -> bool:
        return self._listener is not None

    async def listen(self) -> None:
        if self._listener is not None:
            return
        self._refusing = False
        if self.uds:
            self._listener = await self._loop.create_unix_server(lambda: Connection(self), self.uds)
            return
        self._listener = await self._loop.create_server(
            lambda: Connection(self), self.host, self.port, backlog=2048
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    def refuse(self, seconds: float | None = None) -> None:
        """Close the listener and idle connections; open again after `seconds`, or only by `listen`."""
        self._refusing = True
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.close_if_idle()
        if self._reopen_timer is not None:
            self._reopen_timer.cancel()
            self._reopen_timer = None
        if seconds is not None:
            self._reopen_timer = self._loop.call_later(seconds, self._reopen)

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        self.refuse()
        if self._reopening is not None:
            self._reopening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reopening
            self.refuse()
        for connection in list(self._connections):
            connection.abort()
        for timer in (self._step_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._connections:
            self._emptied = self._loop.create_future()
            await self._emptied

    # What connections and routes call.

    def handle(self, request: Request, connection: Connection) -> None:
        if self.faults.silent and request.path != FAULTS_PATH:
            return
        if (
            self._keys
            and request.path.startswith(b"/v1")
            and request.headers.get(b"authorization") not in self._keys
        ):
            raise unauthorized()
        methods = ROUTES.get(request.path)
        if methods is None:
            raise not_found()
        handler = methods.get(request.method)
        if handler is None:
            raise wrong_method(", ".join(method.decode() for method in methods))
        handler(self, request, connection)

    def submit(self, answer: Answer) -> bool:
        """Queue an answer's sequences; False when the queue is full."""
        now = self._loop.time()
        if not self.engine.submit(answer.sequences, now):
            return False
        if self._step_timer is None:
            # Not at once: what arrives in the same turn of the loop shares the first step.
            self._step_due = now
            self._step_timer = self._loop.call_soon(self._step)
        return True

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def draw_bits(self, number: int, fingerprint: int) -> int:
        """64 bits that follow from the seed, the request's number and its prompt."""
        mixed = (self.settings.seed << 32 ^ fingerprint ^ number * _GOLDEN) * _GOLDEN & (1 << 64) - 1
        return mixed ^ mixed >> 29

    def draw(self, number: int) -> float:
        """In [0, 1), from the seed and the request's number: an even spread, so a share is kept to the
        request."""
        return (number * _GOLDEN + self.settings.seed & (1 << 64) - 1) / (1 << 64)

    def token_id(self, token: str) -> int:
        return zlib.crc32(token.encode()) % 32_000

    def head_lines(self) -> bytes:
        """The header lines all answers begin with; the date is made once a second."""
        now = int(time.time())
        if now != self._head_second:
            self._head_second = now
            self._head_lines = (
                b"date: %b\r\nserver: headrace-emulator\r\n" % formatdate(now, usegmt=True).encode()
            )
        return self._head_lines

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        if self._refusing:
            # Accepted by the listener just before it was closed.
            connection.abort()
        else:
            self.idle(connection)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._idle.pop(connection, None)
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    def active(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        if self._refusing:
            connection.close_if_idle()
            return
        self._idle[connection] = self._loop.time()
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(self.settings.keep_alive_seconds, self._close_idle)

    # Timers.

    def _step(self) -> None:
        now = self._loop.time()
        step = self.engine.step(now, self.faults.slow)
        for sequence in step.progressed:
            sequence.owner.progressed(sequence)
        for sequence in step.finished:
            sequence.owner.finished(sequence)
        if step.seconds is None:
            self._step_timer = None
            return
        self._step_due = max(self._step_due, now - CATCH_UP_SECONDS) + step.seconds
        if self._step_due <= now:
            self._step_timer = self._loop.call_soon(self._step)
        else:
            self._step_timer = self._loop.call_at(self._step_due, self._step)

    def _close_idle(self) -> None:
        # Idle connections stand in the order in which they fell idle, so only the oldest have to be looked at.
        now = self._loop.time()
        limit = self.settings.keep_alive_seconds
        for connection, since in list(self._idle.items()):
            if now - since < limit:
                self._idle_timer = self._loop.call_later(since + limit - now, self._close_idle)
                return
            connection.close_if_idle()
            self._idle.pop(connection, None)
        self._idle_timer = None

    def _reopen(self) -> None:
        self._reopen_timer = None
        self._reopening = self._loop.create_task(self.listen())


async def start(settings: EngineSettings, host: str, port: int, uds: str = "") -> EmulatedServer:
    """Listen on `host` and `port` (0 picks a free one), or on the Unix socket `uds` when it is given."""
    server = EmulatedServer(settings, host, port, uds)
    await server.listen()
    return server
