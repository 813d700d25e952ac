"""What the log says of rules: forces, each once, and what cannot work."""

from __future__ import annotations

import pytest

from gateway.rule_log import PATIENCE_SECONDS, RuleLog
from policies.gpu_report import GpuReport
from policies.metric_catalogue import Metric, Scope
from routing.rule_forces import MAX_AUDITED
from tests.routing.rule_stage import Stage, pool, rule

HELD = rule("hold", scope=Scope.BACKEND, metric=Metric.GPU_TEMPERATURE_CELSIUS)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Since the last time."""
    messages = list(caplog.messages)
    caplog.clear()
    return messages


def test_each_force_and_its_end_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(pool("p", backends=2), rules=[HELD])
    log, degradation = RuleLog(lambda: stage.router), stage.router.degradation
    log.audit()
    assert said(caplog) == []
    degradation.force("r", "p1", True, 90.0, "ann", 0.0)
    degradation.force("r", None, False, 60.0, "b\nb", 0.0)
    log.audit()
    assert said(caplog) == [
        "rule audit: r of p1 on for 90 s, by 'ann'",
        "rule audit: r of all subjects off for 60 s, by 'b\\nb'",
    ]
    stage.beat(61.0)
    log.audit()
    log.audit()
    assert said(caplog) == ["rule audit: r of all subjects expired, by 'b\\nb'"]
    degradation.force("r", "p1", True, 90.0, "ann", 20.0)
    stage.configure([])
    log.audit()
    assert (lines := said(caplog))[0] == "rule audit: r of p1 on for 70 s, by 'ann'"
    assert lines[1] == "rule audit: r of p1 released, by 'ann'"


def test_of_more_than_the_trail_keeps_the_newest_are_said(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(rules=[HELD])
    log = RuleLog(lambda: stage.router)
    for _ in range(MAX_AUDITED + 5):
        stage.router.degradation.force("r", None, True, 9.0, "ann", 0.0)
    log.audit()
    assert len(said(caplog)) == MAX_AUDITED


def test_which_rules_cannot_work_is_said_once_the_backends_had_time_and_again_only_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    two = rule("activate_standby", name="two", scope=Scope.BACKEND, metric=Metric.GPU_TEMPERATURE_CELSIUS)
    stage = Stage(pool("p"), rules=[HELD, two])
    log = RuleLog(lambda: stage.router)
    log.beat(100.0)
    log.beat(100.0 + PATIENCE_SECONDS - 0.1)
    assert said(caplog) == []
    log.beat(100.0 + PATIENCE_SECONDS)
    nothing = "rules that cannot work, or a part of them: "
    assert said(caplog) == [
        f"{nothing}r, two: no backend tells gpu_temperature_celsius (its `gpu` names the page)",
        f"{nothing}two: no pool is tagged standby",
    ]
    log.beat(100.0 + 2 * PATIENCE_SECONDS)
    assert said(caplog) == []
    stage.router.samples.gpu(
        stage.backend("p0").id, GpuReport(50.0, None, None), 0.0, 125.0 + PATIENCE_SECONDS
    )
    log.beat(100.0 + 3 * PATIENCE_SECONDS)
    log.beat(100.0 + 3.6 * PATIENCE_SECONDS)
    assert said(caplog) == [], "between two checks nothing is looked at"
    log.beat(100.0 + 4 * PATIENCE_SECONDS)
    assert said(caplog) == [
        f"{nothing}r, two: no backend tells gpu_temperature_celsius (its `gpu` names the page)"
    ], "it was told, and is not any more"
