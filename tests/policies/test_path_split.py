"""What hot and cold requests may hold while both want it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.path_split import FOLLOW, PathRules, has_time_to_spare, over_share, shares

SHARES = st.floats(0, 1)


def test_the_fields_shares_hold_where_the_traffic_is_as_they_are() -> None:
    assert shares(0.7, PathRules()) == pytest.approx((0.7, 0.3))


@given(SHARES, SHARES, SHARES)
def test_the_shares_follow_the_traffic_by_so_much_at_most_and_leave_no_bounds(
    hot_traffic: float, hot_share: float, cold_share: float
) -> None:
    hot, cold = shares(hot_traffic, PathRules(hot_share, cold_share))
    assert 0 <= hot <= 1 and 0 <= cold <= 1
    assert abs(hot - hot_share) <= FOLLOW + 1e-9
    assert min(hot_share, hot_traffic) - 1e-9 <= hot <= max(hot_share, hot_traffic) + 1e-9
    assert abs((hot - hot_share) + (cold - cold_share)) <= 1e-9 or cold in (0, 1)


@given(SHARES, SHARES)
def test_they_stay_where_they_are_told_to(hot_traffic: float, hot_share: float) -> None:
    rules = PathRules(hot_share, 1 - hot_share, follow_traffic=False)
    assert shares(hot_traffic, rules) == (hot_share, 1 - hot_share)


def test_a_path_is_over_its_share_from_the_share_on() -> None:
    assert over_share(0.3, 0.3)
    assert not over_share(0.29, 0.3)


def test_two_fifths_of_the_target_are_time_to_spare() -> None:
    assert has_time_to_spare(4.0, 10.0)
    assert not has_time_to_spare(3.99, 10.0)
