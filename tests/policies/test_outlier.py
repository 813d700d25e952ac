"""A backend that is slower than its like for three windows loses half of its weight, and gets it back by quarters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.outlier import USUAL, OutlierRules, Standing, after_window, others_pace, pool_pace

RULES = OutlierRules()
SLOW, MEDIAN = 2.1, 1.0


def after(standing: Standing, *paces: float | None) -> Standing:
    for pace in paces:
        standing = after_window(standing, pace, MEDIAN, RULES)
    return standing


def test_weight_is_halved_at_the_third_slow_window_in_a_row_and_at_each_that_follows() -> None:
    assert after(USUAL, SLOW, SLOW).weight == 1.0
    assert after(USUAL, SLOW, SLOW, SLOW).weight == 0.5
    assert after(USUAL, SLOW, SLOW, SLOW, SLOW).weight == 0.25


def test_twice_the_median_is_not_slow_and_a_window_between_begins_the_count_anew() -> None:
    assert after(USUAL, *[2.0] * 9).weight == 1.0
    assert after(USUAL, SLOW, SLOW, 2.0, SLOW, SLOW).weight == 1.0


def test_a_tenth_is_the_least() -> None:
    assert after(USUAL, *[SLOW] * 50).weight == 0.1


def test_each_window_that_is_not_slow_gives_a_quarter_more_up_to_all() -> None:
    assert after(Standing(0.4), 1.0).weight == pytest.approx(0.5)
    assert after(Standing(0.1), *[1.0] * 10).weight == pytest.approx(0.1 * 1.25**10)
    assert after(Standing(0.1), *[1.0] * 11).weight == 1.0


def test_windows_with_too_few_samples_are_waited_for_and_the_fourth_of_them_counts_as_well() -> None:
    two_slow = after(USUAL, SLOW, SLOW)
    assert after(two_slow, None, None, None, SLOW).weight == 0.5
    assert after(two_slow, None, None, None, None, SLOW).weight == 1.0
    assert after(Standing(0.4), None, None, None).weight == 0.4
    assert after(Standing(0.4), None, None, 1.0, None, None, None).weight == 0.5, "in a row"
    assert after(Standing(0.4), None, None, None, None, None).weight == pytest.approx(0.4 * 1.25**2)


def test_where_there_is_nobody_to_compare_with_nothing_is_slow() -> None:
    standing = USUAL
    for _ in range(5):
        standing = after_window(standing, 100.0, None, RULES)
    assert standing == USUAL


@pytest.mark.parametrize(
    ("paces", "median"),
    [([], None), ([1.0, 9.0], None), ([9.0, 1.0, 2.0], 2.0), ([1.0, 2.0, 4.0, 100.0], 3.0)],
)
def test_the_median_needs_three_backends(paces: list[float], median: float | None) -> None:
    assert pool_pace(paces, RULES) == median


def test_slow_calls_are_held_to_the_median_of_the_others() -> None:
    assert others_pace([]) is None
    assert others_pace([3.0]) == 3.0
    assert others_pace([3.0, 1.0, 2.0]) == 2.0


@given(st.lists(st.none() | st.floats(0.01, 100), max_size=60))
def test_a_weight_stays_between_a_tenth_and_all(paces: list[float | None]) -> None:
    standing = USUAL
    for pace in paces:
        before = standing.weight
        standing = after_window(standing, pace, MEDIAN, RULES)
        assert 0.1 <= standing.weight <= 1.0
        assert standing.weight in (before, max(0.1, before / 2), min(1.0, before * 1.25))


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=16), st.integers(1, 20))
def test_where_all_are_slow_alike_nobody_loses_weight(factors: list[float], windows: int) -> None:
    level = factors[0]
    standing = USUAL
    for _ in range(windows):
        standing = after_window(standing, level, pool_pace([level] * len(factors), RULES), RULES)
    assert standing.weight == 1.0
