"""Degradation rules as they are scraped."""

from __future__ import annotations

from dataclasses import replace

from gateway.rule_metrics import RulesNow
from policies.metric_catalogue import Metric, Scope
from policies.rule_events import Severity
from tests.routing.rule_stage import Stage, rule

HELD = replace(rule("hold", scope=Scope.BACKEND), severity=Severity.CRITICAL)
CLOSE = rule("close_cold_path", name="close")


def scraped(stage: Stage) -> dict[tuple[str, ...], float]:
    """Values by family and values of labels."""
    return {
        (sample.name.removeprefix("headrace_rule_"), *sample.labels.values()): sample.value
        for family in RulesNow(lambda: stage.router.degradation).collect()
        for sample in family.samples
    }


def test_what_is_not_known_has_no_value_and_is_not_usable_and_every_change_is_counted() -> None:
    stage = Stage(rules=[HELD, CLOSE])
    stage.beat()
    nothing = {
        ("active", "r", "backend", "p0", "critical"): 0.0,
        ("active", "r", "backend", "p1", "critical"): 0.0,
        ("active", "close", "fleet", "", "warning"): 0.0,
        ("transitions_total", "r", "active"): 0,
        ("transitions_total", "r", "inactive"): 0,
        ("transitions_total", "close", "active"): 0,
        ("transitions_total", "close", "inactive"): 0,
        ("usable", "r"): 0.0,
        ("usable", "close"): 0.0,
    }
    assert scraped(stage) == nothing
    stage.told(Metric.GPU_UTILISATION_RATIO, 0.9, Scope.BACKEND, "p1")
    stage.beat()
    assert scraped(stage) == nothing | {
        ("active", "r", "backend", "p1", "critical"): 1.0,
        ("value", "r", "backend", "p1"): 0.9,
        ("transitions_total", "r", "active"): 1,
        ("usable", "r"): 1.0,
    }
    stage.told(Metric.GPU_UTILISATION_RATIO, None, Scope.BACKEND, "p1")
    stage.beat()
    assert scraped(stage) == nothing | {
        ("transitions_total", "r", "active"): 1,
        ("transitions_total", "r", "inactive"): 1,
    }
