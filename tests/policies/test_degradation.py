"""When a rule takes hold and lets go, one reading after the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.degradation import (
    IDLE,
    Aggregate,
    Condition,
    Operator,
    Phase,
    Rule,
    State,
    aggregated,
    is_beyond,
    is_composed,
    is_own,
    may_clear_at,
    scaled,
    scope_of_while,
    step,
)
from policies.degradation_actions import CloseColdPath
from policies.metric_catalogue import SCOPES, Metric, Scope

HOT = Rule("hot", Metric.GPU_TEMPERATURE_CELSIUS, Scope.BACKEND, Operator.ABOVE, 85.0, (CloseColdPath(),))
Reading = tuple[float, float | None]


def course(rule: Rule, *readings: Reading, while_value: float | None = None) -> list[Phase]:
    """Its phase after each reading (now, value)."""
    state, phases = IDLE, []
    for now, value in readings:
        state = step(state, value, while_value, now, rule)
        phases.append(state.phase)
    return phases


OFF, PENDING, ON, CLEARING = Phase.INACTIVE, Phase.PENDING, Phase.ACTIVE, Phase.CLEARING


@pytest.mark.parametrize(
    ("operator", "below", "at", "above"),
    [
        (Operator.ABOVE, False, False, True),
        (Operator.AT_LEAST, False, True, True),
        (Operator.BELOW, True, False, False),
        (Operator.AT_MOST, True, True, False),
    ],
)
def test_beyond_is_what_the_operator_says_and_never_what_is_not_known(
    operator: Operator, below: bool, at: bool, above: bool
) -> None:
    assert [is_beyond(value, operator, 1.0) for value in (0.9, 1.0, 1.1)] == [below, at, above]
    assert not is_beyond(None, operator, 1.0)


def test_it_takes_hold_at_once_above_the_threshold_and_not_at_it() -> None:
    assert course(HOT, (0, 85.0), (1, 85.1)) == [OFF, ON]


def test_it_takes_hold_once_it_has_been_beyond_for_so_long_and_a_break_begins_anew() -> None:
    rule = replace(HOT, for_seconds=10.0)
    assert course(rule, (0, 90.0), (9.9, 90.0), (10.0, 90.0)) == [PENDING, PENDING, ON]
    assert course(rule, (0, 90.0), (9, 80.0), (10, 90.0), (19, 90.0), (20, 90.0)) == [
        PENDING,
        OFF,
        PENDING,
        PENDING,
        ON,
    ]


def test_it_takes_hold_after_so_many_samples_in_a_row_however_long_they_take() -> None:
    rule = replace(HOT, samples=3)
    assert course(rule, (0, 90.0), (1000, 91.0), (1000, 92.0)) == [PENDING, PENDING, ON]
    assert course(rule, (0, 90.0), (1, 91.0), (2, 80.0), (3, 90.0), (4, 90.0)) == [
        PENDING,
        PENDING,
        OFF,
        PENDING,
        PENDING,
    ]


def test_a_sample_that_is_read_twice_counts_once() -> None:
    rule, state = replace(HOT, samples=2), IDLE
    for _ in range(5):
        state = step(state, 90.0, None, 0.0, rule, is_new=False)
    assert state == State(PENDING, 0.0, 1)
    assert step(state, 90.0, None, 1.0, rule, is_new=True).is_active


def test_it_lets_go_beyond_the_clear_threshold_after_its_clear_time_and_a_relapse_begins_anew() -> None:
    rule = replace(HOT, clear_threshold=80.0, clear_seconds=30.0, min_hold_seconds=0.0)
    assert course(rule, (0, 90.0), (100, 80.1), (200, 80.1)) == [ON, ON, ON]
    assert course(rule, (0, 90.0), (1, 80.0), (30.9, 79.0), (31, 79.0)) == [ON, CLEARING, CLEARING, OFF]
    assert course(rule, (0, 90.0), (1, 79.0), (20, 82.0), (21, 79.0), (50, 79.0), (51, 79.0)) == [
        ON,
        CLEARING,
        ON,
        CLEARING,
        CLEARING,
        OFF,
    ]


def test_without_a_clear_threshold_it_lets_go_at_the_threshold() -> None:
    rule = replace(HOT, clear_seconds=0.0, min_hold_seconds=0.0)
    assert course(rule, (0, 85.1), (1, 85.0)) == [ON, OFF]


def test_it_holds_for_a_least_time_though_it_is_clear_earlier() -> None:
    rule = replace(HOT, clear_seconds=1.0, min_hold_seconds=60.0)
    assert course(rule, (0, 90.0), (1, 20.0), (59.9, 20.0), (60, 20.0)) == [ON, CLEARING, CLEARING, OFF]
    state = step(IDLE, 90.0, None, 5.0, rule)
    relapsed = step(step(state, 20.0, None, 6.0, rule), 90.0, None, 7.0, rule)
    assert relapsed.held_since == 5.0, "a relapse is one hold with what was before"


@pytest.mark.parametrize("operator", [Operator.BELOW, Operator.AT_MOST])
def test_what_is_not_known_is_no_zero_of_a_rule_that_a_low_value_triggers(operator: Operator) -> None:
    rule = replace(HOT, operator=operator, threshold=60.0)
    assert course(rule, (0, None), (1, None), (2, 0.0)) == [OFF, OFF, ON]


def test_what_is_not_known_ends_a_streak_and_keeps_a_hold_for_its_clear_time_alone() -> None:
    assert course(replace(HOT, for_seconds=10.0), (0, 90.0), (5, None), (10, 90.0), (15, 90.0)) == [
        PENDING,
        OFF,
        PENDING,
        PENDING,
    ]
    rule = replace(HOT, clear_seconds=30.0)
    assert course(rule, (0, 90.0), (1, None), (30, None), (31, None)) == [ON, CLEARING, CLEARING, OFF]
    assert course(rule, (0, 90.0), (1, None), (30, 90.0), (59, None)) == [ON, CLEARING, ON, CLEARING]


def test_a_second_condition_has_to_hold_too_with_thresholds_of_its_own() -> None:
    also = Condition(Metric.ENGINE_RUNNING, Operator.ABOVE, 16.0, 8.0)
    rule = replace(HOT, only_while=also, clear_seconds=0.0, min_hold_seconds=0.0)
    assert not step(IDLE, 90.0, 16.0, 0.0, rule).is_active
    assert not step(IDLE, 90.0, None, 0.0, rule).is_active
    held = step(IDLE, 90.0, 17.0, 0.0, rule)
    assert held.is_active and step(held, 90.0, 9.0, 1.0, rule).is_active
    assert not step(held, 90.0, 8.0, 1.0, rule).is_active
    assert not step(held, 90.0, None, 1.0, rule).is_active
    plain = replace(rule, only_while=replace(also, clear_threshold=None))
    assert not step(held, 90.0, 16.0, 1.0, plain).is_active


def test_a_state_says_since_when_it_is_in_its_phase_and_since_when_it_holds() -> None:
    rule = replace(HOT, for_seconds=2.0, clear_seconds=10.0, min_hold_seconds=0.0)
    state, found = IDLE, []
    for now, value in [
        (1, 90.0),
        (2, 90.0),
        (3, 90.0),
        (5, 90.0),
        (6, 80.0),
        (8, 80.0),
        (9, 90.0),
        (11, 90.0),
    ]:
        state = step(state, value, None, float(now), rule)
        found.append(state)
    assert found == [
        State(PENDING, 1.0, 1),
        State(PENDING, 1.0, 2),
        State(ON, 3.0, 0, 3.0),
        State(ON, 3.0, 0, 3.0),
        State(CLEARING, 6.0, 0, 3.0),
        State(CLEARING, 6.0, 0, 3.0),
        State(ON, 9.0, 0, 3.0),
        State(ON, 9.0, 0, 3.0),
    ]


@given(
    st.lists(st.tuples(st.floats(0.1, 20), st.sampled_from([None, 50.0, 82.0, 86.0, 95.0])), max_size=60),
    st.sampled_from([0.0, 7.0]),
    st.sampled_from([None, 1, 3]),
)
def test_no_course_of_readings_breaks_a_promise(
    readings: list[tuple[float, float | None]], for_seconds: float, samples: int | None
) -> None:
    rule = replace(
        HOT,
        for_seconds=for_seconds,
        samples=samples,
        clear_threshold=80.0,
        clear_seconds=5.0,
        min_hold_seconds=12.0,
    )
    state, now, beyond_since, row, held_at, clear_since = IDLE, 0.0, None, 0, 0.0, None
    for seconds, value in readings:
        now += seconds
        was, state = state, step(state, value, None, now, rule)
        row = row + 1 if value is not None and value > 85.0 else 0
        beyond_since = None if not row else now if beyond_since is None else beyond_since
        is_clear = value is None or value <= 80.0
        clear_since = None if not is_clear else now if clear_since is None else clear_since
        if state.is_active and not was.is_active:
            held_at = now
            assert beyond_since is not None
            assert row >= samples if samples is not None else now - beyond_since >= for_seconds
        if was.is_active and not state.is_active:
            assert clear_since is not None and now - clear_since >= 5.0 and now - held_at >= 12.0
        if not was.is_active and not state.is_active and beyond_since is not None:
            assert row < samples if samples is not None else now - beyond_since < for_seconds


def test_values_are_put_together_from_those_that_are_known() -> None:
    values = [1.0, 2.0, 6.0]
    by = {
        aggregate: aggregated(values, aggregate) for aggregate in Aggregate if aggregate is not Aggregate.LAST
    }
    assert by == {Aggregate.MEAN: 3.0, Aggregate.MIN: 1.0, Aggregate.MAX: 6.0, Aggregate.SUM: 9.0}
    assert all(aggregated([], aggregate) is None for aggregate in Aggregate)


@pytest.mark.parametrize("operator", list(Operator))
def test_no_value_both_takes_hold_and_lets_go(operator: Operator) -> None:
    for clear in (0.9, 1.0, 1.1):
        both = [
            value
            for value in (0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)
            if is_beyond(value, operator, 1.0) and not is_beyond(value, operator, clear)
        ]
        assert may_clear_at(operator, 1.0, clear) is not bool(both)


def test_a_metric_is_of_its_scopes_or_put_together_and_a_second_condition_looks_at_the_narrowest_that_holds_the_subject() -> (
    None
):
    temperature, hits, saturation = (
        Metric.GPU_TEMPERATURE_CELSIUS,
        Metric.CACHE_HIT_RATIO,
        Metric.SATURATION_RATIO,
    )
    assert is_own(temperature, Scope.BACKEND) and not is_own(temperature, Scope.POOL)
    assert is_composed(temperature, Scope.POOL) and is_composed(temperature, Scope.FLEET)
    assert not is_composed(temperature, Scope.BACKEND) and not is_composed(hits, Scope.FLEET)
    assert not is_composed(Metric.HOT_RATIO, Scope.POOL)
    assert scope_of_while(saturation, Scope.BACKEND) is Scope.BACKEND
    assert scope_of_while(Metric.BATCH_IDLE_RATIO, Scope.BACKEND) is Scope.POOL
    assert scope_of_while(Metric.HOT_RATIO, Scope.BACKEND) is Scope.FLEET
    assert scope_of_while(temperature, Scope.FLEET) is None
    assert SCOPES.keys() == set(Metric)


def test_a_scaled_rule_has_all_its_durations_so_many_times_as_long_and_is_the_same_otherwise() -> None:
    rule = replace(HOT, for_seconds=300.0, clear_seconds=60.0, min_hold_seconds=10.0, samples=3)
    assert scaled(rule, 0.5) == replace(rule, for_seconds=150.0, clear_seconds=30.0, min_hold_seconds=5.0)


def test_it_is_held_for_so_long_since_it_took_hold_whenever_that_was() -> None:
    rule = replace(HOT, clear_seconds=0.0, min_hold_seconds=60.0)
    assert course(rule, (1000.0, 90.0), (1001.0, 80.0), (1059.9, 80.0), (1060.0, 80.0)) == [
        ON,
        CLEARING,
        CLEARING,
        OFF,
    ]
