"""The process: listen, reload, drain, end.

    start      listen, then probe: requests are taken at once, an unknown backend counts as usable
    SIGHUP     read the configuration again; a bad one changes nothing and is logged with every fault
    SIGTERM    /readyz fails, and for `leave_seconds` everything is served as before, each answer being its connection's last;
               then the listener closes, idle connections close, what runs goes on for `drain_seconds`;
               then streams get an error event and the rest a 503
    again      ends at once

SIGINT is SIGTERM. Host and port are read at the start only; everything else follows a reload, the client side's limits for connections
that open after it.
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

import uvloop
from uvicorn.config import Config
from uvicorn.server import ServerState

from gateway.app import Gateway
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
        self._config: Config | None = None
        self.gateway = Gateway(settings, write_log)
        self.port = 0

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._state.connections)

    async def serve(self) -> None:
        """Until a signal ends it. `OSError` where the address cannot be listened on."""
        try:
            await self.listen()
        except OSError:
            await self.gateway.close()
            raise
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        server = self._settings.server
        host = f"[{server.host}]" if ":" in server.host else server.host
        backends = sum(len(pool.backends) for pool in self._settings.pools)
        _logger.info("listening on http://%s:%d, %d backend(s)", host, self.port, backends)
        # What was made until now stays; the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        await self._stop.wait()
        await self.drain()

    async def listen(self) -> None:
        """Take connections from now on, on `port`."""
        loop = asyncio.get_running_loop()
        server = self._settings.server
        config = Config(
            self.gateway,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws=WebSocketFront,
            ws_max_size=_max_message_bytes(self._settings),
            ws_per_message_deflate=False,
        )
        config.load()
        self._config = config

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

        self._listener = await loop.create_server(front, server.host, server.port, backlog=_BACKLOG)
        self.port = self._listener.sockets[0].getsockname()[1]

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
            settings = await asyncio.to_thread(reload)
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
        old = self._settings.server
        if (settings.server.host, settings.server.port) != (old.host, old.port):
            _logger.warning("server.host and server.port take effect at the next start")


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
        server = settings.server
        sys.stderr.write(f"cannot listen on {server.host}:{server.port}: {error.strerror or error}\n")
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
