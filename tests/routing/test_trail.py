"""What counters gained, and the most that was seen, in a span of time that ends now."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.peak import Peak
from routing.trail import POINTS, Trail


def test_nothing_is_known_until_there_are_two_looks() -> None:
    trail = Trail(60.0)
    assert trail.gained() is None
    trail.note((5, 7), 0.0)
    assert trail.gained() is None, "what was counted before nobody looked may be of any age"
    trail.note((6, 9), 1.0)
    assert trail.gained() == (1, 2)


def test_what_was_gained_leaves_the_span_in_time() -> None:
    trail = Trail(60.0)
    trail.note((0,), 0.0)
    trail.note((8,), 1.0)
    for second in range(2, 61):
        trail.note((8,), float(second))
        assert trail.gained() == (8,)
    trail.note((8,), 61.0)
    assert trail.gained() == (0,)


def test_a_look_after_a_long_time_counts_what_was_gained_since_the_last_one() -> None:
    trail = Trail(60.0)
    trail.note((0,), 0.0)
    trail.note((5,), 1.0)
    trail.note((9,), 1000.0)
    assert trail.gained() == (4,)


@given(
    st.floats(0.1, 1000.0),
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 9)), min_size=2, max_size=300),
)
def test_the_gain_is_that_of_the_span_give_or_take_one_point_in_bounded_space(
    seconds: float, steps: list[tuple[float, int]]
) -> None:
    trail = Trail(seconds)
    moments = list(accumulate(wait * seconds / POINTS for wait, _ in steps))
    counts = list(accumulate(gain for _, gain in steps))
    for now, count in zip(moments, counts, strict=True):
        trail.note((count,), now)
        assert len(trail._points) <= POINTS + 2
    now = moments[-1]
    if now == moments[0]:
        assert trail.gained() is None
        return

    def gained_since(moment: float) -> int:
        """Since the last look until then, or the first of all."""
        before = [count for at, count in zip(moments, counts, strict=True) if at <= moment]
        return counts[-1] - (before or counts)[-1 if before else 0]

    begins = max((at for at in moments if at <= now - seconds), default=moments[0])
    (gained,) = trail.gained() or (None,)
    assert gained is not None
    assert gained_since(now - seconds) <= gained <= gained_since(begins - 1.001 * seconds / POINTS)


def test_a_peak_stays_for_its_span_and_a_lower_one_shows_then() -> None:
    peak = Peak(60.0)
    assert peak.largest(0.0) is None
    peak.note(0.5, 0.0)
    peak.note(0.2, 30.0)
    peak.note(0.1, 30.5)
    assert peak.largest(60.0) == 0.5
    assert peak.largest(61.0) == 0.2
    assert peak.largest(91.0) is None


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 9.0)), min_size=1, max_size=300))
def test_a_peak_is_that_of_the_span_give_or_take_one_point_in_bounded_space(
    steps: list[tuple[float, float]],
) -> None:
    peak = Peak(60.0)
    moments = list(accumulate(wait for wait, _ in steps))
    for now, (_, value) in zip(moments, steps, strict=True):
        peak.note(value, now)
        assert len(peak._points) <= POINTS + 2
    now = moments[-1]

    def most_since(moment: float) -> float:
        return max(value for at, (_, value) in zip(moments, steps, strict=True) if at > moment)

    largest = peak.largest(now)
    assert largest is not None
    assert most_since(now - 59.9) <= largest <= most_since(now - 62.1)


@pytest.mark.parametrize("seconds", [0.1, 604_800.0])
def test_however_often_it_is_noted_space_is_bounded(seconds: float) -> None:
    trail, peak = Trail(seconds), Peak(seconds)
    for number in range(5000):
        now = number * seconds / 1000
        trail.note((number,), now)
        peak.note(number, now)
    assert len(trail._points) <= POINTS + 2 and len(peak._points) <= POINTS + 2
    assert trail.gained() == pytest.approx((1000,), rel=2 / POINTS)
