"""One receiver of alerts: a task that tells it what waits in its backlog, one call at a time, the oldest changes first, `_MOST_AT_ONCE` in a call.

A call has `timeout_seconds` from its connection to the head of its answer. One that fails is repeated after 0.25 s, doubled up to 30 s, with a quarter of jitter; what is new
does not shorten that. An answer of 3xx or 4xx but 408 and 429 is final: what was told is given up. An Alertmanager forgets what is not repeated, so it is told again every
`repeat_seconds` of what holds, and that each alert ends `_LIVES` such times from then unless it hears of it again: so alerts end with the gateway that told of them.
No URL, no token and no text of an exception is ever logged.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Callable

import httpx

from gateway.alert_backlog import Backlog, Batch, Key
from gateway.alert_forms import Told, for_alertmanager, plain
from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from policies.degradation_actions import ActivateStandby, wording
from policies.rule_events import RuleEvent, Severity

_logger = logging.getLogger("headrace")
CLOSE_SECONDS = 2.0
STANDBY = "standby"
"""The name of the one that is told of nothing but standby backends."""
_MOST_AT_ONCE = 64
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 30.0
_LIVES = 4
_PATH = "/api/v2/alerts"
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_ACTIVATES_STANDBY = wording(ActivateStandby())


class Receiver:
    def __init__(
        self,
        name: str,
        settings: AlertReceiverSettings,
        alerts: Callable[[], AlertSettings],
        outcomes: Counter[tuple[str, str]],
        wall_clock: Callable[[], float],
        transport: Callable[[], httpx.AsyncBaseTransport | None],
    ) -> None:
        self.backlog = Backlog()
        self._settings = settings
        self._transport = transport
        self._name = name
        self._alerts = alerts
        self._outcomes = outcomes
        self._wall_clock = wall_clock
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def configure(self, name: str, settings: AlertReceiverSettings) -> None:
        """Of the same URL and form."""
        self._name, self._settings = name, settings
        self._wake.set()

    def note(self, key: Key, told: Told) -> None:
        if self._concerns(told.event) or key in self.backlog.holding:
            self._count("dropped", self.backlog.note(key, told, self._alerts().max_waiting))
            self._wake.set()

    async def close(self) -> None:
        """One more try for what waits, within `CLOSE_SECONDS`."""
        self._closing.set()
        self._wake.set()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._count("dropped", len(self.backlog.waiting))
        self.backlog.waiting.clear()

    def _concerns(self, event: RuleEvent) -> bool:
        if self._name == STANDBY:
            return _ACTIVATES_STANDBY in event.actions
        return _RANK[event.severity] >= _RANK[self._settings.min_severity]

    def _count(self, outcome: str, count: int) -> None:
        self._outcomes[self._name, outcome] += count

    async def _run(self) -> None:
        # Reading the trusted authorities takes milliseconds and megabytes: not here, and only where there is something to verify.
        is_tls = self._settings.url[:8].lower() == "https://"
        verify = await asyncio.to_thread(ssl.create_default_context) if is_tls else False
        async with httpx.AsyncClient(
            transport=self._transport(),
            verify=verify,
            timeout=None,  # noqa: S113  # `_call` bounds a whole call, where this would bound each of its reads
            trust_env=False,
            limits=httpx.Limits(max_connections=1),
        ) as client:
            clock = asyncio.get_running_loop().time
            pause, repeated_at = 0.0, clock()
            while True:
                await self._rest(pause, repeated_at)
                if batch := self.backlog.take(_MOST_AT_ONCE):
                    pause = await self._tell(client, batch, pause)
                    if pause and self._closing.is_set():
                        return
                elif self._closing.is_set():
                    return
                else:
                    pause = 0.0
                    if self._repeats() and clock() - repeated_at >= self._settings.repeat_seconds:
                        repeated_at = clock()
                        await self._repeat(client)

    def _repeats(self) -> bool:
        return self._settings.form is AlertForm.ALERTMANAGER and bool(self.backlog.holding)

    async def _rest(self, pause: float, repeated_at: float) -> None:
        """Until the pause after a failure is over, or else until something is new or it is time to repeat; the end is never waited for."""
        if pause:
            await _within(pause * random.uniform(0.75, 1.0), self._closing)  # noqa: S311
            return
        self._wake.clear()
        if not self.backlog.waiting and not self._closing.is_set():
            until = repeated_at + self._settings.repeat_seconds - asyncio.get_running_loop().time()
            await _within(max(0.0, until) if self._repeats() else None, self._wake)

    async def _tell(self, client: httpx.AsyncClient, batch: Batch, pause: float) -> float:
        """How long to wait for the next try, 0 where that is not needed."""
        problem, is_final, was_sent = await self._call(client, batch)
        if not problem:
            self._count("sent", len(batch))
            self.backlog.delivered(batch)
            if pause:
                _logger.info("alert receiver %s takes alerts again", self._name)
            return 0.0
        self._count("failed", 1)
        if is_final or not pause:
            after = "given up" if is_final else "tried again"
            _logger.warning("alert receiver %s: %s; %s", self._name, problem, after)
        if is_final:
            self._count("dropped", self.backlog.refused(batch))
            return 0.0
        self.backlog.failed(batch, was_sent)
        return min(max(_FIRST_PAUSE_SECONDS, 2 * pause), _LONGEST_PAUSE_SECONDS)

    async def _repeat(self, client: httpx.AsyncClient) -> None:
        """One that fails is not tried again before the next time."""
        keys = list(self.backlog.holding)
        for first in range(0, len(keys), _MOST_AT_ONCE):
            batch = self.backlog.repeat(keys[first : first + _MOST_AT_ONCE])
            problem, is_final, was_sent = await self._call(client, batch)
            if problem:
                _logger.warning("alert receiver %s: %s; repeated later", self._name, problem)
                self._count("failed", 1)
                if is_final:
                    self._count("dropped", self.backlog.refused(batch))
                else:
                    self.backlog.failed(batch, was_sent)
                return
            self._count("repeated", len(batch))
            self.backlog.delivered(batch)
            if self._closing.is_set():
                return

    async def _call(self, client: httpx.AsyncClient, batch: Batch) -> tuple[str, bool, bool]:
        """What went wrong, "" where nothing did; whether that is final; whether it may have arrived all the same."""
        headers = {"content-type": "application/json"}
        if self._settings.bearer_token:
            headers["authorization"] = f"Bearer {self._settings.bearer_token}"
        url, body = self._worded(batch)
        try:
            async with (
                asyncio.timeout(self._settings.timeout_seconds),
                client.stream("POST", url, content=body, headers=headers) as answer,
            ):
                status = answer.status_code
        except TimeoutError:
            return "no answer in time", False, True
        except httpx.ConnectError:
            return "no connection", False, False
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return type(error).__name__, False, True
        except Exception as error:  # the task has to go on: later alerts may be well
            return type(error).__name__, True, True
        if status < 300:
            return "", False, True
        return f"answered {status}", 300 <= status < 500 and status not in (408, 429), True

    def _worded(self, batch: Batch) -> tuple[str, bytes]:
        told, labels, url = list(batch.values()), self._alerts().labels, self._settings.url
        if self._settings.form is AlertForm.ALERTMANAGER:
            address, mark, query = url.partition("?")
            ends_at = self._wall_clock() + _LIVES * self._settings.repeat_seconds
            return address.rstrip("/") + _PATH + mark + query, for_alertmanager(told, labels, ends_at)
        is_wanted = bool(self.backlog.holding) if self._name == STANDBY else None
        return url, plain(told, labels, is_wanted)


async def _within(seconds: float | None, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
