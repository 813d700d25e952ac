"""How long a backend takes at which number in flight, and where it does best."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.concurrency_profile import UNKNOWN, Profile, best_in_flight, bucket, measured


def seconds_at(in_flight: float, slots: int, slowness: float = 1.0) -> float:
    batch = min(in_flight, slots)
    return slowness * (0.110 + 0.00525 * batch) * max(1.0, in_flight / slots)


def visited(numbers: list[int], slots: int, slowness: float = 1.0) -> Profile:
    profile = UNKNOWN
    for turn, number in enumerate(numbers):
        profile = measured(profile, number, seconds_at(number, slots, slowness), float(turn))
    return profile


@given(st.permutations([8, 10, 13, 16, 20, 25]), st.floats(0.1, 10.0))
def test_the_best_number_is_the_engines_batch_whatever_the_way_and_the_speed(
    numbers: list[int], slowness: float
) -> None:
    steps = [number for pair in itertools.pairwise(numbers) for number in pair]
    assert best_in_flight(visited(sorted(numbers) + steps, 16, slowness)) == 16


def test_a_slower_engine_shows_at_once_and_is_the_new_normal_minutes_later() -> None:
    profile = visited([12, 14, 16, 18, 16, 16, 16, 16], 16)
    assert profile.slowdown == pytest.approx(1.0, abs=0.01)
    slow = profile
    for turn in range(8, 14):
        slow = measured(slow, 16, seconds_at(16, 16, 3.0), float(turn))
    assert slow.slowdown > 2
    assert best_in_flight(slow) == 16, "the shape is the same"
    for turn in range(14, 314):
        slow = measured(slow, 16, seconds_at(16, 16, 3.0), float(turn))
    assert slow.slowdown == pytest.approx(1.0, abs=0.05)


def test_an_engine_that_comes_back_is_normal_within_a_few_intervals() -> None:
    profile = visited([14, 16, 16, 16], 16, 3.0)
    for turn in range(4, 12):
        profile = measured(profile, 16, seconds_at(16, 16), float(turn))
    assert profile.slowdown <= 1.0


@given(st.floats(1.0, 5000.0), st.floats(1.0, 5000.0))
def test_buckets_rise_with_the_number(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert bucket(low) <= bucket(high)
