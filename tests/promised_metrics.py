"""What the metrics page promises: the tables that the modules of metrics open with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType

from gateway import (
    affinity_metrics,
    alert_metrics,
    breaker_metrics,
    decision_metrics,
    fleet_metrics,
    gpu_metrics,
    monitoring_metrics,
    rule_metrics,
    telemetry,
)
from gateway.sessions import turn_metrics

_ROW = re.compile(r"^\| ([a-z0-9_, ]+) \| (counter|gauge|histogram) \| ([a-z ]*)\|", re.MULTILINE)


def promised() -> Iterator[tuple[str, str, set[str]]]:
    """Name, type and labels of each family."""
    for module in (
        telemetry,
        decision_metrics,
        affinity_metrics,
        breaker_metrics,
        fleet_metrics,
        turn_metrics,
        alert_metrics,
        gpu_metrics,
        monitoring_metrics,
        rule_metrics,
    ):
        yield from rows(module)


def rows(module: ModuleType) -> Iterator[tuple[str, str, set[str]]]:
    for names, kind, labels in _ROW.findall(module.__doc__ or ""):
        for name in names.split(", "):
            yield f"headrace_{name}", kind, set(labels.split())
