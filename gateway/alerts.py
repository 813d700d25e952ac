"""Tells receivers outside of changes of degradation rules, without ever holding anything up.

`tell` only notes; each receiver has a task of its own that sends (`gateway.alert_receiver`) and a bounded backlog (`gateway.alert_backlog`). A receiver that is new, or has
become curious of less severe rules, is told of what holds already; one that keeps its URL and form, be it at another place, goes on where it is when the configuration is replaced.
Settings: `gateway.alert_settings`. Counted by receiver (`receivers[n]` by place, and `standby`) and outcome.
Limit: what was told is known to this process alone. After a restart an Alertmanager lets old alerts end by itself; others that were told that a rule holds are not told otherwise.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import httpx

from gateway.alert_backlog import Key
from gateway.alert_forms import Told
from gateway.alert_receiver import STANDBY, Receiver
from gateway.alert_settings import AlertReceiverSettings, AlertSettings
from policies.degradation import Rule
from policies.rule_events import RuleEvent, Severity

OUTCOMES = ("sent", "repeated", "failed", "dropped")
"""Alerts, but for `failed`, which are calls."""


class Alerts:
    def __init__(
        self,
        wall_clock: Callable[[], float] = time.time,
        transport: Callable[[], httpx.AsyncBaseTransport | None] = lambda: None,
    ) -> None:
        """`transport` takes the place of the network, for each receiver one."""
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """By receiver and `OUTCOMES`."""
        self._wall_clock = wall_clock
        self._transport = transport
        self._settings = AlertSettings()
        self._receivers: dict[tuple[bool, str, str, int], Receiver] = {}
        """By whether it is the standby webhook, form, URL, and which of those that are alike."""
        self._holding: dict[Key, Told] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        return sum(len(receiver.backlog.waiting) for receiver in self._receivers.values())

    def configure(self, settings: AlertSettings, standby_webhook: str) -> None:
        self._settings = settings
        wanted = [(f"receivers[{index}]", one) for index, one in enumerate(settings.receivers)]
        if standby_webhook:
            wanted.append((STANDBY, AlertReceiverSettings(url=standby_webhook, min_severity=Severity.INFO)))
        before, self._receivers = self._receivers, {}
        alike: Counter[tuple[bool, str, str]] = Counter()
        for name, one in wanted:
            kind = name == STANDBY, one.form.value, one.url
            key = (*kind, alike[kind])
            alike[kind] += 1
            receiver = before.pop(key, None)
            if receiver is None:
                receiver = Receiver(
                    name, one, lambda: self._settings, self.outcomes, self._wall_clock, self._transport
                )
            else:
                receiver.configure(name, one)
            self._receivers[key] = receiver
            for outcome in OUTCOMES:
                self.outcomes[name, outcome] += 0  # a counter has to be there before it first moves
            for told_key, told in self._holding.items():
                if told_key not in receiver.backlog.holding:
                    receiver.note(told_key, told)
        for receiver in before.values():
            task = asyncio.create_task(receiver.close())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def tell(self, event: RuleEvent, rule: Rule | None, at: float) -> None:
        """`at` is Unix time. `rule` words it; None where it is not configured any more."""
        key = event.rule, event.subject
        before = self._holding.pop(key, None)
        since = at if before is None else before.since
        description, runbook = (rule.description, rule.runbook) if rule is not None else ("", "")
        told = Told(event, at, since, description, self._runbook_url(runbook))
        if event.is_active:
            self._holding[key] = told
        for receiver in self._receivers.values():
            receiver.note(key, told)

    async def close(self) -> None:
        receivers, self._receivers = list(self._receivers.values()), {}
        await asyncio.gather(*(receiver.close() for receiver in receivers), *self._ending)

    def _runbook_url(self, runbook: str) -> str:
        base = self._settings.runbook_base_url
        if not base or not runbook or "://" in runbook:
            return runbook
        return f"{base.rstrip('/')}/{runbook.lstrip('/')}"
