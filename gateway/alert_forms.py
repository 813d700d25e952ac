"""How a change of a degradation rule is worded for whoever is told of it.

Alertmanager (version 2 of its API): one alert per rule and subject with the labels `alertname` (the rule), `severity`, `scope`, `subject`, and those of the configuration; annotations `summary`, `description`,
`actions` and `runbook_url`; `startsAt`, and `endsAt` once it has let go.
Plain: `{"version": 1, "events": [{"rule", "scope", "subject", "severity", "state": "active" | "inactive", "metric", "value", "threshold", "actions", "cause", "at", "summary", "runbook_url", "labels"}]}`;
`at` as RFC 3339 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from policies.rule_events import RuleEvent


class Told(NamedTuple):
    """An event with what it takes to word it. `since` is when its rule took hold, both in Unix seconds."""

    event: RuleEvent
    at: float
    since: float
    description: str = ""
    runbook_url: str = ""


def plain(told: Sequence[Told], labels: Mapping[str, str]) -> bytes:
    events = [
        {
            "rule": one.event.rule,
            "scope": one.event.scope,
            "subject": one.event.subject,
            "severity": one.event.severity,
            "state": "active" if one.event.is_active else "inactive",
            "metric": one.event.metric,
            "value": one.event.value,
            "threshold": one.event.threshold,
            "actions": list(one.event.actions),
            "cause": one.event.cause,
            "at": _time(one.at),
            "summary": summary(one.event),
            "runbook_url": one.runbook_url,
            "labels": dict(labels),
        }
        for one in told
    ]
    return orjson.dumps({"version": 1, "events": events})


def for_alertmanager(told: Sequence[Told], labels: Mapping[str, str]) -> bytes:
    return orjson.dumps([_alert(one, labels) for one in told])


def summary(event: RuleEvent) -> str:
    of = f"{event.scope} {event.subject}" if event.subject else "the fleet"
    value = "unknown" if event.value is None else f"{event.value:.4g}"
    done = ", ".join(event.actions)
    if event.is_active:
        return (
            f"{event.rule} holds for {of}: {event.metric} is {value} (threshold {event.threshold:g}); {done}"
        )
    return f"{event.rule} has let go of {of}: {event.metric} is {value}"


def _alert(one: Told, labels: Mapping[str, str]) -> dict[str, Any]:
    event = one.event
    alert: dict[str, Any] = {
        "labels": {
            **labels,
            "alertname": event.rule,
            "severity": event.severity,
            "scope": event.scope,
            "subject": event.subject,
            "source": "headrace",
        },
        "annotations": {
            "summary": summary(event),
            "description": one.description,
            "actions": ", ".join(event.actions),
            "runbook_url": one.runbook_url,
        },
        "startsAt": _time(one.since),
    }
    if not event.is_active:
        alert["endsAt"] = _time(one.at)
    return alert


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
