"""How many second tries the fleet can afford."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.retry_budget import NO_RETRIES, RetryBudget, RetryBudgetRules, after_retry

RULES = RetryBudgetRules()
STEPS = st.lists(st.tuples(st.floats(0, 5), st.integers(0, 40), st.booleans()), min_size=1, max_size=60)


@given(STEPS)
def test_over_time_second_tries_stay_below_the_floor_or_the_share_of_the_requests(
    steps: list[tuple[float, int, bool]],
) -> None:
    budget, now, arrived = NO_RETRIES, 0.0, 0
    for gap, more, _ in steps:
        now += gap
        arrived += more
        after = after_retry(budget, arrived, 10_000, 0, False, now, RULES)
        if after is not None:
            budget, arrived = after, 0
            assert (
                budget.retries <= max(RULES.floor * RULES.ttl_seconds, RULES.share * budget.requests) + 1e-9
            )


@given(STEPS)
def test_a_backend_that_fails_everything_at_once_costs_no_more_than_a_fifth_and_the_floor(
    steps: list[tuple[float, int, bool]],
) -> None:
    budget, now, arrived, requests, retries = NO_RETRIES, 0.0, 0, 0, 0
    for gap, more, _ in steps:
        now += gap
        for _ in range(more):
            arrived += 1
            requests += 1
            after = after_retry(budget, arrived, 10_000, 0, False, now, RULES)
            if after is not None:
                budget, arrived, retries = after, 0, retries + 1
    # The floor comes back with the time constant, and at most so often.
    assert retries <= RULES.share * requests + RULES.floor * RULES.ttl_seconds * (2 + now / RULES.ttl_seconds)


@given(st.integers(0, 200), st.integers(0, 200))
def test_at_once_second_tries_stay_below_the_floor_or_the_share_of_what_runs(
    running: int, retries: int
) -> None:
    after = after_retry(NO_RETRIES, 10_000, running, retries, False, 0.0, RULES)
    assert (after is not None) == (retries + 1 <= max(3, 0.5 * running))


@pytest.mark.parametrize(
    ("running", "retries", "may"),
    [(0, 2, True), (0, 3, False), (50, 24, True), (50, 25, False), (6, 2, True), (7, 3, False)],
)
def test_at_once_examples(running: int, retries: int, may: bool) -> None:
    assert (after_retry(NO_RETRIES, 10_000, running, retries, False, 0.0, RULES) is not None) is may


@given(st.integers(0, 100))
def test_an_emergency_has_tries_of_its_own_when_others_used_theirs_up(used: int) -> None:
    budget = RetryBudget(0.0, float(used + 3), 0.0, 0.0)
    assert after_retry(budget, 0, 10, 10, False, 0.0, RULES) is None
    for _ in range(3):
        after = after_retry(budget, 0, 10, 10, True, 0.0, RULES)
        assert after is not None
        budget = after
    assert after_retry(budget, 0, 10, 10, True, 0.0, RULES) is None
    assert after_retry(budget, 0, 10, 10, True, 30.0, RULES) is not None


def test_an_emergency_takes_from_the_common_budget_first() -> None:
    after = after_retry(NO_RETRIES, 0, 10, 0, True, 0.0, RULES)
    assert after == RetryBudget(0.0, 1.0, 0.0, 0.0)


def test_a_clock_that_steps_back_gives_nothing_back() -> None:
    budget = RetryBudget(0.0, 30.0, 0.0, 100.0)
    assert after_retry(budget, 0, 1000, 0, False, 50.0, RULES) is None
    after = after_retry(budget, 200, 1000, 0, False, 50.0, RULES)
    assert after == RetryBudget(200.0, 31.0, 0.0, 100.0)


def test_requests_count_as_if_they_had_come_evenly() -> None:
    budget = after_retry(RetryBudget(at=1.0), 1000, 1000, 0, False, 11.0, RULES)
    assert budget is not None and budget.requests == pytest.approx(1000 * (1 - exp(-1)))
    soon = after_retry(RetryBudget(at=1.0), 1000, 1000, 0, False, 1.5, RULES)
    assert soon is not None and soon.requests == pytest.approx(1000 * (1 - exp(-0.05)) / 0.05)


def test_what_came_before_fades_with_the_time_to_live() -> None:
    budget = after_retry(RetryBudget(1000.0, 20.0, 2.0, 1.0), 0, 1000, 0, False, 11.0, RULES)
    assert budget == pytest.approx((1000 * exp(-1), 20 * exp(-1) + 1, 2 * exp(-1), 11.0))


@pytest.mark.parametrize(
    ("rules", "granted"),
    [
        (RULES, 30),
        (RetryBudgetRules(share=0.5), 50),
        (RetryBudgetRules(share=0.0), 30),
        (RetryBudgetRules(share=0.0, floor=7), 70),
        (RetryBudgetRules(share=0.0, floor=0), 0),
    ],
)
def test_each_setting_counts(rules: RetryBudgetRules, granted: int) -> None:
    budget, count = NO_RETRIES, 0
    while (after := after_retry(budget, 0 if count else 100, 1000, 0, False, 0.0, rules)) is not None:
        budget, count = after, count + 1
    assert count == granted


def test_the_time_to_live_and_the_floor_of_emergencies_count() -> None:
    spent = RetryBudget(0.0, 30.0, 0.0, 0.0)
    assert after_retry(spent, 0, 10, 0, False, 0.3, RULES) is None
    assert after_retry(spent, 0, 10, 0, False, 0.5, RULES) is not None
    assert after_retry(spent, 0, 10, 0, False, 3.0, RetryBudgetRules(ttl_seconds=1.0)) is not None
    assert after_retry(spent, 0, 10, 0, True, 0.0, RetryBudgetRules(emergency_floor=0)) is None
