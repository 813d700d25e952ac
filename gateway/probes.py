"""Health, models and load of the backends: one task per backend, on connections of its own, so that traffic cannot starve it.

Each health round asks for health, and for the models while healthy; each load round reads the engine's own counts. When a backend comes
up it is asked which engine it is, and one log line says what it does not serve. `gateway.engine_pages` knows what is asked.

Settings: `ProbeSettings`. A refused connection takes a backend out at once, other failures after `probes.failures` in a row.
Health comes first: a load round that takes longer than `_LOAD_PATIENCE_SECONDS` is given up, so a health result is late by no more than
that. A connection refused to a load round brings the next health round forward. The load rounds of all backends together are held
to `_READS_PER_SECOND`, so a large fleet is read less often (500 backends every 10 s).

Limit: an engine that hangs but answers `/health` (vLLM does) is found by its requests, not here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import closing
from math import inf
from typing import Protocol

from gateway.configuration import backend_name
from gateway.engine_pages import EnginePages
from gateway.engine_report import untold
from gateway.foreign_page import ForeignPages
from gateway.models import ModelCatalogue
from gateway.settings import BackendSettings, ProbeSettings
from gateway.upstream.failures import ConnectFailed, ConnectTimeout, UpstreamFailure
from gateway.watches import Watches
from policies.dialects import Dialect, EngineFlags, EngineReport, sizes_of
from policies.terms import BackendId

_logger = logging.getLogger("headrace")
_LOAD_PATIENCE_SECONDS = 2.0
_READS_PER_SECOND = 50
FRESH_SECONDS = 1.0


class HealthListener(Protocol):
    """Who is told health and models."""

    def probed(self, backend_id: BackendId, healthy: bool, refused: bool, now: float) -> None: ...

    def learn_models(self, backend_id: BackendId, models: frozenset[str]) -> None: ...


class EngineListener(Protocol):
    """Who is told what an engine is, each time it has come up, and how busy it is."""

    def is_dialect(self, backend_id: BackendId, dialect: Dialect, flags: EngineFlags) -> None: ...

    def reported(self, backend_id: BackendId, report: EngineReport, now: float) -> None: ...


class Nobody:
    """An `EngineListener` that does not listen."""

    def is_dialect(self, backend_id: BackendId, dialect: Dialect, flags: EngineFlags) -> None:
        return

    def reported(self, backend_id: BackendId, report: EngineReport, now: float) -> None:
        return


class Probes:
    def __init__(
        self,
        router: HealthListener,
        catalogue: ModelCatalogue,
        changed: Callable[[], None],
        engines: EngineListener | None = None,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        """Of a load that took longer than `fresh_seconds` to read nobody knows of which moment it is: only the engine's sizes are taken from it.

        `changed` is called after each result: a backend's return or its free slots may free waiting requests."""
        self._router = router
        self._catalogue = catalogue
        self._changed = changed
        self._engines = engines or Nobody()
        self._fresh_seconds = fresh_seconds
        self._watches = Watches(self._watch)
        self._rules = ProbeSettings()

    def configure(self, backends: Iterable[BackendSettings], rules: ProbeSettings) -> None:
        """One task per configured backend; those of backends that left end."""
        if rules != self._rules:
            self._watches.keep(())
        self._rules = rules
        self._watches.keep(backends)

    async def close(self) -> None:
        await self._watches.close()

    async def _watch(self, settings: BackendSettings) -> None:
        clock = asyncio.get_running_loop().time
        backend_id = BackendId(backend_name(settings))
        with closing(ForeignPages(settings, self._rules.timeout_seconds)) as foreign:
            pages = EnginePages(foreign)
            load = _LoadRounds(backend_id, pages, self._engines, self._changed, self._fresh_seconds)
            was_healthy: bool | None = None
            health_due = load_due = -inf
            while True:
                if clock() >= health_due:
                    healthy = await self._health_round(pages, backend_id, was_healthy)
                    if healthy and not was_healthy:
                        load.begin_anew()
                        load_due = -inf
                    was_healthy = healthy
                    health_due = clock() + self._rules.interval_seconds
                if was_healthy and clock() >= load_due:
                    if await load.round(self._rules.timeout_seconds):
                        load_due = clock() + self._load_seconds(told=bool(pages.load_path))
                    else:
                        health_due = -inf
                        load_due = clock() + self._load_seconds(told=True)
                due = min(health_due, load_due) if was_healthy else health_due
                await asyncio.sleep(max(0.0, due - clock()))

    def _load_seconds(self, told: bool) -> float:
        """Spread by a quarter, so that a fleet's rounds do not fall together. Where nothing is told it is asked for with the health."""
        if not told:
            return self._rules.interval_seconds
        bound = len(self._watches) / _READS_PER_SECOND
        return max(self._rules.load_seconds, bound) * random.uniform(0.75, 1.25)  # noqa: S311

    async def _health_round(
        self, pages: EnginePages, backend_id: BackendId, was_healthy: bool | None
    ) -> bool:
        healthy, refused, problem = await self._ask(pages, backend_id)
        self._router.probed(backend_id, healthy, refused, asyncio.get_running_loop().time())
        self._changed()
        if healthy != was_healthy:
            level = logging.INFO if healthy else logging.WARNING
            _logger.log(level, "backend %s is %s", backend_id, "up" if healthy else f"not healthy: {problem}")
        return healthy

    async def _ask(self, pages: EnginePages, backend_id: BackendId) -> tuple[bool, bool, str]:
        """Whether it is healthy, whether nobody listens there, and what is wrong."""
        try:
            problem = await pages.health()
            if not problem:
                cards = await pages.models()
                if cards is not None:
                    self._catalogue.learn(backend_id, cards)
                    self._router.learn_models(backend_id, frozenset(str(card["id"]) for card in cards))
        except ConnectFailed as error:
            return False, not isinstance(error, ConnectTimeout), str(error)
        except UpstreamFailure as error:
            return False, False, str(error)
        except Exception as error:  # a probe that ends for good would leave its backend as it is, unseen
            _logger.exception("the probe of %s failed", backend_id)
            return False, False, f"{type(error).__name__} {error}".strip()
        return not problem, False, problem


class _LoadRounds:
    """What one engine is and how busy it is, handed over as it is read."""

    def __init__(
        self,
        backend_id: BackendId,
        pages: EnginePages,
        engines: EngineListener,
        changed: Callable[[], None],
        fresh_seconds: float,
    ) -> None:
        self._fresh_seconds = fresh_seconds
        self._backend_id = backend_id
        self._pages = pages
        self._engines = engines
        self._changed = changed
        self._identity: tuple[Dialect, EngineFlags] | None = None
        self._is_in_doubt = True
        self._has_said = ""

    def begin_anew(self) -> None:
        """The engine has come up: it may be another one, or started otherwise."""
        self._identity = None
        self._is_in_doubt = True

    async def round(self, timeout_seconds: float) -> bool:
        """False where nobody listens any more. Whatever else fails is left to the health rounds to judge."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(min(_LOAD_PATIENCE_SECONDS, timeout_seconds)):
                if self._is_in_doubt or self._identity is None:
                    identity = await self._pages.identify()
                    if identity != self._identity:
                        self._engines.is_dialect(self._backend_id, *identity)
                    self._identity = identity
                    self._is_in_doubt = False
                told_before = self._pages.load_path
                asked_at = clock()
                report = await self._pages.load()
            if report is None:
                # The pages of one engine that go missing may be another's: SGLang has a /health like vLLM.
                self._is_in_doubt = bool(told_before)
            else:
                now = clock()
                is_fresh = now - asked_at <= self._fresh_seconds
                self._engines.reported(self._backend_id, report if is_fresh else sizes_of(report), now)
                self._changed()
            self._say(*self._identity, report)
        except ConnectFailed as error:
            return isinstance(error, ConnectTimeout)
        except (TimeoutError, UpstreamFailure):
            return True
        except Exception:  # the health rounds of this task have to go on
            _logger.exception("reading the load of %s failed", self._backend_id)
        return True

    def _say(self, dialect: Dialect, flags: EngineFlags, report: EngineReport | None) -> None:
        """One line per backend about what it is and does not tell, and another only when that changes."""
        text = self_check(dialect, flags, report, self._pages.load_path)
        if text != self._has_said:
            self._has_said = text
            usable = report is not None and None not in (report.running, report.waiting)
            _logger.log(logging.INFO if usable else logging.WARNING, "backend %s: %s", self._backend_id, text)


def self_check(dialect: Dialect, flags: EngineFlags, report: EngineReport | None, load_path: str) -> str:
    """What an engine is and what it does not serve, in one line."""
    if dialect is Dialect.UNKNOWN:
        return "neither vLLM nor SGLang: no load is read, no priority is sent"
    said = [f"{dialect} {flags.version}".rstrip()]
    if report is None:
        said.append("tells no load")
    else:
        lacking = ", ".join(untold(report))
        said.append(f"load from {load_path.partition('?')[0]}" + (f" without {lacking}" if lacking else ""))
    scheduling = {None: "unknown", True: "on", False: "off"}[flags.priority_scheduling]
    if flags.priority_scheduling:
        scheduling += ", lower first" if flags.lower_is_urgent else ", higher first"
    said.append(f"priority scheduling {scheduling}")
    cached = {None: "unknown", True: "yes", False: "no"}[flags.tells_cached_tokens]
    flag = "--enable-prompt-tokens-details" if dialect is Dialect.VLLM else "--enable-cache-report"
    said.append(
        f"cached tokens in usage: {cached}" + ("" if flags.tells_cached_tokens else f" (flag {flag})")
    )
    return "; ".join(said)
