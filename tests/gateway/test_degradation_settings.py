"""Each setting of `rules` and `degradation` does something: the core as the gateway makes it, with metrics that the test says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.app import Gateway
from gateway.degradation_settings import ConditionSettings, DegradationSettings, RuleSettings
from gateway.rules_page import rules_state
from gateway.settings import BackendSettings, PoolSettings, ProbeSettings, Settings, WindowSettings
from policies.default_rules import DEFAULT_RULES
from policies.degradation import Aggregate, Operator
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolTag
from policies.rule_events import Severity
from policies.terms import CachePath, Refusal
from routing.decision import Intent
from tests.backend import Backend, json_script
from tests.emulator.running import until
from tests.gateway.core_stage import router_of
from tests.routing.rule_stage import Stage

COLD = Intent(path=CachePath.COLD)
SATURATION = Metric.SATURATION_RATIO
RULE = RuleSettings(
    name="r",
    metric=SATURATION,
    threshold=0.5,
    clear_seconds=0,
    min_hold_seconds=0,
    actions=("close_cold_path",),
)
ONLY_MINE = DegradationSettings(default_rules=False)


def pool(name: str, *tags: PoolTag, backends: int = 2) -> PoolSettings:
    names = [f"{name}{index}" for index in range(backends)]
    return PoolSettings(
        name=name,
        tags=tags,
        window=WindowSettings(max=8),
        backends=tuple(BackendSettings(url=f"http://127.0.0.1:9/{one}", name=one) for one in names),
    )


def settings_of(
    *rules: RuleSettings, degradation: DegradationSettings = ONLY_MINE, **sections: Any
) -> Settings:
    return Settings(**{"pools": (pool("p"),), "rules": rules, "degradation": degradation, **sections})


def stage_of(*rules: RuleSettings, degradation: DegradationSettings = ONLY_MINE, **sections: Any) -> Stage:
    return Stage.around(router_of(settings_of(*rules, degradation=degradation, **sections)))


def holds(stage: Stage, value: float | None, metric: Metric = SATURATION, **of: Any) -> bool:
    """Whether the rule does once its metric is told."""
    stage.told(metric, value, **of)
    stage.beat()
    return bool(stage.active())


def holds_after(stage: Stage, seconds: float, is_active: bool) -> None:
    """It changes to `is_active` after so many seconds, and not before."""
    stage.beats(seconds - 1.0)
    assert bool(stage.active()) is not is_active
    stage.beat()
    assert bool(stage.active()) is is_active


# --- rules ----------------------------------------------------------------------------------------------------------------------------


def test_name_is_what_a_rule_is_known_by_and_one_of_a_default_rule_takes_its_place() -> None:
    stage = stage_of(
        replace(RULE, name="mine"), replace(RULE, name="gpu-hot"), degradation=DegradationSettings()
    )
    assert set(stage.router.degradation.rules) == {"mine"} | {rule.name for rule in DEFAULT_RULES}
    assert stage.router.degradation.rules["gpu-hot"].metric is SATURATION


def test_metric_is_what_is_looked_at() -> None:
    stage = stage_of(replace(RULE, metric=Metric.SHED_RATIO))
    assert not holds(stage, 0.9)
    assert holds(stage, 0.9, Metric.SHED_RATIO)


def test_scope_is_what_a_rule_is_about() -> None:
    for scope, subject in ((Scope.BACKEND, "p1"), (Scope.POOL, "p"), (Scope.FLEET, "")):
        stage = stage_of(replace(RULE, scope=scope))
        assert holds(stage, 0.9, scope=scope, subject=subject)
        assert stage.active() == {("r", subject)}


def test_aggregate_is_how_values_of_backends_are_put_together() -> None:
    rule = replace(RULE, metric=Metric.KV_USAGE_RATIO)
    for aggregate, expected in ((Aggregate.MEAN, False), (Aggregate.MAX, True)):
        stage = stage_of(replace(rule, aggregate=aggregate))
        stage.told(Metric.KV_USAGE_RATIO, 0.1, Scope.BACKEND, "p0")
        assert holds(stage, 0.8, Metric.KV_USAGE_RATIO, scope=Scope.BACKEND, subject="p1") is expected


@pytest.mark.parametrize(
    ("operator", "beyond"),
    [
        (Operator.ABOVE, [False, False, True]),
        (Operator.AT_LEAST, [False, True, True]),
        (Operator.BELOW, [True, False, False]),
        (Operator.AT_MOST, [True, True, False]),
    ],
)
def test_operator_is_on_which_side_of_the_threshold_it_holds(operator: Operator, beyond: list[bool]) -> None:
    assert [holds(stage_of(replace(RULE, operator=operator)), value) for value in (0.4, 0.5, 0.6)] == beyond


def test_threshold_is_where_it_takes_hold() -> None:
    assert not holds(stage_of(replace(RULE, threshold=0.7)), 0.7)
    assert holds(stage_of(replace(RULE, threshold=0.7)), 0.71)
    assert holds(stage_of(replace(RULE, threshold=0.3)), 0.31)


def test_for_seconds_are_how_long_it_has_to_hold_before() -> None:
    stage = stage_of(replace(RULE, for_seconds=20))
    assert not holds(stage, 0.9)
    holds_after(stage, 20.0, True)


def test_samples_are_how_many_in_a_row_have_to_speak_for_it() -> None:
    stage = stage_of(replace(RULE, samples=3))
    assert [holds(stage, 0.9) for _ in range(3)] == [False, False, True]


def test_clear_threshold_is_where_it_lets_go() -> None:
    stage = stage_of(replace(RULE, clear_threshold=0.3))
    assert [holds(stage, value) for value in (0.6, 0.31, 0.3)] == [True, True, False]


def test_clear_seconds_are_how_long_it_is_clear_before_it_lets_go() -> None:
    stage = stage_of(replace(RULE, clear_seconds=20))
    assert holds(stage, 0.9) and holds(stage, 0.1)
    holds_after(stage, 20.0, False)


def test_min_hold_seconds_are_how_long_it_holds_at_least() -> None:
    stage = stage_of(replace(RULE, min_hold_seconds=20))
    assert holds(stage, 0.9)
    stage.told(SATURATION, 0.1)
    holds_after(stage, 20.0, False)


ALSO = ConditionSettings(
    metric=Metric.SHED_RATIO, operator=Operator.BELOW, threshold=0.5, clear_threshold=0.8
)


def test_only_while_a_second_condition_holds_does_the_rule() -> None:
    stage = stage_of(replace(RULE, only_while=ALSO))
    assert not holds(stage, 0.9)
    assert [holds(stage, value, Metric.SHED_RATIO) for value in (0.5, 0.4, 0.79, 0.8)] == [
        False,
        True,
        True,
        False,
    ]


def test_the_metric_of_a_second_condition_is_what_it_looks_at() -> None:
    stage = stage_of(replace(RULE, only_while=replace(ALSO, metric=Metric.ABNORMAL_RATIO)))
    stage.told(SATURATION, 0.9)
    assert not holds(stage, 0.1, Metric.SHED_RATIO)
    assert holds(stage, 0.1, Metric.ABNORMAL_RATIO)


def test_actions_are_what_it_does() -> None:
    stage = stage_of(replace(RULE, actions=("refuse_below interactive", "window_share 0.5")))
    assert holds(stage, 0.9)
    assert stage.objection(Intent(path=CachePath.HOT)) is Refusal.LANE_REFUSED
    assert stage.backend("p0").window == 4 and not stage.router.degradation.effects.closes_cold_path


def test_severity_is_told_with_its_events() -> None:
    stage = stage_of(replace(RULE, severity=Severity.CRITICAL))
    stage.told(SATURATION, 0.9)
    [event] = stage.beat()
    assert event.severity is Severity.CRITICAL


def test_description_and_runbook_are_shown_to_operators() -> None:
    stage = stage_of(replace(RULE, description="what it means", runbook="books/r.md"))
    [shown] = rules_state(stage.router, 0.0)["rules"]
    assert (shown["description"], shown["runbook"]) == ("what it means", "books/r.md")


# --- pools -----------------------------------------------------------------------------------------------------------------------------


def test_tags_say_which_pools_are_preferred_and_which_are_used_only_when_a_rule_asks_for_it() -> None:
    pools = (
        pool("p", backends=1),
        pool("f", PoolTag.FALLBACK, backends=1),
        pool("s", PoolTag.STANDBY, backends=1),
    )
    stage = stage_of(replace(RULE, actions=("prefer_fallback", "activate_standby")), pools=pools)
    assert set(stage.fits()) == {"p0", "f0"} and stage.tag().pools == ("p", "f", "s")
    assert holds(stage, 0.9)
    assert set(stage.fits()) == {"p0", "f0", "s0"} and stage.tag().pools == ("f", "p", "s")


# --- degradation -------------------------------------------------------------------------------------------------------------------------


def test_enabled_says_whether_there_are_rules_at_all() -> None:
    stage = stage_of(RULE, degradation=DegradationSettings(enabled=False, ladder=True))
    assert not holds(stage, 0.9) and not stage.router.degradation.rules


def test_default_rules_are_there_unless_they_are_not_wanted() -> None:
    assert set(stage_of(RULE).router.degradation.rules) == {"r"}
    stage = stage_of(RULE, degradation=DegradationSettings())
    assert tuple(stage.router.degradation.rules.values())[:-1] == DEFAULT_RULES


def test_ladder_says_whether_its_levels_are_there() -> None:
    for wanted in (True, False):
        stage = stage_of(degradation=DegradationSettings(default_rules=False, ladder=wanted))
        stage.told(Metric.OPEN_RATIO, 1.0)
        stage.beats(20.0)
        assert len(stage.active()) == (5 if wanted else 0)


def test_time_scale_stretches_all_durations_of_rules_and_ladder() -> None:
    scaled = DegradationSettings(default_rules=False, ladder=True, time_scale=4)
    stage = stage_of(replace(RULE, metric=Metric.SHED_RATIO, for_seconds=20), degradation=scaled)
    assert not holds(stage, 0.05, Metric.SHED_RATIO)
    stage.told(Metric.STANDING_QUEUE, 1.0)
    stage.beat()
    holds_after(stage, 20.0, True)
    stage.told(Metric.STANDING_QUEUE, 0.0)
    stage.beat()
    holds_after(stage, 60.0, False)
    rule = stage.router.degradation.rules["r"]
    assert (rule.for_seconds, rule.clear_seconds) == (80.0, 0.0)


async def test_interval_seconds_lie_between_two_looks() -> None:
    silent = ProbeSettings(interval_seconds=3600, timeout_seconds=1)
    clock = asyncio.get_running_loop().time
    # The one that is not to look comes first: with equal intervals it would look first.
    gateways = [
        Gateway(
            settings_of(RULE, degradation=replace(ONLY_MINE, interval_seconds=seconds), probes=silent),
            lambda line: None,
        )
        for seconds in (3600, 0.02)
    ]
    rare, often = [gateway.router.degradation for gateway in gateways]
    for degradation in (rare, often):
        degradation.force("r", None, True, clock(), "ann", clock())
    await until(lambda: not often.effects.closes_cold_path)
    assert rare.effects.closes_cold_path
    for gateway in gateways:
        await gateway.close()


async def test_standby_webhook_is_told_when_standby_backends_are_wanted_and_when_they_are_not_any_more() -> (
    None
):
    async with Backend(lambda request: json_script({})) as receiver:
        settings = settings_of(
            replace(RULE, actions=("activate_standby",)),
            replace(RULE, name="other"),
            degradation=replace(ONLY_MINE, standby_webhook=f"{receiver.url}/standby"),
        )
        gateway = Gateway(settings, lambda line: None)
        degradation, clock = gateway.router.degradation, asyncio.get_running_loop().time

        def said() -> list[tuple[str, str]]:
            bodies = [one.request.body for one in receiver.exchanges if one.body_complete.is_set()]
            return [(one["rule"], one["state"]) for body in bodies for one in orjson.loads(body)["events"]]

        gateway.tell(degradation.force("other", None, True, clock() + 60, "ann", clock()))
        gateway.tell(degradation.force("r", None, True, clock() + 60, "ann", clock()))
        await receiver.until(lambda: said() == [("r", "active")])
        await until(lambda: gateway.alerts.outcomes["standby", "sent"] == 1)
        gateway.tell(degradation.unforce("r", None, "ann", clock()))
        await receiver.until(lambda: said() == [("r", "active"), ("r", "inactive")])
        assert receiver.exchanges[0].request.path == "/standby"
        await gateway.close()
