"""How a change of a degradation rule is worded for whoever is told of it.

Alertmanager (version 2 of its API): one alert per rule and subject with the labels `alertname` and `rule` (both the rule's name, the second as Prometheus' alerts of the same rule have it), `severity`, `scope`, `subject`, `source` (headrace) and those of the configuration;
annotations `summary`, `description`, `actions` and `runbook_url`; `startsAt`, and `endsAt`: when it let go, or when it is to end unless it is told again. What is empty is left out.
Plain: `{"version": 1, "events": [{"rule", "scope", "subject", "severity", "state": "active" | "inactive", "metric", "value", "threshold", "actions", "cause", "at", "since", "summary", "description", "runbook_url", "labels"}]}`;
times as RFC 3339 in UTC. The standby webhook gets `"standby": true | false` beside: whether any rule wants standby backends after these events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from policies.rule_events import RuleCause, RuleEvent


class Told(NamedTuple):
    """An event with what it takes to word it. `since` is when its rule took hold, both in Unix seconds."""

    event: RuleEvent
    at: float
    since: float
    description: str = ""
    runbook_url: str = ""


def plain(told: Sequence[Told], labels: Mapping[str, str], standby: bool | None = None) -> bytes:
    """`standby` None is for whoever is not the standby webhook."""
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
            "since": _time(one.since),
            "summary": summary(one.event),
            "description": one.description,
            "runbook_url": one.runbook_url,
            "labels": dict(labels),
        }
        for one in told
    ]
    document: dict[str, Any] = {"version": 1, "events": events}
    if standby is not None:
        document["standby"] = standby
    return orjson.dumps(document)


def for_alertmanager(told: Sequence[Told], labels: Mapping[str, str], ends_at: float) -> bytes:
    """`ends_at` is when what holds ends unless it is told again."""
    return orjson.dumps([_alert(one, labels, ends_at) for one in told])


def summary(event: RuleEvent) -> str:
    of = f"{event.scope} {event.subject}" if event.subject else "the fleet"
    value = "unknown" if event.value is None else f"{event.value:.4g}"
    by = ", by an operator" if event.cause is RuleCause.OPERATOR else ""
    if not event.is_active:
        return f"{event.rule} has let go of {of}{by}: {event.metric} is {value}"
    done = f"; {', '.join(event.actions)}" if event.actions else ""
    return f"{event.rule} holds for {of}{by}: {event.metric} is {value} (threshold {event.threshold:g}){done}"


def _alert(one: Told, labels: Mapping[str, str], ends_at: float) -> dict[str, Any]:
    event = one.event
    own = {
        "alertname": event.rule,
        "rule": event.rule,
        "severity": event.severity.value,
        "scope": event.scope.value,
        "subject": event.subject,
        "source": "headrace",
    }
    annotations = {
        "summary": summary(event),
        "description": one.description,
        "actions": ", ".join(event.actions),
        "runbook_url": one.runbook_url,
    }
    until = ends_at if event.is_active else one.at
    return {
        "labels": _filled({**labels, **own}),
        "annotations": _filled(annotations),
        # An Alertmanager refuses all of a call in which one alert ends before it began, as after a clock was set back.
        "startsAt": _time(min(one.since, until)),
        "endsAt": _time(until),
    }


def _filled(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
