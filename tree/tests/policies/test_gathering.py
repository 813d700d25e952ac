"""Whether requests are held so that an engine gets a batch."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.gathering import GatheringRules, group_size, hold_seconds
from policies.terms import Lane

RULES = GatheringRules()
LANES = st.sampled_from(Lane)
URGENT = st.sampled_from([Lane.EMERGENCY, Lane.INTERACTIVE])
COUNTS = st.integers(0, 40)
SECONDS = st.floats(0, 1)
RATES = st.sampled_from([0.0, 5.0, 30.0, 1000.0])
ANY_RULES = st.builds(GatheringRules, st.integers(1, 10), st.integers(1, 30), st.floats(0, 1), st.booleans())


@given(URGENT, COUNTS, SECONDS, COUNTS, COUNTS, RATES, ANY_RULES)
def test_latency_sensitive_requests_are_never_held(
    lane: Lane, waiting: int, oldest: float, free: int, running: int, rate: float, rules: GatheringRules
) -> None:
    assert hold_seconds(lane, waiting, oldest, inf, free, running, rate, rules) == 0.0


@pytest.mark.parametrize("lane", Lane)
def test_only_the_throughput_lanes_are_gathered(lane: Lane) -> None:
    held = hold_seconds(lane, 1, 0.0, inf, 16, 0, 100.0, RULES)
    assert held == (0.1 if lane in (Lane.STANDARD, Lane.BATCH) else 0.0)


@given(LANES, COUNTS, SECONDS, st.floats(-1, 1), COUNTS, COUNTS, RATES, ANY_RULES)
def test_nobody_is_held_beyond_the_gathering_time_nor_into_its_deadline(
    lane: Lane,
    waiting: int,
    oldest: float,
    slack: float,
    free: int,
    running: int,
    rate: float,
    rules: GatheringRules,
) -> None:
    hold = hold_seconds(lane, waiting, oldest, slack, free, running, rate, rules)
    assert hold >= 0.0
    if hold:
        assert oldest + hold <= rules.gather_seconds + 1e-9
        assert hold <= slack


@given(LANES, COUNTS, SECONDS, COUNTS, COUNTS, RATES, ANY_RULES)
def test_requests_are_held_only_for_a_batch_that_is_too_small_and_may_still_grow(
    lane: Lane, waiting: int, oldest: float, free: int, running: int, rate: float, rules: GatheringRules
) -> None:
    if hold_seconds(lane, waiting, oldest, inf, free, running, rate, rules):
        assert waiting + running < rules.min_requests
        assert waiting < free


@given(COUNTS, COUNTS, ANY_RULES)
def test_a_group_fits_the_slots_and_the_limit(waiting: int, free: int, rules: GatheringRules) -> None:
    size = group_size(waiting, free, rules)
    assert size == min(waiting, free, rules.max_requests)
    assert group_size(waiting, -3, rules) == 0


@given(st.integers(1, 200))
def test_traffic_that_cannot_fill_a_batch_in_time_is_not_delayed_at_all(rate: int) -> None:
    hold = hold_seconds(Lane.BATCH, 1, 0.0, inf, 16, 0, float(rate), RULES)
    assert bool(hold) == (rate * RULES.gather_seconds >= 3)


@pytest.mark.parametrize(
    ("waiting", "oldest", "slack", "free", "running", "rate", "hold"),
    [
        (1, 0.0, inf, 16, 0, 100.0, 0.1),
        (1, 0.03, inf, 16, 0, 100.0, 0.07),
        (1, 0.03, 0.05, 16, 0, 100.0, 0.05),
        (3, 0.0, inf, 16, 0, 100.0, 0.1),
        (4, 0.0, inf, 16, 0, 100.0, 0.0),
        (1, 0.0, inf, 16, 0, 30.0, 0.1),
        (2, 0.0, inf, 14, 2, 100.0, 0.0),  # joins a batch that is running
        (2, 0.0, inf, 2, 0, 100.0, 0.0),  # no room for more
        (1, 0.0, inf, 2, 0, 15.0, 0.1),  # two slots, and the second request will be there
        (1, 0.1, inf, 16, 0, 100.0, 0.0),
        (1, 0.0, -1.0, 16, 0, 100.0, 0.0),
        (1, 0.08, inf, 16, 0, 100.0, 0.0),  # two more are expected, three are missing
    ],
)
def test_examples(
    waiting: int, oldest: float, slack: float, free: int, running: int, rate: float, hold: float
) -> None:
    held = hold_seconds(Lane.STANDARD, waiting, oldest, slack, free, running, rate, RULES)
    assert held == pytest.approx(hold)


def test_each_setting_counts() -> None:
    arguments = Lane.BATCH, 2, 0.0, inf, 16, 0, 1.0
    assert hold_seconds(*arguments, RULES) == 0.0
    assert hold_seconds(*arguments, GatheringRules(dynamic_scaling=False)) == 0.1
    assert hold_seconds(*arguments, GatheringRules(dynamic_scaling=False, gather_seconds=0.3)) == 0.3
    assert hold_seconds(*arguments, GatheringRules(dynamic_scaling=False, min_requests=2)) == 0.0
    assert group_size(30, 30, GatheringRules(max_requests=7)) == 7
