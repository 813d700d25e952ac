"""How long prefixes and sessions are remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cache_lifetime import GAPS, LifetimeRules, after_gap, lifetime_seconds

RULES = LifetimeRules(min_seconds=30.0, max_seconds=600.0)


def test_until_a_gap_was_seen_it_is_the_longest() -> None:
    assert lifetime_seconds(None, RULES) == 600.0


@pytest.mark.parametrize(("gap", "mean"), [(7.0, 7.0), (300.0, 300.0), (301.0, 300.0), (1e6, 300.0)])
def test_the_first_gap_is_the_mean_as_far_as_it_matters(gap: float, mean: float) -> None:
    assert after_gap(None, gap, RULES) == mean


@given(st.floats(0, 1e6))
def test_it_is_twice_the_mean_gap_inside_of_its_bounds(gap: float) -> None:
    found = lifetime_seconds(gap, RULES)
    assert found == min(max(GAPS * gap, 30.0), 600.0)


@given(st.lists(st.floats(0, 1e4), min_size=1))
def test_the_mean_stays_among_the_gaps(gaps: list[float]) -> None:
    mean = None
    for gap in gaps:
        mean = after_gap(mean, gap, RULES)
    assert mean is not None and min(*gaps, RULES.max_seconds / GAPS) - 1e-6 <= mean <= max(gaps) + 1e-6


def test_it_follows_within_some_fifty_requests_and_one_pause_moves_it_little() -> None:
    mean: float | None = 5.0
    mean = after_gap(mean, 60.0, RULES)
    assert mean == pytest.approx(7.75)
    for _ in range(60):
        mean = after_gap(mean, 20.0, RULES)
    assert mean == pytest.approx(20.0, rel=0.05)
    for _ in range(60):
        mean = after_gap(mean, 200.0, RULES)
    assert mean == pytest.approx(200.0, rel=0.2)


@pytest.mark.parametrize("pause", [100.0, 3600.0, 86_400.0])
def test_no_single_pause_makes_a_difference(pause: float) -> None:
    assert lifetime_seconds(after_gap(10.0, pause, RULES), RULES) == RULES.min_seconds
    assert after_gap(100.0, pause, RULES) <= 115.0
    assert lifetime_seconds(after_gap(None, pause, RULES), RULES) <= RULES.max_seconds
