"""How much longer one request takes than another because it has more to compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.work_fit import UNFITTED, WorkSums, expected, fitted, level


def sums_of(pairs: list[tuple[float, float]]) -> WorkSums:
    return WorkSums(
        len(pairs),
        sum(seconds for _, seconds in pairs),
        sum(work for work, _ in pairs),
        sum(work * work for work, _ in pairs),
        sum(work * seconds for work, seconds in pairs),
    )


@given(st.floats(0.2, 1.0), st.floats(0.0, 0.005), st.lists(st.integers(1, 400), min_size=5, max_size=40))
def test_a_line_is_found_and_the_level_is_the_time_of_the_reference_work(
    intercept: float, slope: float, works: list[int]
) -> None:
    fit = UNFITTED
    pairs = [(float(work), intercept + slope * work) for work in [*works, 10, 200, 390]]
    for _ in range(30):
        fit = fitted(fit, sums_of(pairs))
    for work, seconds in pairs:
        assert level(fit, sums_of(pairs)) * expected(fit, work) == pytest.approx(seconds, rel=0.02, abs=0.005)
    assert expected(fit, fit.reference) == pytest.approx(1.0)


@given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=30))
def test_work_that_does_not_vary_explains_nothing(seconds: list[float]) -> None:
    fit = fitted(UNFITTED, sums_of([(7.0, one) for one in seconds]))
    assert fit.slope == 0
    assert expected(fit, 7.0) == pytest.approx(1.0)


def test_work_that_makes_faster_is_not_believed() -> None:
    fit = fitted(UNFITTED, sums_of([(10.0, 2.0), (20.0, 1.0), (30.0, 0.5)]))
    assert fit.slope == 0
