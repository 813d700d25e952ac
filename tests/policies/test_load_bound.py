"""How much load a backend may have to be given a request for its cache's sake."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.load_bound import SLACK_REQUESTS, most_in_flight

SHARES = st.floats(0, 1000)
BOUNDS = st.floats(1, 10)


@given(SHARES, BOUNDS)
def test_it_is_c_times_the_share_or_a_few_more_than_it_where_the_share_is_small(
    share: float, bound: float
) -> None:
    most = most_in_flight(share, bound)
    assert most >= max(bound * share, share + SLACK_REQUESTS) - 1e-6
    assert most <= max(bound * share, share + SLACK_REQUESTS) + 1e-6


@given(SHARES, BOUNDS, st.floats(0, 1))
def test_it_closes_to_the_share_as_trust_goes(share: float, bound: float, trust: float) -> None:
    assert share <= most_in_flight(share, bound, trust) <= most_in_flight(share, bound)
    assert most_in_flight(share, bound, 0.0) == share
