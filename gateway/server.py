"""The process: listen, reload, drain, end.

    start      listen, then probe: requests are taken at once, an unknown backend counts as usable
    SIGHUP     read the configuration again; a bad one changes nothing and is logged with every fault
    SIGTERM    /readyz fails, and for `leave_seconds` everything is served as before, each answer being its connection's last;
               then the listener closes, idle connections close, what runs goes on for `drain_seconds`;
               then streams get an error event and the rest a 503
    again      ends at once

SIGINT is SIGTERM. `host` and `port` of `server` and `admin` are read at the start only; everything else follows a reload, the client side's limits
for connections that open after it. The listener of `admin`, if there is one, stays until nothing runs any more.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from gateway.admin import warning
from gateway.app import App, Gateway
from gateway.classifier_file import UnusableModel
from gateway.configuration import ConfigurationError
from gateway.front import FrontProtocol
from gateway.request_log import Write
from gateway.settings import Settings
from gateway.websocket_front import WebSocketFront

_logger = logging.getLogger("headrace")
_BACKLOG = 4096
_CLOSE_SECONDS = 2.0
_FLUSH_LOOK_SECONDS = 0.02

Load = Callable[[], Settings]
COLLECTOR_THRESHOLDS = (10_000, 5, 5)
"""A request's objects go by reference count, a connection's do not. Looking for cycles every 700 objects took 1 to 2 % of the CPU; looking rarely
in the old generations let the memory grow with every connection."""


class Server:
    """`serve` is the whole life of a process; `listen` and `drain` are its two ends, for whoever has a loop of their own."""

    def __init__(self, settings: Settings, reload: Load | None, write_log: Write) -> None:
        """`reload` reads the configuration again, or is None where there is no file to read. `write_log` gets whole lines, from a thread."""
        self._settings = settings
        self._reload = reload
        self._state = ServerState()
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None
        self._reload_again = False
        self._listener: asyncio.Server | None = None
        self._admin_listener: asyncio.Server | None = None
        self._config: Config | None = None
        self.gateway = Gateway(settings, write_log)
        self.port = 0
        self.admin_port: int | None = None
        """Where there is a listener for it."""

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._state.connections)

    async def serve(self) -> None:
        """Until a signal ends it. `OSError` where an address cannot be listened on, which is its `filename`."""
        try:
            await self.listen()
        except OSError:
            await self.gateway.close()
            raise
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        settings = self._settings
        backends = sum(len(pool.backends) for pool in self._settings.pools)
        _logger.info(
            "listening on http://%s, %d backend(s)", _address(settings.server.host, self.port), backends
        )
        if self.admin_port is not None:
            _logger.info("/metrics and /admin on http://%s", _address(settings.admin.host, self.admin_port))
        self._warn(settings)
        # What was made until now stays; the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        await self._stop.wait()
        await self.drain()

    async def listen(self) -> None:
        """Take connections from now on, on `port`."""
        server, admin = self._settings.server, self._settings.admin
        config = self._config = _config(
            self.gateway,
            ws=WebSocketFront,
            ws_max_size=_max_message_bytes(self._settings),
            ws_per_message_deflate=False,
        )
        self._listener, self.port = await self._listen(config, server.host, server.port)
        if admin.port is None:
            return
        try:
            own = _config(self.gateway.admin, ws="none")
            self._admin_listener, self.admin_port = await self._listen(own, admin.host, admin.port)
        except OSError:
            self._listener.close()
            raise

    async def _listen(self, config: Config, host: str, port: int) -> tuple[asyncio.Server, int]:
        """A listener and its port."""
        loop = asyncio.get_running_loop()

        def front() -> FrontProtocol:
            gateway = self.gateway
            return FrontProtocol(
                config,
                self._state,
                gateway.settings.server,
                lambda: gateway.is_draining,
                loop,
                gateway.telemetry.refused,
            )

        try:
            listener = await loop.create_server(front, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), _address(host, port)) from error
        return listener, listener.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """What a signal does: at first begin to drain, at last end at once."""
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    async def drain(self) -> None:
        """Say for `leave_seconds` that nothing new is wanted, take nothing new, let what runs go on for `drain_seconds`, then end it and close everything."""
        gateway = self.gateway
        gateway.is_leaving = True
        await self._wait_for_balancers(gateway.settings.server.leave_seconds)
        gateway.proxy.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        running = gateway.requests_in_flight
        if running:
            seconds = gateway.settings.server.drain_seconds
            _logger.info(
                "draining %d request(s) for at most %g s; a second signal ends at once", running, seconds
            )
        await self._wait_for_requests(gateway.settings.server.drain_seconds)
        await self._wait_for_clients()
        if gateway.requests_in_flight and not self._force.is_set():
            _logger.warning("ending %d request(s) that did not finish", gateway.requests_in_flight)
            gateway.interrupt_all()
            await self._wait_for_requests(_CLOSE_SECONDS)
        if self._admin_listener is not None:
            self._admin_listener.close()
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await gateway.close()

    async def _wait_for_balancers(self, seconds: float) -> None:
        """Until the time is over or a second signal came; not at all where they need no time."""
        if not seconds or self._force.is_set():
            return
        _logger.info("not ready any more, and serving for another %g s", seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._force.wait()

    async def _wait_for_requests(self, seconds: float) -> None:
        """Until no request is running, the time is over, or a second signal came."""
        forced = asyncio.ensure_future(self._force.wait())
        try:
            async with asyncio.timeout(seconds):
                while self._state.tasks and not self._force.is_set():
                    await asyncio.wait({*self._state.tasks, forced}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        finally:
            forced.cancel()

    async def _wait_for_clients(self) -> None:
        """Until every client has read its answer, or has kept us waiting for `_CLOSE_SECONDS`."""
        looks = int(_CLOSE_SECONDS / _FLUSH_LOOK_SECONDS)
        while looks and not self._force.is_set() and any(self._unread()):
            looks -= 1
            await asyncio.sleep(_FLUSH_LOOK_SECONDS)

    def _unread(self) -> Iterator[int]:
        for connection in self._state.connections:
            if connection.transport is not None:
                yield connection.transport.get_write_buffer_size()

    def reload(self) -> None:
        """What SIGHUP does: read the configuration again, and take over all of it or nothing."""
        if self._reload is None:
            _logger.warning("there is no configuration file to reload: started with --backend")
        elif self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload_now(self._reload))
        else:
            self._reload_again = True  # the file may have changed since it was read

    async def _reload_now(self, reload: Load) -> None:
        while True:
            self._reload_again = False
            await self._reload_once(reload)
            if not self._reload_again:
                return

    async def _reload_once(self, reload: Load) -> None:
        try:
            read = await asyncio.to_thread(reload)
            settings = _where(self._settings, read)
            self.gateway.configure(settings)
            if self._config is not None:
                self._config.ws_max_size = _max_message_bytes(settings)  # of sockets that open from now on
        except (
            ConfigurationError,
            UnusableModel,
            OSError,
        ) as error:  # the last two: a classifier's or an authority's file that went after it was checked
            _logger.error("the configuration was not reloaded, the old one stays:\n%s", error)
            self.gateway.telemetry.reloaded(ok=False)
            return
        self.gateway.telemetry.reloaded(ok=True)
        _logger.info("the configuration was reloaded")
        if settings != read:
            _logger.warning("host and port of server and admin take effect at the next start")
        self._warn(settings)

    def _warn(self, settings: Settings) -> None:
        problem = warning(settings)
        if problem is not None:
            _logger.warning("%s", problem)


def _where(now: Settings, then: Settings) -> Settings:
    """`then`, but served where `now` is: what is safe to show depends on where it really is shown."""
    server = replace(then.server, host=now.server.host, port=now.server.port)
    return replace(then, server=server, admin=replace(then.admin, host=now.admin.host, port=now.admin.port))


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _config(app: App, **of_websockets: Any) -> Config:
    config = Config(
        app,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        **of_websockets,
    )
    config.load()
    return config


def _max_message_bytes(settings: Settings) -> int:
    """Of a WebSocket: one message is what a body is elsewhere."""
    return int(settings.server.max_body_mb * 1024 * 1024)


def run(settings: Settings, reload: Load | None) -> int:
    """The exit code of `headrace serve`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # It would log each WebSocket with its whole query.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    _raise_file_limit()

    async def main() -> None:
        await Server(settings, reload, _write_log).serve()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except OSError as error:
        sys.stderr.write(f"cannot listen on {error.filename}: {error.strerror}\n")
        return 1
    return 0


def _write_log(lines: bytes) -> None:
    # Flushed: whoever reads the log through a pipe wants it now, not 8 KiB later.
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _raise_file_limit() -> None:
    """A stream needs two descriptors; the usual soft limit of 1,024 would end at 500 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
