"""What a tenant may claim as emergencies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.emergency_budget import UNUSED_BUDGET, EmergencyBudgetRules, claimed, is_full

GAPS = st.lists(st.integers(0, 40), min_size=1, max_size=60)
"""Sixteenths of a second, so that sums are exact."""
RULES = EmergencyBudgetRules(budget_share=0.25, burst=4.0)


def granted_times(gaps: list[int], rate: float, rules: EmergencyBudgetRules) -> list[float]:
    budget, now, granted = UNUSED_BUDGET, 0.0, []
    for gap in gaps:
        now += gap / 16
        after = claimed(budget, now, 1.0, rate, rules)
        if after is not None:
            budget = after
            granted.append(now)
    return granted


@given(GAPS, st.sampled_from([0.0, 1.0, 8.0, 64.0]))
def test_over_any_time_no_more_is_granted_than_the_burst_and_the_share_of_the_rate(
    gaps: list[int], rate: float
) -> None:
    granted = granted_times(gaps, rate, RULES)
    for first in range(len(granted)):
        for last in range(first, len(granted)):
            bound = RULES.burst + RULES.budget_share * rate * (granted[last] - granted[first])
            assert last - first + 1 <= bound


@given(GAPS, st.sampled_from([1.0, 8.0, 64.0]))
def test_it_grants_what_the_textbook_cell_rate_algorithm_grants(gaps: list[int], rate: float) -> None:
    interval = 1 / (RULES.budget_share * rate)
    tolerance = (RULES.burst - 1) * interval
    theoretical, now, granted = 0.0, 0.0, []
    for gap in gaps:
        now += gap / 16
        if now >= theoretical - tolerance:
            theoretical = max(now, theoretical) + interval
            granted.append(now)
    assert granted_times(gaps, rate, RULES) == granted


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_clock_that_steps_back_neither_refills_nor_drains(level_at: float, now: float) -> None:
    budget = UNUSED_BUDGET._replace(level=3.0, at=level_at + now)
    after = claimed(budget, now, 1.0, 100.0, RULES)
    assert after is not None and after.level == 4.0 and after.at == budget.at
    assert claimed(after, now, 1.0, 100.0, RULES) is None


def test_a_burst_comes_at_once_and_is_back_after_its_time_at_the_share() -> None:
    rules = EmergencyBudgetRules()
    budget = UNUSED_BUDGET
    for _ in range(20):
        after = claimed(budget, 1.0, 1.0, 100.0, rules)
        assert after is not None
        budget = after
    assert claimed(budget, 1.0, 1.0, 100.0, rules) is None
    assert not is_full(budget, 2.9, 100.0, rules)
    assert is_full(budget, 3.1, 100.0, rules)
    assert claimed(budget, 1.101, 1.0, 100.0, rules) is not None


def test_a_debt_does_not_change_when_another_rate_is_measured() -> None:
    budget = claimed(UNUSED_BUDGET, 0.0, 4.0, 1000.0, RULES)
    assert budget is not None and claimed(budget, 0.0, 1.0, 1.0, RULES) is None
    assert claimed(budget, 3.9, 1.0, 1.0, RULES) is None
    assert claimed(budget, 4.0, 1.0, 1.0, RULES) is not None


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        (EmergencyBudgetRules(), 21),
        (EmergencyBudgetRules(burst=5), 6),
        (EmergencyBudgetRules(budget_share=0.0), 20),
        (EmergencyBudgetRules(budget_share=0.3), 23),
    ],
)
def test_each_setting_counts(rules: EmergencyBudgetRules, count: int) -> None:
    assert len(granted_times([0] * 30 + [16] + [0] * 30, 10.0, rules)) == count
