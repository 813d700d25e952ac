"""What is expected of an answer's length, from the lengths of earlier ones."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.outputs import BINS, EMPTY, Histogram, OutputRules, expected_beyond, mean, observed, quantile

RULES = OutputRules()
answers = st.lists(st.integers(0, 200_000), min_size=1, max_size=60)
limits = st.one_of(st.none(), st.integers(1, 300_000))


def histogram_of(tokens: list[int]) -> Histogram:
    return observed(EMPTY, tokens, RULES)


@pytest.mark.parametrize(("max_tokens", "expected"), [(None, 256), (1000, 256), (40, 40)])
def test_before_anything_was_seen_the_start_value_holds(max_tokens: int | None, expected: float) -> None:
    assert mean(EMPTY, max_tokens, RULES) == expected
    assert quantile(EMPTY, 0.9, max_tokens, RULES) == expected
    assert expected_beyond(EMPTY, 0, max_tokens, RULES) == expected


def test_the_start_value_can_be_set() -> None:
    assert mean(EMPTY, None, OutputRules(start_tokens=99)) == 99


@given(answers)
def test_the_mean_without_a_limit_is_that_of_the_answers(tokens: list[int]) -> None:
    assert mean(histogram_of(tokens), None, RULES) == pytest.approx(
        sum(tokens) / len(tokens), rel=0.05, abs=0.5
    )


def test_a_limit_counts_as_the_length_of_answers_that_would_be_longer() -> None:
    histogram = histogram_of([100] * 50 + [5000] * 50)
    assert mean(histogram, 200, RULES) == pytest.approx(150, rel=0.02)


@given(tokens=answers, max_tokens=limits, produced=st.integers(0, 300_000))
def test_nothing_is_expected_beyond_the_limit_or_below_what_is_out(
    tokens: list[int], max_tokens: int | None, produced: int
) -> None:
    histogram = histogram_of(tokens)
    bound = float("inf") if max_tokens is None else max_tokens
    assert 0 <= mean(histogram, max_tokens, RULES) <= bound + 1e-6
    assert 0 <= quantile(histogram, 0.9, max_tokens, RULES) <= bound
    assert produced <= expected_beyond(histogram, produced, max_tokens, RULES) <= max(bound, produced)


@given(tokens=answers, one=st.floats(0, 1), other=st.floats(0, 1))
def test_quantiles_rise_with_their_share(tokens: list[int], one: float, other: float) -> None:
    histogram = histogram_of(tokens)
    low, high = sorted((one, other))
    assert quantile(histogram, low, None, RULES) <= quantile(histogram, high, None, RULES) + 1e-6


def test_the_ninetieth_percentile_is_right_within_a_bin() -> None:
    draw = random.Random(7)
    tokens = [int(draw.lognormvariate(5.5, 0.8)) for _ in range(1000)]
    truth = sorted(tokens)[900]
    assert quantile(histogram_of(tokens), 0.9, None, RULES) == pytest.approx(truth, rel=0.15)


def test_an_answer_that_goes_on_is_expected_to_be_of_the_long_ones() -> None:
    histogram = histogram_of([50] * 90 + [3000] * 10)
    assert expected_beyond(histogram, 0, None, RULES) == pytest.approx(345, rel=0.05)
    assert expected_beyond(histogram, 500, None, RULES) == pytest.approx(3000, rel=0.01)
    assert expected_beyond(histogram, 500, 2000, RULES) == 2000


def test_an_answer_longer_than_all_before_is_expected_to_double() -> None:
    assert expected_beyond(histogram_of([50] * 10), 4000, None, RULES) == 8000


@given(tokens=answers, steps=st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_the_expectation_rises_while_the_answer_goes_on(tokens: list[int], steps: list[int]) -> None:
    histogram = histogram_of(tokens)
    produced, before = 0, 0.0
    for step in steps:
        produced += step
        now = expected_beyond(histogram, produced, None, RULES)
        assert now >= before - 1e-6
        before = now


@pytest.mark.parametrize("half_life", [100, 1000])
def test_a_change_counts_half_after_the_half_life(half_life: int) -> None:
    rules = OutputRules(half_life_samples=half_life)
    settled = observed(EMPTY, [100] * 20 * half_life, rules)
    changed = observed(settled, [1000] * half_life, rules)
    assert mean(changed, None, rules) == pytest.approx(550, rel=0.01)
    assert settled.samples == pytest.approx(half_life / 0.6931, rel=0.02)


def test_a_million_answers_stay_in_scale() -> None:
    rules = OutputRules(half_life_samples=2)
    histogram = observed(EMPTY, [10, 20] * 5000, rules)
    assert max(histogram.weights) < 2**21
    assert mean(histogram, None, rules) == pytest.approx(16, abs=1)


def test_odd_counts_do_no_harm() -> None:
    assert observed(EMPTY, [-1], RULES) == EMPTY
    huge = observed(EMPTY, [2**40], RULES)
    assert len(huge.weights) == BINS
    assert mean(huge, None, RULES) == pytest.approx(2**40)
    assert mean(observed(EMPTY, [0], RULES), None, RULES) == 0


STEADY = OutputRules(half_life_samples=inf)
"""Each sample weighs as much as any other."""


def evenly(*answers: int) -> Histogram:
    return observed(EMPTY, answers, STEADY)


@pytest.mark.parametrize(
    ("answers", "max_tokens", "expected"),
    [
        ((4, 4, 7, 7), 7, 5.5),
        ((4, 7, 7), 7, 6.0),
        ((4, 4, 7, 7), 4, 4.0),
        ((4, 4, 7, 7), 3, 3.0),
        # A third of the bin's answers is below five, and 4.5 on the average; the others are cut.
        ((4, 4, 7, 7), 5, 4.5 / 3 + 5 * 2 / 3),
        ((4, 4, 4, 4), 5, 4.0),
        ((1, 4, 4, 7, 7), 5, (1 + 4 * (4.5 / 3 + 5 * 2 / 3)) / 5),
        ((1, 4, 100), 50, (1 + 4 + 50) / 3),
        ((0, 0, 100), 50, 50 / 3),
    ],
)
def test_a_limit_inside_a_bin_cuts_answers_that_are_spread_evenly(
    answers: tuple[int, ...], max_tokens: int, expected: float
) -> None:
    assert mean(evenly(*answers), max_tokens, STEADY) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answers", "share", "expected"),
    [
        ((4, 4, 7, 7), 0.5, 5.5),
        ((4, 4, 7, 7), 1.0, 7.0),
        ((4, 4, 7, 7), 0.0, 4.0),
        ((1, 1, 4, 7), 0.5, 1.0),
        ((1, 1, 4, 7), 0.75, 5.5),
        ((1, 1, 4, 7), 1.0, 7.0),
        ((2**21, 2**21), 1.0, 2.0**22 - 1),
        ((2**30, 2**30), 1.0, 2.0**30),
        ((2**30, 2**30), 0.0, 2.0**22),
    ],
)
def test_a_quantile_is_where_so_many_of_the_answers_of_a_bin_would_end(
    answers: tuple[int, ...], share: float, expected: float
) -> None:
    assert quantile(evenly(*answers), share, None, STEADY) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answers", "produced", "expected"),
    [
        ((4, 4, 7, 7), 0, 5.5),
        ((4, 4, 7, 7), 4, 5.5),
        ((4, 4, 7), 4, 5.0),
        ((1, 1, 100), 1, 100.0),
        ((4, 4, 7, 7), 5, 6.0),
        ((4, 4, 7, 7, 100), 5, (4 * 2 / 3 * 6 + 100) / (4 * 2 / 3 + 1)),
        ((4, 4, 7, 7, 100), 7, 100.0),
        ((4, 7), 7, 256.0),
        ((4, 7), 200, 400.0),
    ],
)
def test_of_a_bin_that_is_being_passed_what_is_left_of_it_counts(
    answers: tuple[int, ...], produced: int, expected: float
) -> None:
    assert expected_beyond(evenly(*answers), produced, None, STEADY) == pytest.approx(expected)


def test_it_is_the_shares_of_the_weights_that_count_and_not_their_size() -> None:
    usual = evenly(1, 4, 4, 7, 7, 100)
    weights, sums = (tuple(one * 0.01 for one in each) for each in usual[:2])
    light = Histogram(weights, sums, 0.01)
    assert light.samples == pytest.approx(usual.samples)
    for max_tokens in (None, 5, 50):
        assert mean(light, max_tokens, STEADY) == pytest.approx(mean(usual, max_tokens, STEADY))
    for share in (0.1, 0.5, 0.9):
        assert quantile(light, share, None, STEADY) == pytest.approx(quantile(usual, share, None, STEADY))
    for produced in (0, 5, 50):
        assert expected_beyond(light, produced, None, STEADY) == pytest.approx(
            expected_beyond(usual, produced, None, STEADY)
        )


def test_answers_told_one_by_one_count_as_those_told_together_and_one_that_is_none_is_passed_over() -> None:
    one_by_one = EMPTY
    for tokens in (5, -1, 7, 100):
        one_by_one = observed(one_by_one, [tokens], RULES)
    assert one_by_one == histogram_of([5, -1, 7, 100])
    assert one_by_one.samples == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("count", range(1, 60, 3))
def test_all_answers_end_where_the_last_bin_does_however_their_weights_are_rounded(count: int) -> None:
    rules = OutputRules(half_life_samples=3.0)
    answers = [(7 * number) % 500 for number in range(count)] + [600]
    last = quantile(observed(EMPTY, answers, rules), 1.0, None, rules)
    assert last == pytest.approx(1023.0) and last <= 1023.0
