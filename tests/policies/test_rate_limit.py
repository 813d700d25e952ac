"""A token bucket that lets so many requests in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.rate_limit import FULL, Bucket, RateLimitRules, taken, wait_seconds

RULES = RateLimitRules()


def test_a_full_bucket_gives_a_burst_and_then_one_at_a_time() -> None:
    bucket, count = FULL, 0
    while (after := taken(bucket, 10.0, 0.0, RULES)) is not None:
        bucket, count = after, count + 1
    assert count == 10
    assert taken(bucket, 10.0, 0.09, RULES) is None
    assert taken(bucket, 10.0, 0.11, RULES) is not None
    assert wait_seconds(bucket, 10.0, 0.0, RULES) == pytest.approx(0.1)
    assert wait_seconds(bucket, 10.0, 0.06, RULES) == pytest.approx(0.04)
    assert wait_seconds(FULL, 10.0, 0.0, RULES) == 0.0


def test_the_burst_is_so_many_seconds_of_the_rate_and_one_request_at_least() -> None:
    def burst(rate: float, rules: RateLimitRules) -> int:
        bucket, count = FULL, 0
        while (after := taken(bucket, rate, 0.0, rules)) is not None:
            bucket, count = after, count + 1
        return count

    assert burst(10.0, RateLimitRules(burst_seconds=3.0)) == 30
    assert burst(0.1, RULES) == 1


def test_a_clock_that_went_back_gives_nothing() -> None:
    bucket = Bucket(10.0, 5.0)
    assert taken(bucket, 10.0, 4.0, RULES) is None


@given(st.floats(1, 200), st.lists(st.floats(0, 0.5), min_size=1, max_size=300))
def test_over_any_time_no_more_than_the_burst_and_the_rate_are_let_in_and_who_waits_as_told_is_let_in(
    rate: float, gaps: list[float]
) -> None:
    bucket, now, let_in = FULL, 0.0, []
    for gap in gaps:
        now += gap
        after = taken(bucket, rate, now, RULES)
        if after is None:
            later = now + wait_seconds(bucket, rate, now, RULES) + 1e-6
            assert taken(bucket, rate, later, RULES) is not None
            continue
        bucket = after
        let_in.append(now)
    for first, start in enumerate(let_in):
        for count, at in enumerate(let_in[first:], 1):
            assert count <= max(1.0, rate) + rate * (at - start) + 1e-6
