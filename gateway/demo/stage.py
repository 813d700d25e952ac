"""The course of the demo: engines, gateway, load and display start, run side by side, and end in that order backwards.

Whatever ends it - time, signal, the gateway's death, a display that cannot be written to - goes through the same `finally`, bounded by
`ANSWERS_SECONDS` for answers under way plus the gateway's own end.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Protocol

from rich.console import Console

from gateway.demo.business import FIELD_PEAK
from gateway.demo.fleet import Fleet
from gateway.demo.gateway_child import HOST, GatewayChild, any_free_port, port_is_free
from gateway.demo.lines import Lines
from gateway.demo.load import Load
from gateway.demo.phases import OUTAGE, course
from gateway.demo.redis_child import find_server, redis_child
from gateway.demo.scrape import GatewayPages
from gateway.demo.screen import Screen
from gateway.demo.view import View, introduction, summary
from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import ConnectionPool

REFRESH_SECONDS = 0.5
ANSWERS_SECONDS = 0.5
_FILES = 65_536


class Display(Protocol):
    def open(self, introduction: list[str]) -> None: ...
    def event(self, seconds: float, text: str) -> None: ...
    def show(self, view: View) -> None: ...
    def close(self, summary: list[str]) -> None: ...


class Stage:
    def __init__(
        self,
        port: int,
        seconds: float | None,
        seed: int,
        share_of_peak: float,
        redis_url: str | None = None,
    ) -> None:
        """`redis_url` None: no sessions in the load; "": in a Redis of the demo's own."""
        self._port = port
        self._seconds = seconds
        self._seed = seed
        self._share_of_peak = share_of_peak
        self._display: Display = Screen(Console()) if sys.stdout.isatty() else Lines(sys.stdout)
        self._course = course(seconds)
        self._redis_url = redis_url

    async def play(self) -> None:
        _raise_file_limit()
        self._settle_port()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        pool = way_to(self._port)
        try:
            async with AsyncExitStack() as block:
                fleet = await block.enter_async_context(Fleet(self._seed, self._share_of_peak))
                redis_url = self._redis_url or ""
                if self._redis_url == "":
                    redis_url = await block.enter_async_context(redis_child(fleet.directory, find_server()))
                child = await block.enter_async_context(GatewayChild(self._port, fleet, redis_url))
                await _until_one(child.ready(GatewayPages(pool)), stopped.wait())
                if not stopped.is_set():
                    await self._perform(fleet, child, pool, stopped)
        finally:
            pool.close()

    def _settle_port(self) -> None:
        wanted = self._port
        if wanted and port_is_free(wanted):
            return
        self._port = any_free_port()
        if wanted:
            sys.stderr.write(f"port {wanted} is taken, the gateway listens on {self._port} instead\n")
            sys.stderr.flush()

    async def _perform(
        self, fleet: Fleet, child: GatewayChild, pool: ConnectionPool, stopped: asyncio.Event
    ) -> None:
        load = Load(
            pool, FIELD_PEAK * self._share_of_peak, self._course, self._seed, self._redis_url is not None
        )
        view = View(fleet, load, self._course)
        page = GatewayPages(pool)
        self._display.open(introduction(self._port, len(fleet.members)))
        try:
            await _until_one(
                load.arrive(),
                self._follow(view, page),
                self._announce_phases(view),
                self._lose_an_engine(view),
                child.watch(),
                _stop(stopped, self._seconds),
            )
            await load.end(ANSWERS_SECONDS)
            await self._look(view, page)
            view.measure_recovery()
        finally:
            await load.end(0)
            self._display.close(summary(view))

    async def _follow(self, view: View, page: GatewayPages) -> None:
        while True:
            view.seconds = view.load.seconds
            await self._look(view, page)
            self._display.show(view)
            await asyncio.sleep(REFRESH_SECONDS)

    async def _look(self, view: View, page: GatewayPages) -> None:
        """Read the gateway's page; an engine that went or came back since is an event."""
        state = await page.read()
        if state is None:
            return
        for name, up in state.up.items():
            if up != view.gateway.up.get(name, True):
                self._note(view, f"{name} {'is used again' if up else 'is left out by the gateway'}")
        view.gateway = state
        if view.measure_recovery():
            self._note(view, view.recovery_text)

    async def _announce_phases(self, view: View) -> None:
        """Each one, however short it is and however seldom the display is redrawn."""
        start = 0.0
        for phase in self._course.phases:
            await asyncio.sleep(start - view.load.seconds)
            view.phase = phase
            self._display.event(start, view.headline)
            start += phase.seconds
        await asyncio.Event().wait()

    async def _lose_an_engine(self, view: View) -> None:
        await asyncio.sleep(self._course.start_of(OUTAGE.name))
        member, seconds = view.fleet.to_fail, self._course.named(OUTAGE.name).seconds
        self._note(view, f"{member.name} refuses connections for {seconds:.1g} s (on purpose)")
        await view.fleet.fail(member, seconds)
        await asyncio.Event().wait()

    def _note(self, view: View, text: str) -> None:
        self._display.event(*view.note(text))


async def _stop(stopped: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopped.wait()
    except TimeoutError:
        pass


async def _until_one(*works: Coroutine[object, object, object]) -> None:
    """Run them side by side until one ends; its exception is raised, the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def way_to(port: int) -> ConnectionPool:
    # No limit on idle ones: the gateway keeps them longer than this side does, and a fresh one costs both a handshake.
    endpoint = Endpoint(BackendSettings(url=f"http://{HOST}:{port}"), 3600)
    return ConnectionPool(endpoint, UpstreamSettings(), TimeoutSettings())


def _raise_file_limit() -> None:
    """A request in flight takes three descriptors here: load, and both ends at an engine's side; some systems allow 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
