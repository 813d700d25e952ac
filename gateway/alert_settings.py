"""The settings of `alerts`, as those of `gateway.settings`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from gateway.bounded import bounded
from policies.rule_events import Severity


class AlertForm(StrEnum):
    ALERTMANAGER = "alertmanager"
    """`url` is an Alertmanager; its API version 2 is used."""
    JSON = "json"
    """`url` gets what `gateway.alert_forms` describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertReceiverSettings:
    url: str
    """May hold a secret; it is never logged."""
    form: AlertForm = AlertForm.JSON
    bearer_token: str = ""
    min_severity: Severity = Severity.WARNING
    timeout_seconds: float = bounded(5, 0.05, 600)
    """Of one call, the connection included."""
    repeat_seconds: float = bounded(60, 0.05, 86_400)
    """An Alertmanager is told again of what still holds, since it forgets; `json` is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Who is told when a degradation rule takes hold or lets go."""

    receivers: tuple[AlertReceiverSettings, ...] = ()
    max_waiting: int = bounded(1000, 1, 1_000_000)
    """Per receiver; beyond that what waits for longest is given up, critical ones last."""
    runbook_base_url: str = ""
    """In front of a rule's `runbook`, unless that is a URL itself."""
    labels: dict[str, str] = field(default_factory=dict)
    """Added to every alert."""
