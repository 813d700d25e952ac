"""One level from normal to emergencies only."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.degradation import Condition, Operator
from policies.degradation_actions import (
    BatchCold,
    BatchShare,
    ClampMaxTokens,
    NoLending,
    NoOptionalWork,
    NoRetries,
    PreferFallback,
    RefuseBelow,
    ShedOverShare,
)
from policies.ladder import ALL_BUT_ONE, GROUND, LEVELS, RISE_SECONDS, Rung, climbed, pinned, threshold_of
from policies.metric_catalogue import Metric
from policies.terms import Lane

TOP = len(LEVELS)


def test_the_levels_are_those_of_the_table() -> None:
    found = [
        [(entry.condition.metric, entry.condition.operator, entry.condition.threshold, entry.for_seconds) for entry in level.entries]
        for level in LEVELS
    ]  # fmt: skip
    above, at_least, is_open = Operator.ABOVE, Operator.AT_LEAST, Metric.OPEN_RATIO
    assert found == [
        [(Metric.STANDING_QUEUE, above, 0.5, 5.0), (Metric.SATURATION_RATIO, above, 0.85, 5.0)],
        [(Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET, above, 1.2, 5.0), (is_open, at_least, 0.25, 0.0)],
        [(Metric.SHED_RATIO, above, 0.1, 10.0), (is_open, at_least, 0.5, 0.0)],
        [(Metric.INTERACTIVE_SHED_RATIO, above, 0.1, 10.0), (is_open, at_least, 0.75, 0.0)],
        [(is_open, at_least, ALL_BUT_ONE, 0.0)],
    ]
    assert [level.clear_seconds for level in LEVELS] == [15.0, 30.0, 60.0, 60.0, 60.0]
    assert [level.actions for level in LEVELS] == [
        (ClampMaxTokens(Lane.BATCH), NoLending(), BatchShare(0.6)),
        (ClampMaxTokens(Lane.STANDARD), BatchCold(), NoOptionalWork()),
        (RefuseBelow(Lane.STANDARD), PreferFallback(), NoRetries()),
        (RefuseBelow(Lane.INTERACTIVE), ShedOverShare()),
        (RefuseBelow(Lane.EMERGENCY),),
    ]


def test_it_rises_by_one_level_at_a_time_and_every_two_seconds_at_most() -> None:
    rung = climbed(GROUND, 3, 10.0, 1.0)
    assert rung.level == 1
    assert climbed(rung, 3, 11.9, 1.0).level == 1
    rung = climbed(rung, 3, 12.0, 1.0)
    assert rung.level == 2
    assert climbed(rung, 3, 14.0, 1.0).level == 3
    assert climbed(climbed(rung, 3, 14.0, 1.0), 3, 99.0, 1.0).level == 3


def test_it_falls_by_one_level_after_the_levels_own_clear_time_and_a_relapse_begins_anew() -> None:
    rung = Rung(3, 0.0)
    rung = climbed(rung, 1, 100.0, 1.0)
    assert climbed(rung, 1, 159.9, 1.0).level == 3
    relapsed = climbed(rung, 3, 159.9, 1.0)
    assert climbed(climbed(relapsed, 0, 160.0, 1.0), 0, 219.9, 1.0).level == 3
    rung = climbed(rung, 1, 160.0, 1.0)
    assert rung.level == 2
    assert climbed(rung, 1, 189.9, 1.0).level == 2
    rung = climbed(rung, 1, 190.0, 1.0)
    assert (rung.level, climbed(rung, 1, 999.0, 1.0).level) == (1, 1)
    rung = climbed(rung, 0, 999.0, 1.0)
    assert climbed(rung, 0, 1014.0, 1.0).level == 0


def test_while_a_higher_level_is_wanted_nothing_is_counted_towards_a_fall() -> None:
    rung = climbed(Rung(2, 100.0, 90.0), 3, 101.0, 1.0)
    assert rung == Rung(2, 100.0, None)


def test_a_scale_stretches_rise_and_fall() -> None:
    assert climbed(Rung(1, 0.0), 2, RISE_SECONDS * 0.1, 0.1).level == 2
    assert climbed(Rung(1, 0.0), 2, RISE_SECONDS, 10.0).level == 1
    assert climbed(Rung(1, 0.0, 0.0), 0, 1.5, 0.1).level == 0


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, TOP)), max_size=80))
def test_it_is_never_off_the_ladder_and_never_moves_by_more_than_one_level(
    looks: list[tuple[float, int]],
) -> None:
    rung, now = GROUND, 0.0
    for seconds, wanted in looks:
        now += seconds
        before, rung = rung, climbed(rung, wanted, now, 1.0)
        assert 0 <= rung.level <= TOP and abs(rung.level - before.level) <= 1
        assert rung.level <= before.level or wanted > before.level
        assert rung.level >= before.level or wanted < before.level


@pytest.mark.parametrize(
    ("level", "forced", "is_now"),
    [
        (2, {}, 2),
        (0, {3: True}, 3),
        (5, {3: True}, 3),
        (0, {2: True, 4: True}, 4),
        (4, {3: False}, 2),
        (1, {3: False}, 1),
        (5, {3: False, 2: False}, 1),
        (0, {4: True, 2: False}, 4),
    ],
)
def test_a_level_forced_on_is_the_level_and_one_forced_off_is_not_reached(
    level: int, forced: dict[int, bool], is_now: int
) -> None:
    assert pinned(level, forced) == is_now


def test_all_but_one_follows_from_how_many_there_are_and_is_all_of_few() -> None:
    last = Condition(Metric.OPEN_RATIO, Operator.AT_LEAST, ALL_BUT_ONE)
    assert [threshold_of(last, count) for count in (0, 1, 2, 3, 4, 8)] == [1.0, 1.0, 1.0, 2 / 3, 0.75, 0.875]
    assert threshold_of(Condition(Metric.OPEN_RATIO, Operator.AT_LEAST, 0.5), 8) == 0.5
    assert inf == ALL_BUT_ONE
