"""The default rules, row by row of the field's tables: each enters at its threshold and after its duration, does what it says, lets go, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from policies.default_rules import DEFAULT_RULES
from policies.degradation import Aggregate, may_clear_at
from policies.gathering import GatheringRules
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolTag
from policies.rule_events import RuleCause, Severity
from policies.terms import CachePath, Lane, Refusal
from routing.decision import Intent
from tests.routing.rule_stage import HOT, Stage, pool

COLD = Intent(path=CachePath.COLD)


def stage_of(*extra: Any) -> Stage:
    stage = Stage(pool("p", backends=2, window=20), *extra, rules=DEFAULT_RULES)
    stage.router.forecast.served_per_second = 10.0
    stage.beat()
    return stage


def gpu(stage: Stage, metric: Metric, value: float | None, backend: str = "p0") -> None:
    stage.told(metric, value, Scope.BACKEND, backend)


def memory(stage: Stage, used: float, backend: str = "p0") -> None:
    gpu(stage, Metric.GPU_MEMORY_USED_RATIO, used, backend)


def assert_leaves_no_trace(
    stage: Stage, enter: Callable[[], None], leave: Callable[[], None], clear_seconds: float, rule: str
) -> None:
    """`enter` puts the rule in force; its effects are gone at `clear_seconds` after `leave`, and not before."""
    before = stage.trace()
    enter()
    assert rule in {name for name, _ in stage.active()}
    leave()
    stage.beat(0.0)
    stage.beats(clear_seconds - 1.0)
    assert rule in {name for name, _ in stage.active()}
    stage.beat()
    assert rule not in {name for name, _ in stage.active()}
    assert stage.trace() == before


# --- cache hit rate < 60 % for 5 min -> close the cold path ---------------------------------------------------------------------


def hits(stage: Stage, ratio: float, hot: float = 0.8) -> None:
    stage.told(Metric.CACHE_HIT_RATIO, ratio)
    stage.told(Metric.HOT_RATIO, hot)


def test_a_cache_hit_rate_below_60_percent_for_5_minutes_closes_the_cold_path_and_65_percent_for_a_minute_open_it() -> (
    None
):
    stage = stage_of()

    def enter() -> None:
        hits(stage, 0.6)
        assert stage.beats(400.0) == []
        hits(stage, 0.59)
        stage.beat()
        assert stage.beats(299.0) == [] and stage.objection(COLD) is None
        [event] = stage.beat()
        assert (event.rule, event.subject, event.is_active, event.value) == ("cache-hit-low", "", True, 0.59)
        assert stage.objection(COLD) is Refusal.COLD_PATH_CLOSED and stage.objection(HOT) is None
        hits(stage, 0.64)
        assert stage.beats(600.0) == []

    assert_leaves_no_trace(stage, enter, lambda: hits(stage, 0.65), 60.0, "cache-hit-low")


def test_the_cold_path_stays_open_where_most_requests_are_cold() -> None:
    stage = stage_of()
    hits(stage, 0.1, hot=0.5)
    assert stage.beats(900.0) == []
    hits(stage, 0.1, hot=0.51)
    stage.beats(301.0)
    assert stage.objection(COLD) is Refusal.COLD_PATH_CLOSED
    hits(stage, 0.1, hot=0.41)
    assert stage.beats(300.0) == []
    hits(stage, 0.1, hot=0.4)
    stage.beats(61.0)
    assert stage.objection(COLD) is None


def test_no_prompts_are_no_misses() -> None:
    stage = stage_of()
    stage.told(Metric.HOT_RATIO, 0.9)
    stage.told(Metric.CACHE_HIT_RATIO, None)
    assert stage.beats(900.0) == []


# --- memory swing > 15 % in 3 samples running -> half of the batch ------------------------------------------------------------------


def test_memory_that_swings_above_15_percent_in_3_samples_running_halves_the_window() -> None:
    stage = stage_of()

    def swing(ratio: float) -> None:
        gpu(stage, Metric.MEMORY_SWING_RATIO, ratio)
        stage.beat()

    def enter() -> None:
        for ratio in (0.151, 0.151, 0.15, 0.151, 0.3):
            swing(ratio)
        stage.beats(100.0)
        assert not stage.active(), "a sample that is read again is no other one"
        swing(0.3)
        assert stage.active() == {("memory-swing", "p0")}
        assert stage.fits() == {"p0": 10, "p1": 20}
        gpu(stage, Metric.MEMORY_SWING_RATIO, 0.11)
        assert stage.beats(200.0) == []

    assert_leaves_no_trace(
        stage, enter, lambda: gpu(stage, Metric.MEMORY_SWING_RATIO, 0.1), 60.0, "memory-swing"
    )


# --- batch idle rate > 20 % for 10 min -> serial mode --------------------------------------------------------------------------------


def test_gathered_batches_that_stay_20_percent_empty_for_10_minutes_are_not_gathered_and_tried_again_later() -> (
    None
):
    stage = stage_of(pool("g", gathering=GatheringRules(4, 8, 0.1, False)))

    def idle(ratio: float | None) -> None:
        stage.told(Metric.BATCH_IDLE_RATIO, ratio, Scope.POOL, "g")

    def enter() -> None:
        idle(0.2)
        assert stage.beats(900.0) == []
        idle(0.21)
        stage.beat()
        assert stage.beats(599.0) == [] and stage.router.fleet.gathers
        [event] = stage.beat()
        assert (event.rule, event.subject) == ("batch-idle", "g")
        assert not stage.router.fleet.gathers

    # Nothing is gathered, so nothing is known.
    assert_leaves_no_trace(stage, enter, lambda: idle(None), 300.0, "batch-idle")


# --- GPU temperature > 85 C at once -> open and alert ----------------------------------------------------------------------------------


def test_a_gpu_above_85_degrees_has_its_backend_held_at_once_with_a_critical_alert_and_80_for_30_seconds_free_it() -> (
    None
):
    stage = stage_of()

    def enter() -> None:
        for backend in ("p0", "p1"):
            gpu(stage, Metric.GPU_TEMPERATURE_CELSIUS, 85.0, backend)
        assert stage.beats(60.0) == []
        gpu(stage, Metric.GPU_TEMPERATURE_CELSIUS, 85.1)
        [event] = stage.beat()
        assert (event.rule, event.subject, event.severity, event.cause) == (
            "gpu-hot",
            "p0",
            Severity.CRITICAL,
            RuleCause.METRIC,
        )
        assert stage.fits() == {"p1": 20}
        gpu(stage, Metric.GPU_TEMPERATURE_CELSIUS, 80.1)
        assert stage.beats(100.0) == []

    assert_leaves_no_trace(
        stage, enter, lambda: gpu(stage, Metric.GPU_TEMPERATURE_CELSIUS, 80.0), 30.0, "gpu-hot"
    )


def test_a_hot_gpu_is_acted_upon_at_its_sample_and_not_at_the_next_beat() -> None:
    stage = stage_of()
    gpu(stage, Metric.GPU_TEMPERATURE_CELSIUS, 90.0)
    assert stage.router.degradation.told(stage.backend("p1").id, stage.now) == []
    [event] = stage.router.degradation.told(stage.backend("p0").id, stage.now + 0.1)
    assert (event.rule, event.value, event.at) == ("gpu-hot", 90.0, stage.now + 0.1)
    assert stage.fits() == {"p1": 20}
    assert stage.beat() == [], "what was told once is not told again"


# --- KV-cache use > 90 % for 5 min -> fall back, start standby nodes, limit the rate --------------------------------------------------------


def test_kv_caches_above_90_percent_for_5_minutes_prefer_the_fallback_start_the_standby_and_limit_the_rate() -> (
    None
):
    stage = stage_of(pool("f", PoolTag.FALLBACK), pool("s", PoolTag.STANDBY))

    def used(*ratios: float) -> None:
        for index, ratio in enumerate(ratios):
            stage.told(Metric.KV_USAGE_RATIO, ratio, Scope.BACKEND, f"p{index}")

    def enter() -> None:
        used(0.8, 1.0)
        assert stage.beats(400.0) == [], "it is their mean, and 0.9 is not above 0.9"
        used(0.9, 1.0)
        stage.beat()
        assert stage.beats(299.0) == []
        assert stage.tag().pools == ("p", "f", "s") and "s0" not in stage.fits()
        stage.router.forecast.served_per_second = 10.0
        [event] = stage.beat()
        assert (event.rule, event.subject) == ("kv-pressure", "p")
        assert stage.tag().pools == ("f", "p", "s")
        assert not stage.backend("s0").holds
        stage.now += 100.0
        assert [stage.objection() for _ in range(10)] == [None] * 9 + [Refusal.RATE_LIMITED]
        used(0.81, 0.81)
        assert stage.beats(400.0) == []

    assert_leaves_no_trace(stage, enter, lambda: used(0.8, 0.8), 60.0, "kv-pressure")


# --- GPU memory > 85 % while batch > 16 -> shrink --------------------------------------------------------------------------------------


def test_memory_above_85_percent_under_a_batch_above_16_halves_the_window() -> None:
    stage = stage_of()

    def batch(running: int) -> None:
        stage.told(Metric.ENGINE_RUNNING, running, Scope.BACKEND, "p0")

    memory(stage, 0.86)
    batch(16)
    stage.beats(60.0)
    assert ("memory-full", "p0") not in stage.active() and stage.fits()["p0"] == 15
    batch(17)
    stage.beat()
    assert ("memory-full", "p0") in stage.active() and stage.fits()["p0"] == 10
    batch(9)
    stage.beats(60.0)
    assert stage.fits()["p0"] == 10, "its own action halves the batch"
    batch(8)
    stage.beat(0.0)
    stage.beats(29.0)
    assert stage.fits()["p0"] == 10
    stage.beat()
    assert stage.fits()["p0"] == 15


# --- memory policy: above 80 % -> 0.75, above 60 % -> 0.85, else 0.9 ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "share"),
    [(0.0, 0.9), (0.3, 0.9), (0.6, 0.9), (0.61, 0.85), (0.8, 0.85), (0.81, 0.75), (1.0, 0.75)],
)
def test_the_memory_that_is_used_says_how_much_of_the_window_is(used: float, share: float) -> None:
    stage = stage_of()
    assert stage.fits() == {"p0": 20, "p1": 20}, "nothing is taken for memory that nobody tells of"
    memory(stage, used)
    stage.beat()
    assert stage.fits() == {"p0": int(20 * share), "p1": 20}


def test_the_memory_policy_steps_back_below_its_thresholds_and_leaves_no_trace_once_memory_is_unknown() -> (
    None
):
    stage = stage_of()
    before = stage.trace()
    memory(stage, 0.9)
    stage.beat()
    memory(stage, 0.78)
    stage.beats(100.0)
    assert stage.fits()["p0"] == 15
    memory(stage, 0.77)
    stage.beats(31.0)
    assert stage.fits()["p0"] == 17
    memory(stage, 0.575)
    stage.beats(100.0)
    assert stage.fits()["p0"] == 17
    memory(stage, 0.57)
    stage.beats(31.0)
    assert stage.fits()["p0"] == 18
    gpu(stage, Metric.GPU_MEMORY_USED_RATIO, None)
    events = stage.beats(31.0)
    assert stage.trace() == before
    assert [(event.rule, event.value, event.cause) for event in events] == [
        ("memory-baseline", None, RuleCause.UNKNOWN)
    ]


# --- all of them ------------------------------------------------------------------------------------------------------------------------


def test_nothing_that_is_unknown_makes_any_of_them_hold() -> None:
    stage = stage_of(pool("f", PoolTag.FALLBACK), pool("s", PoolTag.STANDBY))
    before = stage.trace()
    assert stage.beats(1000.0, 5.0) == [] and not stage.active()
    assert stage.trace() == before
    assert not stage.router.degradation.known


def test_all_of_them_together_add_up_in_a_predictable_way() -> None:
    stage = stage_of(pool("f", PoolTag.FALLBACK), pool("s", PoolTag.STANDBY))
    memory(stage, 0.9)
    gpu(stage, Metric.GPU_TEMPERATURE_CELSIUS, 90.0, "p1")
    hits(stage, 0.1)
    stage.told(Metric.ENGINE_RUNNING, 30.0, Scope.BACKEND, "p0")
    stage.told(Metric.KV_USAGE_RATIO, 0.95, Scope.BACKEND, "p0")
    stage.beats(302.0)
    effects = stage.router.degradation.effects
    assert effects.window_shares == (("p0", 0.5),)
    assert effects.held == {"p1"}
    assert effects.closes_cold_path and effects.prefers_fallback and effects.activates_standby
    assert effects.requests_per_second == 9.0
    assert stage.objection(COLD) is Refusal.COLD_PATH_CLOSED
    assert stage.objection(COLD._replace(lane=Lane.EMERGENCY)) is None


def test_each_has_a_way_back_words_a_runbook_and_a_name_of_its_own() -> None:
    assert len({rule.name for rule in DEFAULT_RULES}) == len(DEFAULT_RULES) == 9
    for rule in DEFAULT_RULES:
        assert rule.clear_threshold is None or may_clear_at(
            rule.operator, rule.threshold, rule.clear_threshold
        )
        assert (
            rule.clear_threshold != rule.threshold and rule.clear_threshold is not None
        ) or rule.threshold == 0.0
        assert rule.clear_seconds > 0 and rule.min_hold_seconds > 0
        assert rule.description and rule.runbook.startswith("deploy/runbooks/") and rule.actions
        assert (rule.aggregate is Aggregate.LAST) is not (rule.name == "kv-pressure")
