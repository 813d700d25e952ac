"""How long a request will take."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.service_times import UNSEEN, ServiceTime, ServiceTimeRules, after_service, predicted_seconds

RULES = ServiceTimeRules()
SECONDS = st.lists(st.floats(0.001, 100), min_size=1, max_size=60)


def learnt(samples: list[float], rules: ServiceTimeRules = RULES) -> ServiceTime:
    known = UNSEEN
    for seconds in samples:
        known = after_service(known, seconds, rules)
    return known


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=20))
def test_the_first_samples_are_averaged_plainly(samples: list[float]) -> None:
    assert learnt(samples).mean == pytest.approx(sum(samples) / len(samples))


@given(SECONDS)
def test_the_mean_lies_among_the_samples_and_the_deviation_within_their_spread(samples: list[float]) -> None:
    known = learnt(samples)
    spread = max(samples) - min(samples)
    assert min(samples) - 1e-9 <= known.mean <= max(samples) + 1e-9
    assert -1e-9 <= known.deviation <= spread + 1e-9
    assert known.samples == len(samples)


@given(SECONDS, st.floats(0.01, 10))
def test_a_new_level_is_taken_over_whatever_was_before(samples: list[float], level: float) -> None:
    known = learnt([*samples, *[level] * 800])
    assert known.mean == pytest.approx(level, rel=0.01, abs=0.01)
    assert predicted_seconds(known, 2.0, 0.0, RULES) == pytest.approx(level, rel=0.05, abs=0.05)


@given(SECONDS, st.floats(-5, 5), st.floats(0, 5))
def test_more_deviations_predict_no_less_and_nothing_is_predicted_below_zero(
    samples: list[float], k: float, more: float
) -> None:
    known = learnt(samples)
    assert 0.0 <= predicted_seconds(known, k, 0.0, RULES) <= predicted_seconds(known, k + more, inf, RULES)


def test_half_of_the_weight_is_in_so_many_samples() -> None:
    rules = ServiceTimeRules(half_life_samples=10)
    assert learnt([0.0] * 1000 + [1.0] * 10, rules).mean == pytest.approx(0.5, abs=0.001)
    assert learnt([0.0] * 1000 + [1.0] * 5, rules).mean == pytest.approx(1 - 0.5**0.5, abs=0.001)
    assert learnt([0.0] * 1000 + [1.0] * 10).mean == pytest.approx(1 - 2 ** (-10 / 32), abs=0.001)


def test_too_few_samples_count_as_the_caller_says() -> None:
    few = learnt([0.5] * 4)
    assert predicted_seconds(few, 0.0, 0.0, RULES) == 0.0
    assert predicted_seconds(few, 0.0, inf, RULES) == inf
    assert predicted_seconds(few, 0.0, inf, ServiceTimeRules(min_samples=4)) == 0.5
    assert predicted_seconds(after_service(few, 0.5, RULES), 0.0, inf, RULES) == 0.5


def test_the_deviation_is_the_mean_distance() -> None:
    known = learnt([1.0, 3.0] * 400)
    assert known.mean == pytest.approx(2.0, abs=0.05)
    assert known.deviation == pytest.approx(1.0, abs=0.05)
    assert predicted_seconds(known, -1.25, 0.0, RULES) == pytest.approx(0.75, abs=0.1)


def test_what_is_surely_taken_is_less_than_the_mean_and_never_below_nothing() -> None:
    known = ServiceTime(mean=1.8, deviation=1.0, samples=5)
    assert predicted_seconds(known, -1.0, inf, RULES) == pytest.approx(0.8)
    assert predicted_seconds(known, -2.0, inf, RULES) == 0.0
