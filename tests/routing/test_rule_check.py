"""Which rules cannot work, and why."""

from __future__ import annotations

from dataclasses import replace

from policies.default_rules import DEFAULT_RULES
from policies.degradation import Condition, Operator, Rule
from policies.dialects import EngineReport
from policies.gathering import GatheringRules
from policies.gpu_report import GpuReport
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolTag
from routing.placement import AffinityRules
from routing.rule_check import objections
from routing.rules import Rules
from routing.samples import REPORT_SECONDS
from tests.routing.rule_stage import Stage, pool, rule

HELD = rule("hold", scope=Scope.BACKEND, metric=Metric.GPU_TEMPERATURE_CELSIUS)
GPU = GpuReport(temperature_celsius=50.0, memory_used_ratio=0.5, utilisation_ratio=0.5)


def of(stage: Stage, one: Rule = HELD) -> list[str]:
    return objections(stage.router, one.name, stage.now)


def tells_gpu(stage: Stage, id: str, report: GpuReport = GPU, seconds: float = 10.0) -> None:
    stage.router.samples.gpu(stage.backend(id).id, report, stage.now, stage.now + seconds)


def tells(stage: Stage, id: str, **report: float) -> None:
    fields = {name: report.get(name) for name in EngineReport._fields}
    stage.router.fleet.reported(stage.backend(id), EngineReport(**fields), stage.now)  # type: ignore[arg-type]


def test_a_metric_that_no_backend_tells_is_named_and_where_it_would_be_told() -> None:
    stage = Stage(rules=[HELD])
    assert of(stage) == ["no backend tells gpu_temperature_celsius (its `gpu` names the page)"]
    tells_gpu(stage, "p0")
    assert of(stage) == ["not told of p1: gpu_temperature_celsius (its `gpu` names the page)"]
    tells_gpu(stage, "p1")
    assert of(stage) == []
    stage.now += 11.0
    assert len(of(stage)) == 1, "what is too old is not told"


def test_of_many_silent_backends_a_few_are_named() -> None:
    stage = Stage(pool("p", backends=9), rules=[HELD])
    tells_gpu(stage, "p0")
    assert of(stage) == [
        "not told of p1, p2, p3, p4, p5 and 3 more: gpu_temperature_celsius (its `gpu` names the page)"
    ]


def test_a_page_without_the_series_is_no_page_of_it_and_the_swing_is_made_of_the_memory() -> None:
    swing = replace(HELD, name="s", metric=Metric.MEMORY_SWING_RATIO)
    stage = Stage(pool("p"), rules=[HELD, swing])
    tells_gpu(stage, "p0", GPU._replace(temperature_celsius=None))
    assert len(of(stage)) == 1 and of(stage, swing) == []
    tells_gpu(stage, "p0", GPU._replace(memory_used_ratio=None))
    assert of(stage, swing) == ["no backend tells gpu_memory_used_ratio (its `gpu` names the page)"]


def test_an_engine_that_does_not_tell_its_load_is_named() -> None:
    one = replace(
        HELD, metric=Metric.KV_USAGE_RATIO, only_while=Condition(Metric.ENGINE_RUNNING, Operator.ABOVE, 1)
    )
    stage = Stage(pool("p"), rules=[one])
    assert of(stage, one) == ["no backend tells kv_usage_ratio", "no backend tells engine_running"]
    tells(stage, "p0", kv_usage=0.1)
    assert of(stage, one) == ["no backend tells engine_running"]
    tells(stage, "p0", kv_usage=0.1, running=1)
    assert of(stage, one) == []
    stage.now += REPORT_SECONDS + 1
    assert len(of(stage, one)) == 2


def test_of_hit_rates_it_is_the_counters_that_have_to_be_told_and_not_the_traffic() -> None:
    one = rule("close_cold_path", metric=Metric.CACHE_HIT_RATIO)
    stage = Stage(pool("p"), rules=[one])
    assert of(stage, one) == ["no backend tells prompt tokens found in its prefix cache"]
    tells(stage, "p0", prefix_hits=0, prefix_queries=0)
    assert of(stage, one) == []


def test_what_only_traffic_tells_is_no_objection_but_where_it_never_will() -> None:
    hot = rule("close_cold_path", metric=Metric.HOT_RATIO)
    shed = rule("refuse_below standard", name="shed", metric=Metric.SHED_RATIO)
    stage = Stage(rules=[hot, shed])
    assert of(stage, hot) == of(stage, shed) == []
    stage = Stage(rules=[hot], core=replace(Rules(), affinity=AffinityRules(enabled=False)))
    assert of(stage, hot) == ["affinity is off: every request is cold"]


def test_actions_need_something_to_act_upon() -> None:
    does = rule(
        "prefer_fallback", "activate_standby", "window_share 0.5", "batch_share 0.6", "serial", "hold"
    )
    stage = Stage(pool("p", window=None), rules=[does])
    assert of(stage, does) == [
        "no pool is tagged fallback",
        "no pool is tagged standby",
        "no backend has a window, and none says how many requests it runs at a time: there is nothing to shrink",
        "no backend has a window: there is nothing to share",
        "no pool gathers requests",
    ]
    gathering = GatheringRules(4, 8, 0.1, False)
    stage = Stage(pool("p", PoolTag.FALLBACK, gathering=gathering), pool("s", PoolTag.STANDBY), rules=[does])
    assert of(stage, does) == []


def test_nothing_is_asked_of_who_is_on_standby() -> None:
    stage = Stage(pool("p"), pool("s", PoolTag.STANDBY), rules=[HELD])
    tells_gpu(stage, "p0")
    assert of(stage) == []


def test_each_default_rule_that_nothing_feeds_says_so() -> None:
    stage = Stage(pool("p", window=None), rules=DEFAULT_RULES)
    silent = {one.name for one in DEFAULT_RULES if not of(stage, one)}
    assert silent == set()


def test_a_rule_that_holds_backends_for_how_many_are_held_is_said_to_keep_itself_up_and_does() -> None:
    one = rule(
        "hold", name="latch", scope=Scope.POOL, metric=Metric.OPEN_RATIO, threshold=0.4, clear_seconds=0.0
    )
    stage = Stage(pool("p", backends=2), rules=[one])
    router = stage.router
    router.degradation.values = router.samples
    assert of(stage, one) == [
        "what it holds counts in open_ratio: it does not let go unless it is forced off"
    ]
    router.fleet.mark_unreachable(stage.backend("p0"), stage.now)
    stage.beat()
    router.fleet.mark_reachable(stage.backend("p0"))
    stage.beats(60)
    assert stage.active() == {("latch", "p")}
    below = replace(one, name="below", operator=Operator.BELOW)
    shares = rule("window_share 0.5", name="shares", scope=Scope.POOL, metric=Metric.OPEN_RATIO)
    stage.configure([below, shares])
    assert of(stage, below) == [] == of(stage, shares)
