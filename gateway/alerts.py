"""Tells receivers outside of changes of degradation rules, without ever holding anything up.

`tell` only notes; one task per receiver sends. Of several changes of one rule and subject before the last was delivered only the newest is sent, and what a receiver was told is not said again, except to an
Alertmanager, which forgets what is not repeated (`repeat_seconds`). A failed call is repeated after 0.25 s, doubled up to 30 s, with a quarter of jitter, until the receiver has it or a newer change takes its place;
an answer of 4xx but 408 and 429 is final. Counted by receiver (`alerts.receivers[n]` and `standby`) and outcome; no URL and no token is ever logged.
Bound: `max_waiting` changes per receiver; beyond that the longest waiting that is not critical goes, then the longest waiting.
At the end each receiver has `CLOSE_SECONDS` for what waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Mapping

import httpx

from gateway.alert_forms import Told, for_alertmanager, plain
from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from policies.degradation import Rule
from policies.degradation_actions import ActivateStandby, wording
from policies.rule_events import RuleEvent, Severity

_logger = logging.getLogger("headrace")
CLOSE_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 30.0
_ALERTMANAGER_PATH = "/api/v2/alerts"
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
_STANDBY = wording(ActivateStandby())
_Key = tuple[str, str]


class Alerts:
    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """By receiver and `sent`, `failed` (a call), `dropped`."""
        self._settings = AlertSettings()
        self._receivers: dict[tuple[str, AlertReceiverSettings], _Receiver] = {}
        self._since: dict[_Key, float] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        return sum(len(receiver.waiting) for receiver in self._receivers.values())

    def configure(self, settings: AlertSettings, standby_webhook: str) -> None:
        """A receiver that stays as it is goes on where it is."""
        self._settings = settings
        wanted = {(f"receivers[{index}]", one) for index, one in enumerate(settings.receivers)}
        if standby_webhook:
            wanted.add(("standby", AlertReceiverSettings(url=standby_webhook, min_severity=Severity.INFO)))
        for key in [known for known in self._receivers if known not in wanted]:
            task = asyncio.create_task(self._receivers.pop(key).close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for name, receiver in wanted:
            if (name, receiver) not in self._receivers:
                self._receivers[name, receiver] = _Receiver(name, receiver, self)

    def tell(self, event: RuleEvent, rule: Rule | None, at: float) -> None:
        """`at` is Unix time. `rule` words it; None where it is not configured any more."""
        key = event.rule, event.subject
        since = at if event.is_active else self._since.pop(key, at)
        if event.is_active:
            self._since[key] = at
        runbook = rule.runbook if rule is not None else ""
        base = self._settings.runbook_base_url
        url = f"{base.rstrip('/')}/{runbook}" if base and runbook else runbook
        told = Told(event, at, since, rule.description if rule is not None else "", url)
        for receiver in self._receivers.values():
            receiver.note(key, told)

    async def close(self) -> None:
        receivers, self._receivers = list(self._receivers.values()), {}
        await asyncio.gather(*(receiver.close() for receiver in receivers), *self._ending)

    @property
    def labels(self) -> Mapping[str, str]:
        return self._settings.labels

    @property
    def max_waiting(self) -> int:
        return self._settings.max_waiting


class _Receiver:
    def __init__(self, name: str, settings: AlertReceiverSettings, alerts: Alerts) -> None:
        self.waiting: dict[_Key, Told] = {}
        self._name = name
        self._settings = settings
        self._alerts = alerts
        self._known: dict[_Key, Told] = {}
        """What it was told of and still holds."""
        self._wake = asyncio.Event()
        self._is_closing = False
        self._task = asyncio.create_task(self._send_all())

    def note(self, key: _Key, told: Told) -> None:
        event = told.event
        if self._name == "standby":
            if _STANDBY not in event.actions:
                return
        elif _RANK[event.severity] < _RANK[self._settings.min_severity]:
            return
        before = self.waiting.pop(key, None)
        if not event.is_active and key not in self._known and before is not None:
            return  # it never heard that it held
        self.waiting[key] = told
        if len(self.waiting) > self._alerts.max_waiting:
            victim = next(
                (one for one, of in self.waiting.items() if of.event.severity is not Severity.CRITICAL),
                next(iter(self.waiting)),
            )
            del self.waiting[victim]
            self._alerts.outcomes[self._name, "dropped"] += 1
        self._wake.set()

    async def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._alerts.outcomes[self._name, "dropped"] += len(self.waiting)

    async def _send_all(self) -> None:
        settings = self._settings
        headers = {"content-type": "application/json"}
        if settings.bearer_token:
            headers["authorization"] = f"Bearer {settings.bearer_token}"
        async with httpx.AsyncClient(
            headers=headers,
            timeout=settings.timeout_seconds,
            trust_env=False,
            verify=settings.url.startswith("https:"),
        ) as client:
            pause = 0.0
            while not (self._is_closing and not self.waiting):
                if pause or not self.waiting:
                    await self._rest(pause)
                if not self.waiting:
                    if self._is_closing:
                        return
                    if self._repeats() and not self._wake.is_set():
                        self.waiting.update(self._known)
                    if not self.waiting:
                        continue
                pause = await self._send(client, pause)
                if pause and self._is_closing:
                    return

    def _repeats(self) -> bool:
        return self._settings.form is AlertForm.ALERTMANAGER and bool(self._known)

    async def _rest(self, pause: float) -> None:
        """Until something is new, it is time to repeat, or the pause after a failure is over, which what is new does not shorten."""
        if pause:
            if not self._is_closing:
                await asyncio.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311
            return
        self._wake.clear()
        if self.waiting or self._is_closing:
            return
        try:
            async with asyncio.timeout(self._settings.repeat_seconds if self._repeats() else None):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _send(self, client: httpx.AsyncClient, pause: float) -> float:
        """The pause before the next try, 0 where it is done."""
        batch = dict(self.waiting)
        labels = self._alerts.labels
        if self._settings.form is AlertForm.ALERTMANAGER:
            url = self._settings.url.rstrip("/") + _ALERTMANAGER_PATH
            body = for_alertmanager(list(batch.values()), labels)
        else:
            url, body = self._settings.url, plain(list(batch.values()), labels)
        try:
            status = (await client.post(url, content=body)).status_code
            problem = "" if status < 300 else f"answered {status}"
            is_final = 400 <= status < 500 and status not in (408, 429)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem, is_final = type(error).__name__, False
        except Exception as error:  # the task has to go on: later alerts may be well
            _logger.exception("telling alert receiver %s failed", self._name)
            problem, is_final = type(error).__name__, True
        if problem:
            self._alerts.outcomes[self._name, "failed"] += 1
            if not pause:
                _logger.warning(
                    "alert receiver %s: %s; %s",
                    self._name,
                    problem,
                    "given up" if is_final else "tried again",
                )
            if not is_final:
                return min(max(_FIRST_PAUSE_SECONDS, 2 * pause), _LONGEST_PAUSE_SECONDS)
        else:
            self._alerts.outcomes[self._name, "sent"] += len(batch)
        for key, told in batch.items():
            if self.waiting.get(key) is told:
                del self.waiting[key]
            if told.event.is_active:
                self._known[key] = told
            else:
                self._known.pop(key, None)
        return 0.0
