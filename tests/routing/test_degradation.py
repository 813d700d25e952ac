"""All rules together: subjects, values that are put together, forces, events, a new configuration, the ladder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.degradation import Aggregate, Condition, Operator
from policies.degradation_actions import NO_EFFECTS
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolTag
from policies.rule_events import RuleCause, RuleEvent, Severity
from policies.terms import Lane, Refusal
from routing.backend import Hold
from routing.ladder import ladder_rules, level_of
from routing.rule_forces import MAX_AUDITED
from tests.routing.reachable import entries
from tests.routing.rule_stage import HOT, LANES, Stage, pool, rule

HOLD = rule("hold", scope=Scope.BACKEND)
CLOSE = rule("close_cold_path", name="close")


def busy(stage: Stage, value: float | None, backend: str = "p0") -> None:
    stage.told(Metric.GPU_UTILISATION_RATIO, value, Scope.BACKEND, backend)


# --- readings ---------------------------------------------------------------------------------------------------------------------


def test_each_subject_has_a_state_of_its_own() -> None:
    stage = Stage(pool("p", backends=3), rules=[HOLD])
    busy(stage, 0.9, "p0")
    busy(stage, 0.9, "p2")
    stage.beat()
    assert stage.active() == {("r", "p0"), ("r", "p2")}
    busy(stage, 0.1, "p0")
    stage.beat()
    assert stage.active() == {("r", "p2")} and set(stage.fits()) == {"p0", "p1"}


@pytest.mark.parametrize(
    ("aggregate", "threshold"), [("mean", 0.6), ("min", 0.2), ("max", 1.0), ("sum", 1.2)]
)
def test_a_value_of_a_pool_or_the_fleet_is_put_together_from_backends_that_have_one(
    aggregate: str, threshold: float
) -> None:
    for scope, subject in ((Scope.POOL, "p"), (Scope.FLEET, "")):
        one = replace(CLOSE, metric=Metric.KV_USAGE_RATIO, scope=scope, aggregate=Aggregate(aggregate))
        stage = Stage(
            pool("p", backends=3),
            rules=[
                replace(one, name="at", threshold=threshold),
                replace(one, name="below", threshold=threshold - 0.01),
            ],
        )
        stage.told(Metric.KV_USAGE_RATIO, 0.2, Scope.BACKEND, "p0")
        stage.told(Metric.KV_USAGE_RATIO, 1.0, Scope.BACKEND, "p2")
        stage.beat()
        assert stage.active() == {("below", subject)}


def test_who_is_on_standby_counts_only_while_it_is_used() -> None:
    low = rule(
        "close_cold_path",
        "activate_standby",
        metric=Metric.GPU_MEMORY_USED_RATIO,
        aggregate=Aggregate.MEAN,
        threshold=0.5,
    )
    stage = Stage(pool("p"), pool("s", PoolTag.STANDBY), rules=[low])
    stage.told(Metric.GPU_MEMORY_USED_RATIO, 0.6, Scope.BACKEND, "p0")
    stage.told(Metric.GPU_MEMORY_USED_RATIO, 0.0, Scope.BACKEND, "s0")
    stage.beat()
    assert stage.active() == {("r", "")}
    stage.beat()
    assert not stage.active(), "once it is used its value counts"


def test_a_second_condition_of_a_backends_rule_may_be_about_its_pool_or_the_fleet() -> None:
    in_pool = replace(HOLD, name="pool", only_while=Condition(Metric.BATCH_IDLE_RATIO, Operator.ABOVE, 0.5))
    in_fleet = replace(HOLD, name="fleet", only_while=Condition(Metric.SHED_RATIO, Operator.ABOVE, 0.5))
    own = replace(HOLD, name="own", only_while=Condition(Metric.ENGINE_RUNNING, Operator.ABOVE, 0.5))
    stage = Stage(pool("p"), pool("q"), rules=[in_pool, in_fleet, own])
    for backend in ("p0", "q0"):
        busy(stage, 0.9, backend)
    stage.beat()
    assert not stage.active()
    stage.told(Metric.BATCH_IDLE_RATIO, 0.9, Scope.POOL, "q")
    stage.told(Metric.ENGINE_RUNNING, 3.0, Scope.BACKEND, "p0")
    stage.beat()
    assert stage.active() == {("pool", "q0"), ("own", "p0")}
    stage.told(Metric.SHED_RATIO, 0.9)
    stage.beat()
    assert stage.active() == {("pool", "q0"), ("own", "p0"), ("fleet", "p0"), ("fleet", "q0")}


def test_samples_in_a_row_are_told_apart_by_their_time_and_not_by_their_value() -> None:
    stage = Stage(rules=[replace(HOLD, samples=3)])
    for _ in range(2):
        busy(stage, 0.9)
        stage.beats(5.0)
    assert not stage.active()
    busy(stage, 0.9)
    stage.beat()
    assert stage.active() == {("r", "p0")}


def test_a_value_that_is_put_together_is_another_sample_once_one_of_its_backends_tells() -> None:
    one = replace(CLOSE, metric=Metric.KV_USAGE_RATIO, aggregate=Aggregate.MAX, samples=3)
    stage = Stage(rules=[one])
    for backend in ("p0", "p1", "p0"):
        assert not stage.active()
        stage.told(Metric.KV_USAGE_RATIO, 0.9, Scope.BACKEND, backend)
        stage.beats(3.0)
    assert stage.active() == {("close", "")}


def test_what_a_backend_tells_between_beats_concerns_its_own_rules_alone_and_counts_as_one_sample() -> None:
    stage = Stage(rules=[replace(HOLD, samples=2), CLOSE])
    stage.told(Metric.SATURATION_RATIO, 0.9)
    busy(stage, 0.9)
    told = stage.router.degradation.told
    assert told(stage.backend("p0").id, stage.now) == []
    assert told(stage.backend("p0").id, stage.now) == []
    [event] = stage.beat()
    assert event.rule == "close"
    busy(stage, 0.9)
    [event] = told(stage.backend("p0").id, stage.now)
    assert (event.rule, event.subject) == ("r", "p0") and stage.backend("p0").is_blocked


# --- events -------------------------------------------------------------------------------------------------------------------------


def test_a_change_of_state_is_told_once_with_all_that_is_known_of_it() -> None:
    stage = Stage(rules=[replace(HOLD, severity=Severity.CRITICAL)])
    assert stage.beats(5.0) == []
    busy(stage, 0.9)
    [event] = stage.beats(5.0)
    assert event == RuleEvent(
        "r", Scope.BACKEND, "p0", Severity.CRITICAL, True, "gpu_utilisation_ratio", 0.9, 0.5, ("hold",),
        RuleCause.METRIC, 6.0,
    )  # fmt: skip
    busy(stage, 0.3)
    [event] = stage.beats(5.0)
    assert (event.is_active, event.value, event.cause, event.at) == (False, 0.3, RuleCause.METRIC, 11.0)
    transitions = stage.router.degradation.transitions
    assert (transitions["r", True], transitions["r", False]) == (1, 1)


def test_a_rule_that_lets_go_because_nothing_is_known_any_more_says_so_and_not_before_its_clear_time() -> (
    None
):
    stage = Stage(rules=[replace(HOLD, clear_seconds=30.0)])
    busy(stage, 0.9)
    stage.beat()
    busy(stage, None)
    stage.beat()
    assert stage.beats(29.0) == [] and set(stage.fits()) == {"p1"}
    [event] = stage.beat()
    assert (event.is_active, event.value, event.cause) == (False, None, RuleCause.UNKNOWN)


def test_a_second_condition_that_is_not_known_any_more_is_said_too() -> None:
    stage = Stage(rules=[replace(HOLD, only_while=Condition(Metric.ENGINE_RUNNING, Operator.ABOVE, 1.0))])
    busy(stage, 0.9)
    stage.told(Metric.ENGINE_RUNNING, 5.0, Scope.BACKEND, "p0")
    stage.beat()
    stage.told(Metric.ENGINE_RUNNING, None, Scope.BACKEND, "p0")
    [event] = stage.beat()
    assert (event.value, event.cause) == (0.9, RuleCause.UNKNOWN)


def test_known_are_rules_of_which_some_subject_told_all_at_the_last_beat() -> None:
    also = replace(HOLD, name="also", only_while=Condition(Metric.ENGINE_RUNNING, Operator.ABOVE, 1.0))
    stage = Stage(rules=[HOLD, also, CLOSE])
    busy(stage, 0.0)
    stage.beat()
    assert stage.router.degradation.known == {"r"}
    stage.told(Metric.ENGINE_RUNNING, 0.0, Scope.BACKEND, "p0")
    stage.beat()
    assert stage.router.degradation.known == {"r", "also"}
    busy(stage, None)
    stage.beat()
    assert stage.router.degradation.known == set()


# --- several ------------------------------------------------------------------------------------------------------------------------


def test_of_several_rules_the_strictest_counts_and_each_leaves_only_what_was_its_own() -> None:
    names = {"three quarters": 0.75, "half": 0.5, "a quarter": 0.25}
    rules = [
        replace(rule(f"window_share {share}", name=name, scope=Scope.BACKEND), threshold=share)
        for name, share in names.items()
    ]
    stage = Stage(rules=rules)
    for value, slots in ((0.9, 2), (0.6, 2), (0.3, 2), (0.2, 8), (0.8, 2), (0.0, 8)):
        busy(stage, value)
        stage.beat()
        assert stage.fits()["p0"] == slots, value


def test_two_rules_that_hold_one_backend_free_it_when_both_have_let_go() -> None:
    stage = Stage(rules=[HOLD, replace(HOLD, name="s", metric=Metric.GPU_MEMORY_USED_RATIO)])
    busy(stage, 0.9)
    stage.told(Metric.GPU_MEMORY_USED_RATIO, 0.9, Scope.BACKEND, "p0")
    stage.beat()
    busy(stage, 0.1)
    stage.beat()
    assert stage.backend("p0").is_blocked
    stage.told(Metric.GPU_MEMORY_USED_RATIO, 0.1, Scope.BACKEND, "p0")
    stage.beat()
    assert not stage.backend("p0").is_blocked


def test_a_rule_touches_no_hold_that_is_not_its_own() -> None:
    stage = Stage(rules=[HOLD])
    backend = stage.backend("p0")
    stage.router.fleet.hold(backend, Hold.OPERATOR)
    for value in (0.9, 0.1):
        busy(stage, value)
        stage.beat()
    assert backend.holds == {Hold.OPERATOR}


# --- forces -------------------------------------------------------------------------------------------------------------------------


def force(
    stage: Stage, name: str, is_on: bool, seconds: float = 60.0, subject: str | None = None
) -> list[RuleEvent]:
    return stage.router.degradation.force(name, subject, is_on, stage.now + seconds, "ann", stage.now)


def test_a_rule_forced_on_acts_at_once_and_ends_by_itself() -> None:
    stage = Stage(rules=[CLOSE])
    before = stage.trace()
    [event] = stage.router.degradation.force("close", None, True, 60.0, "ann", 0.4)
    assert (event.is_active, event.cause, event.at) == (True, RuleCause.OPERATOR, 0.4)
    assert stage.router.degradation.effects.closes_cold_path
    assert stage.beats(59.0) == []
    [event] = stage.beat()
    assert (event.is_active, event.cause) == (False, RuleCause.OPERATOR)
    assert stage.trace() == before
    assert [entry[2:] for entry in stage.router.degradation.forces.trail] == [
        (None, "on", "ann", 60.0),
        (None, "expired", "ann", None),
    ]


def test_a_rule_forced_off_does_nothing_while_its_metric_is_followed_and_holds_when_the_force_ends() -> None:
    stage = Stage(rules=[HOLD])
    busy(stage, 0.9)
    stage.beat()
    [event] = force(stage, "r", False, 60.0)
    assert (event.subject, event.is_active, event.cause) == ("p0", False, RuleCause.OPERATOR)
    assert not stage.backend("p0").holds
    assert stage.beats(59.0) == []
    [event] = stage.beat()
    assert (event.is_active, event.cause) == (True, RuleCause.OPERATOR)
    assert stage.backend("p0").is_blocked


def test_a_force_of_one_subject_leaves_the_others_and_beats_one_of_all() -> None:
    stage = Stage(pool("p", backends=3), rules=[HOLD])
    force(stage, "r", True, subject="p1")
    assert stage.active() == {("r", "p1")}
    force(stage, "r", False)
    assert not stage.active(), "what is said of all takes the place of what was said of one"
    force(stage, "r", True, subject="p2")
    assert stage.active() == {("r", "p2")}
    stage.router.degradation.unforce("r", "p2", "bob", stage.now)
    assert not stage.active()
    busy(stage, 0.9)
    stage.beat()
    assert not stage.active(), "it is still forced off"
    events = stage.router.degradation.unforce("r", None, "bob", stage.now + 0.5)
    assert stage.active() == {("r", "p0")} and [event.at for event in events] == [stage.now + 0.5]


def test_the_trail_is_bounded_and_counts_on() -> None:
    stage = Stage(rules=[CLOSE])
    for _ in range(MAX_AUDITED + 20):
        force(stage, "close", True)
    forces = stage.router.degradation.forces
    assert (len(forces.trail), forces.audited) == (MAX_AUDITED, MAX_AUDITED + 20)


def test_forces_that_come_and_go_leave_nothing_but_the_trail() -> None:
    stage = Stage(rules=[HOLD])

    def once() -> None:
        force(stage, "r", True, 1.0, "p0")
        stage.beat()

    for _ in range(MAX_AUDITED):
        once()
    before = entries(stage.router.degradation)
    for _ in range(MAX_AUDITED):
        once()
    assert entries(stage.router.degradation) == before


# --- another configuration -------------------------------------------------------------------------------------------------------------


def test_a_rule_that_stays_goes_on_and_one_that_changed_or_went_ends_and_is_told_of() -> None:
    changes = replace(HOLD, name="changes")
    goes = rule("close_cold_path", name="goes")
    stage = Stage(rules=[HOLD, changes, goes])
    busy(stage, 0.9)
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.beat()
    force(stage, "goes", True)
    stage.configure([HOLD, replace(changes, threshold=0.95)])
    assert stage.active() == {("r", "p0")}
    assert not stage.router.degradation.effects.closes_cold_path
    events = stage.beat()
    assert {(event.rule, event.is_active, event.cause) for event in events} == {
        ("changes", False, RuleCause.OPERATOR),
        ("goes", False, RuleCause.OPERATOR),
    }
    assert [entry.what for entry in stage.router.degradation.forces.trail] == ["on", "released"]


def test_nothing_is_told_of_a_rule_that_goes_and_did_not_hold() -> None:
    stage = Stage(rules=[HOLD, CLOSE])
    stage.beat()
    stage.configure([CLOSE])
    assert stage.beat() == [] and not stage.router.degradation.transitions


def test_a_force_goes_on_over_a_new_configuration_that_has_its_rule_and_subject() -> None:
    stage = Stage(rules=[HOLD, replace(HOLD, name="s")])
    force(stage, "r", True, subject="p0")
    force(stage, "s", True)
    stage.configure([replace(HOLD, threshold=0.7), replace(HOLD, name="s", threshold=0.7)])
    stage.beat()
    assert stage.active() == {("r", "p0"), ("s", "p0"), ("s", "p1")}
    stage.pools = (pool("q"),)
    stage.configure([HOLD, replace(HOLD, name="s")])
    assert stage.active() == {("s", "q0")}
    assert [entry[1:4] for entry in stage.router.degradation.forces.trail][-1] == ("r", "p0", "released")


def test_configurations_that_replace_each_other_leave_nothing() -> None:
    stage = Stage(rules=[HOLD])
    sizes = []
    for threshold in (0.6, 0.7, 0.8, 0.9):
        busy(stage, 0.95)
        stage.configure([replace(HOLD, threshold=threshold)])
        stage.beat()
        sizes.append(entries(stage.router.degradation))
    assert sizes[1] == sizes[2] == sizes[3]


def test_a_backend_that_comes_has_its_rules_and_one_that_goes_takes_them_along() -> None:
    stage = Stage(pool("p", backends=2), rules=[HOLD])
    busy(stage, 0.9, "p1")
    stage.beat()
    force(stage, "r", True, subject="p1")
    stage.pools = (pool("p", backends=1),)
    stage.configure([HOLD])
    assert not stage.active()
    [event] = stage.beat()
    assert (event.subject, event.is_active) == ("p1", False)
    stage.pools = (pool("p", backends=3),)
    stage.configure([HOLD])
    busy(stage, 0.9, "p2")
    busy(stage, 0.1, "p1")
    stage.beat()
    assert stage.active() == {("r", "p2")}
    assert stage.router.degradation.told(stage.backend("p2").id, stage.now) == []


def test_a_backend_that_changes_its_pool_is_what_the_rules_of_its_new_pool_ask_for() -> None:
    stage = Stage(pool("p", backends=1), pool("s", PoolTag.STANDBY), rules=[])
    assert stage.backend("s0").holds == {Hold.STANDBY}
    spare, (plan,) = pool("s", PoolTag.STANDBY)
    first, plans = pool("p", backends=1)
    stage.pools = ((first, [*plans, replace(plan, pool=first.facts.name)]), (spare, []))
    stage.configure([])
    assert not stage.backend("s0").holds and set(stage.fits()) == {"p0", "s0"}


def test_without_rules_there_is_nothing() -> None:
    stage = Stage(rules=[HOLD])
    busy(stage, 0.9)
    stage.beat()
    stage.configure([])
    assert stage.router.degradation.effects == NO_EFFECTS and list(stage.router.degradation) == []
    assert stage.router.degradation.told(stage.backend("p0").id, stage.now) == []


# --- the ladder -------------------------------------------------------------------------------------------------------------------------


def level(stage: Stage) -> int:
    levels = [one.level for one in stage.router.degradation if one.is_active]
    assert levels == list(range(1, len(levels) + 1)), "a level does all that those below it do"
    return len(levels)


def let_in(stage: Stage) -> list[Lane]:
    return [lane for lane in LANES if stage.objection(HOT._replace(lane=lane)) is not Refusal.LANE_REFUSED]


def test_each_level_adds_its_actions_and_takes_them_back() -> None:
    stage = Stage(pool("p", backends=4), pool("f", PoolTag.FALLBACK), ladder=True)
    stage.beat()
    before = stage.trace()
    effects = stage.router.degradation

    def clamps() -> list[Lane]:
        assert all(tokens is None for _, tokens in effects.effects.clamps)
        return [lane for lane, _ in effects.effects.clamps]

    stage.told(Metric.OPEN_RATIO, 0.8)
    stage.beat()
    assert level(stage) == 1 and effects.effects.has_no_lending
    assert clamps() == [Lane.BATCH] and effects.effects.batch_shares == (("f", 0.6), ("p", 0.6))
    assert not effects.effects.batch_is_cold and effects.level == 1
    stage.beats(2.0)
    assert level(stage) == 2 and clamps() == [Lane.STANDARD, Lane.BATCH]
    assert effects.effects.batch_is_cold and effects.effects.has_no_optional_work
    assert not effects.effects.sheds_over_share
    stage.beats(2.0)
    assert level(stage) == 3 and let_in(stage) == [Lane.EMERGENCY, Lane.INTERACTIVE, Lane.STANDARD]
    assert effects.effects.has_no_retries and stage.tag().pools[0] == "f"
    stage.beats(2.0)
    assert level(stage) == 4 and let_in(stage) == [Lane.EMERGENCY, Lane.INTERACTIVE]
    assert effects.effects.sheds_over_share and effects.level == 4
    stage.told(Metric.OPEN_RATIO, 0.9)
    stage.beats(2.0)
    assert level(stage) == 5 and let_in(stage) == [Lane.EMERGENCY]
    stage.told(Metric.OPEN_RATIO, 0.0)
    stage.beat()
    for below, seconds in ((4, 60), (3, 60), (2, 60), (1, 30), (0, 15)):
        stage.beats(seconds - 1.0)
        assert level(stage) == below + 1
        stage.beat()
        assert level(stage) == below
    assert stage.trace() == before


@pytest.mark.parametrize(
    ("metric", "at", "beyond", "seconds", "reached"),
    [
        (Metric.STANDING_QUEUE, 0.0, 1.0, 5.0, 1),
        (Metric.SATURATION_RATIO, 0.85, 0.86, 5.0, 1),
        (Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET, 1.2, 1.21, 5.0, 2),
        (Metric.SHED_RATIO, 0.1, 0.11, 10.0, 3),
        (Metric.INTERACTIVE_SHED_RATIO, 0.1, 0.11, 10.0, 4),
        (Metric.OPEN_RATIO, 0.24, 0.25, 0.0, 2),
        (Metric.OPEN_RATIO, 0.49, 0.5, 0.0, 3),
        (Metric.OPEN_RATIO, 0.74, 0.75, 0.0, 5),
    ],
)
def test_a_level_is_wanted_once_one_of_its_conditions_has_held_for_its_time(
    metric: Metric, at: float, beyond: float, seconds: float, reached: int
) -> None:
    stage = Stage(pool("p", backends=4), ladder=True)
    stage.told(metric, at)
    stage.beats(30.0)
    below = level(stage)
    assert below < reached
    stage.told(metric, beyond)
    stage.beat()
    if seconds:
        stage.beats(seconds - 1.0)
        assert level(stage) == below
        stage.beat()
    assert level(stage) == below + 1
    stage.beats(30.0)
    assert level(stage) == reached


def test_what_is_not_known_holds_no_level() -> None:
    stage = Stage(ladder=True)
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.beats(10.0)
    assert level(stage) == 1
    stage.told(Metric.SATURATION_RATIO, None)
    [event] = stage.beats(16.0)
    assert level(stage) == 0 and event.cause is RuleCause.METRIC, "the ladder has more than one metric"


def test_a_break_in_a_condition_begins_its_time_anew_and_so_does_a_ladder_that_is_put_up_again() -> None:
    stage = Stage(ladder=True)
    for _ in range(3):
        stage.told(Metric.SATURATION_RATIO, 0.9)
        stage.beats(5.0)
        assert level(stage) == 0
        stage.told(Metric.SATURATION_RATIO, 0.1)
        stage.beat()
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.beats(6.0)
    assert level(stage) == 1
    stage.configure([], ladder=False)
    stage.configure([], ladder=True)
    stage.beats(5.0)
    assert level(stage) == 0
    stage.beat()
    assert level(stage) == 1


def test_levels_are_shown_as_rules_with_what_they_go_by() -> None:
    rules = ladder_rules()
    assert [(one.name, one.severity, one.threshold, one.for_seconds) for one in rules] == [
        ("ladder-1", Severity.WARNING, 0.5, 5.0),
        ("ladder-2", Severity.WARNING, 1.2, 5.0),
        ("ladder-3", Severity.WARNING, 0.1, 10.0),
        ("ladder-4", Severity.CRITICAL, 0.1, 10.0),
        ("ladder-5", Severity.CRITICAL, 1.0, 0.0),
    ]
    assert [level_of(one) for one in rules] == [1, 2, 3, 4, 5]
    names = ("5", "ladder-", "ladder-6", "ladder-x", "gpu-hot")
    assert [level_of(replace(HOLD, name=name)) for name in names] == [0] * 5


def test_all_but_one_are_those_that_are_not_on_standby() -> None:
    stage = Stage(pool("p", backends=3), pool("s", PoolTag.STANDBY, backends=5), ladder=True)
    stage.told(Metric.OPEN_RATIO, 2 / 3)
    stage.beats(12.0)
    assert level(stage) == 5


def test_a_level_can_be_forced_on_and_off() -> None:
    stage = Stage(ladder=True)
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.beats(10.0)
    events = force(stage, "ladder-4", True, 5.0)
    assert level(stage) == 4 and {event.cause for event in events} == {RuleCause.OPERATOR}
    stage.beats(5.0)
    assert level(stage) == 1
    force(stage, "ladder-1", False)
    assert level(stage) == 0
    stage.router.degradation.unforce("ladder-1", None, "ann", stage.now)
    assert level(stage) == 1


def test_a_scale_stretches_the_ladders_times_and_without_it_there_are_no_levels() -> None:
    stage = Stage(ladder=True, time_scale=10.0)
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.beats(50.0)
    assert level(stage) == 0
    stage.beat()
    assert level(stage) == 1
    stage.configure([], ladder=False)
    assert not stage.active() and stage.router.degradation.effects == NO_EFFECTS


def test_a_second_condition_that_nobody_measures_there_never_holds() -> None:
    also = Condition(Metric.GPU_TEMPERATURE_CELSIUS, Operator.ABOVE, 0.0)
    stage = Stage(rules=[replace(CLOSE, only_while=also)])
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.told(Metric.GPU_TEMPERATURE_CELSIUS, 90.0)
    stage.beats(10.0)
    assert not stage.active()


def test_the_instances_of_a_rule_are_its_subjects() -> None:
    stage = Stage(pool("p", backends=2), rules=[HOLD, CLOSE])
    of = stage.router.degradation.instances
    assert [one.subject for one in of("r")] == ["p0", "p1"]
    assert [one.subject for one in of("close")] == [""]
    assert of("who") == []


def test_it_is_known_whether_a_release_would_take_anything_back() -> None:
    stage = Stage(pool("p", backends=2), rules=[HOLD, CLOSE])
    degradation = stage.router.degradation
    has = degradation.forces.has
    assert not has("r", None) and not has("r", "p0")
    degradation.force("r", "p0", True, 100.0, "me", stage.now)
    assert has("r", None) and has("r", "p0")
    assert not has("r", "p1") and not has("close", None)
    degradation.unforce("r", "p0", "me", stage.now)
    assert not has("r", None)
