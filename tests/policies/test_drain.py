"""How fast a queue drains, and what follows from it."""

from __future__ import annotations

from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.drain import (
    UNMEASURED,
    Drain,
    DrainRules,
    backlog_began,
    cost_per_second,
    finished,
    predicted_wait_seconds,
    requests_per_second,
    retry_after_seconds,
)

RULES = DrainRules()


def steady(
    drain: Drain, start: float, count: int, every: float, cost: float, rules: DrainRules = RULES
) -> Drain:
    drain = backlog_began(drain, start, rules)
    for step in range(1, count + 1):
        drain = finished(drain, start + step * every, cost, rules)
    return drain


@given(st.integers(20, 200), st.floats(0.001, 1), st.floats(0.1, 1e6), st.floats(0, 1e6))
def test_a_steady_rate_is_estimated_without_bias_from_the_first_valid_sample_on(
    count: int, every: float, cost: float, start: float
) -> None:
    drain = steady(UNMEASURED, start, count, every, cost)
    # Read right after a finish the estimate stands at the top of its step.
    assert cost_per_second(drain, drain.at, RULES) == pytest.approx(cost / every, rel=0.1 * every + 0.01)
    requests = requests_per_second(drain, drain.at, RULES)
    assert requests == pytest.approx(1 / every, rel=0.1 * every + 0.01)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 100)), min_size=20, max_size=60))
def test_the_estimate_is_never_negative_and_falls_while_nothing_is_finished(
    finishes: list[tuple[float, float]],
) -> None:
    drain, now = backlog_began(UNMEASURED, 0.0, RULES), 0.0
    for gap, cost in finishes:
        now += gap
        drain = finished(drain, now, cost, RULES)
    rates = [cost_per_second(drain, now + wait, RULES) for wait in (0.1, 1.0, 5.0, 60.0)]
    known = [rate for rate in rates if rate is not None]
    assert len(known) == 4 and known == sorted(known, reverse=True) and known[-1] >= 0.0


@given(st.floats(0, 59))
def test_time_without_a_queue_does_not_lower_the_rate(idle: float) -> None:
    before = steady(UNMEASURED, 0.0, 100, 0.01, 5.0)
    after = backlog_began(before, before.at + idle, RULES)
    assert cost_per_second(after, after.at, RULES) == cost_per_second(before, before.at, RULES)


def test_a_queue_after_a_long_pause_starts_anew_and_is_unknown_again() -> None:
    before = steady(UNMEASURED, 0.0, 100, 0.01, 5.0)
    assert backlog_began(before, before.at + 60, RULES).samples == 100
    after = backlog_began(before, before.at + 61, RULES)
    assert cost_per_second(after, after.at + 1, RULES) is None
    longer = DrainRules(forget_seconds=100)
    assert cost_per_second(backlog_began(before, before.at + 61, longer), before.at + 61, longer) is not None


def test_a_changed_rate_is_followed_within_the_time_constant() -> None:
    drain = steady(UNMEASURED, 0.0, 1000, 0.01, 1.0)
    drain = steady(drain, drain.at, 100, 0.05, 1.0)
    rate = cost_per_second(drain, drain.at, RULES)
    assert rate is not None and 20 < rate < 60
    slow = steady(UNMEASURED, 0.0, 1000, 0.01, 1.0, DrainRules(time_constant_seconds=100))
    slow = steady(slow, slow.at, 100, 0.05, 1.0, DrainRules(time_constant_seconds=100))
    slow_rate = cost_per_second(slow, slow.at, DrainRules(time_constant_seconds=100))
    assert slow_rate is not None and slow_rate > 60


def test_silence_takes_from_the_rate_as_the_time_constant_says() -> None:
    drain = steady(UNMEASURED, 0.0, 1000, 0.1, 1.0)
    at_once = cost_per_second(drain, drain.at, RULES)
    for silence in (1.0, 5.0):
        rate = cost_per_second(drain, drain.at + silence, RULES)
        assert at_once is not None and rate == pytest.approx(at_once * exp(-silence / 5))


def test_a_clock_that_steps_back_stands_still() -> None:
    drain = steady(UNMEASURED, 0.0, 30, 0.1, 1.0)
    assert backlog_began(drain, 1.0, RULES) == drain
    assert finished(drain, 1.0, 1.0, RULES).at == drain.at
    assert cost_per_second(drain, 1.0, RULES) == cost_per_second(drain, drain.at, RULES)


def test_it_is_valid_from_so_many_samples() -> None:
    drain, enough = steady(UNMEASURED, 0.0, 19, 0.1, 1.0), DrainRules(min_samples=19)
    assert cost_per_second(drain, 2.0, RULES) is None
    assert cost_per_second(drain, 2.0, enough) is not None
    assert cost_per_second(finished(drain, 2.0, 1.0, RULES), 2.0, RULES) is not None


def test_what_finishes_before_any_queue_is_not_counted() -> None:
    assert finished(UNMEASURED, 7.0, 1.0, RULES) == Drain(at=7.0)


def test_finishes_without_time_between_them_have_no_rate_yet() -> None:
    assert cost_per_second(steady(UNMEASURED, 1.0, 20, 0.0, 1.0), 1.0, RULES) is None


@pytest.mark.parametrize(
    ("ahead", "rate", "wait"),
    [
        (100.0, 50.0, 2.0),
        (1.0, 0.5, 2.0),
        (100.0, None, None),
        (0.0, 0.0, 0.0),
        (1.0, 0.0, inf),
        (0.0, None, None),
    ],
)
def test_the_wait_is_what_is_ahead_at_the_rate(ahead: float, rate: float | None, wait: float | None) -> None:
    assert predicted_wait_seconds(ahead, rate) == wait


@given(st.floats(0, allow_nan=False), st.floats(0, allow_nan=False), st.floats(0, 1, exclude_max=True))
def test_who_is_refused_comes_back_in_whole_seconds_within_bounds(
    wait: float, budget: float, draw: float
) -> None:
    seconds = retry_after_seconds(wait, budget, draw)
    assert seconds in range(1, 73)


@given(st.floats(2, 60), st.floats(0, 1, exclude_max=True))
def test_who_is_refused_comes_back_when_the_queue_is_short_enough_give_or_take_a_fifth(
    excess: float, draw: float
) -> None:
    assert 0.8 * excess <= retry_after_seconds(excess + 1.0, 1.0, draw) <= 1.2 * excess + 1


def test_who_would_wait_for_ever_and_may_is_not_sent_away_for_long() -> None:
    assert retry_after_seconds(inf, inf, 0.5) == 1
    assert retry_after_seconds(inf, 5.0, 0.5) == 60


def test_even_the_shortest_advice_is_spread() -> None:
    assert {retry_after_seconds(0.0, 1.0, draw / 10) for draw in range(10)} == {1, 2}


def test_nobody_is_sent_away_for_more_than_a_minute_and_a_fifth() -> None:
    assert retry_after_seconds(1e6, 0.0, 0.0) == 48
    assert retry_after_seconds(1e6, 0.0, 0.999) == 72
