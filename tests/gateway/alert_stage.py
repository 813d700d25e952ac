"""Alerts in virtual time: receivers whose answers are the test's choice, and changes of rules to tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx
import orjson

from gateway.alert_settings import AlertForm, AlertReceiverSettings, AlertSettings
from gateway.alerts import Alerts
from policies.degradation import Operator, Rule
from policies.degradation_actions import ActivateStandby, HoldBackends
from policies.metric_catalogue import Metric, Scope
from policies.rule_events import RuleCause, RuleEvent, Severity

EPOCH = 1_700_000_000.0
"""Wall clock at the loop's 0: 2023-11-14T22:13:20Z."""
URL = "http://receiver.test/hook?key=s3cret"


class Call(NamedTuple):
    at: float
    url: str
    headers: httpx.Headers
    body: Any

    @property
    def states(self) -> list[tuple[str, str, bool]]:
        """Rule, subject, and whether it holds."""
        if isinstance(self.body, dict):
            return [(one["rule"], one["subject"], one["state"] == "active") for one in self.body["events"]]
        return [
            (one["labels"]["alertname"], one["labels"].get("subject", ""), one["endsAt"] > wall(self.at))
            for one in self.body
        ]


def wall(seconds: float) -> str:
    return datetime.fromtimestamp(EPOCH + seconds, UTC).isoformat().replace("+00:00", "Z")


Answering = Callable[[], int | Exception | None]


class Receivers(httpx.AsyncBaseTransport):
    """All of them; `answer` gives each call a status, an exception, or None to hang, after `seconds`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Answering = lambda: 200
        self.seconds = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        now = asyncio.get_running_loop().time()
        self.calls.append(Call(now, str(request.url), request.headers, orjson.loads(await request.aread())))
        answer = self.answer()
        await asyncio.sleep(self.seconds)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer or 0)

    @property
    def told(self) -> list[tuple[str, str, bool]]:
        return [state for call in self.calls for state in call.states]


class Stage:
    def __init__(self) -> None:
        self.receivers = Receivers()
        self.seconds_set_back = 0.0
        """How much the wall clock lags behind the time that has passed."""
        self.alerts = Alerts(self.wall_clock, lambda: self.receivers)

    def wall_clock(self) -> float:
        return EPOCH + asyncio.get_running_loop().time() - self.seconds_set_back

    def change(
        self,
        is_active: bool,
        name: str = "gpu-hot",
        subject: str = "a",
        severity: Severity = Severity.CRITICAL,
        standby: bool = False,
        runbook: str = "deploy/runbooks/gpu-hot.md",
    ) -> None:
        """Tell of it, at this moment."""
        rule = Rule(
            name,
            Metric.GPU_TEMPERATURE_CELSIUS,
            Scope.BACKEND,
            Operator.ABOVE,
            85.0,
            (ActivateStandby() if standby else HoldBackends(),),
            description="It is too hot",
            runbook=runbook,
        )
        event = RuleEvent(
            name,
            Scope.BACKEND,
            subject,
            severity,
            is_active,
            "gpu_temperature_celsius",
            91.5,
            85.0,
            ("activate_standby",) if standby else ("hold",),
            RuleCause.METRIC,
            0.0,
        )
        self.alerts.tell(event, rule, self.wall_clock())

    def outcome(self, outcome: str, receiver: str = "receivers[0]") -> int:
        return self.alerts.outcomes[receiver, outcome]


def receiver(**fields: Any) -> AlertReceiverSettings:
    return AlertReceiverSettings(**{"url": URL, **fields})


def alertmanager(**fields: Any) -> AlertReceiverSettings:
    return receiver(form=AlertForm.ALERTMANAGER, url="http://am.test:9093/prefix/", **fields)


@asynccontextmanager
async def stage(
    *receivers: AlertReceiverSettings, standby_webhook: str = "", **fields: Any
) -> AsyncIterator[Stage]:
    """Nothing is left of it when it ends."""
    before = asyncio.all_tasks()
    found = Stage()
    found.alerts.configure(AlertSettings(receivers=receivers, **fields), standby_webhook)
    try:
        yield found
    finally:
        await found.alerts.close()
    assert asyncio.all_tasks() <= before
