"""Whether a queue is persistently too slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.overload import (
    NO_DELAYS,
    OverloadRules,
    QueueDelays,
    interval_seconds,
    observed,
    overloaded,
    target_seconds,
)

TARGET, INTERVAL = 0.025, 0.5
SEEN = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.02, 0.03, 2.0])), max_size=60)
"""Gaps in sixteenths of a second, and delays."""


def timeline(seen: list[tuple[int, float]]) -> list[tuple[float, float]]:
    now, times = 0.0, []
    for gap, delay in seen:
        now += gap / 16
        times.append((now, delay))
    return times


def after(seen: list[tuple[float, float]]) -> QueueDelays:
    delays = NO_DELAYS
    for now, delay in seen:
        delays = observed(delays, delay, now, TARGET, INTERVAL)
    return delays


@given(SEEN)
def test_overloaded_means_that_no_delay_of_the_last_interval_was_at_or_below_the_target(
    seen: list[tuple[int, float]],
) -> None:
    times = timeline(seen)
    if times and overloaded(after(times), times[-1][0], INTERVAL):
        last = times[-1][0]
        assert min(delay for now, delay in times if now > last - INTERVAL) > TARGET
        assert any(now <= last - INTERVAL for now, _ in times)


@given(SEEN)
def test_one_short_delay_ends_it_at_once(seen: list[tuple[int, float]]) -> None:
    times = timeline(seen)
    now = times[-1][0] if times else 0.0
    calm = observed(after(times), TARGET, now, TARGET, INTERVAL)
    assert not overloaded(calm, now, INTERVAL)


@given(SEEN, st.integers(1, 8))
def test_a_queue_that_stands_for_an_interval_is_found_whatever_was_before(
    seen: list[tuple[int, float]], gap: int
) -> None:
    times = timeline(seen)
    start = times[-1][0] if times else 0.0
    count = 8 // gap + 1
    times += [(start + step * gap / 16, 1.0) for step in range(count + 1)]
    assert overloaded(after(times), times[-1][0], INTERVAL)


def test_a_verdict_is_no_older_than_an_interval() -> None:
    delays = after([(0.0, 1.0), (0.25, 1.0), (0.5, 1.0)])
    assert overloaded(delays, 1.0, INTERVAL) and not overloaded(delays, 1.1, INTERVAL)
    assert not overloaded(after([(0.0, 1.0), (0.5, 1.0), (1.1, 1.0)]), 1.1, INTERVAL)
    assert not overloaded(NO_DELAYS, 0.0, INTERVAL)


@pytest.mark.parametrize(
    ("budget", "rules", "target", "interval"),
    [
        (0.3, OverloadRules(), 0.02, 0.5),
        (0.5, OverloadRules(), 0.025, 0.5),
        (30.0, OverloadRules(), 1.5, 15.0),
        (0.3, OverloadRules(target_floor_seconds=0.1), 0.1, 0.5),
        (0.5, OverloadRules(target_share=0.5), 0.25, 0.5),
        (0.5, OverloadRules(interval_floor_seconds=0.1), 0.025, 0.25),
        (0.5, OverloadRules(interval_share=2.0), 0.025, 1.0),
    ],
)
def test_target_and_interval_follow_the_budget(
    budget: float, rules: OverloadRules, target: float, interval: float
) -> None:
    assert target_seconds(budget, rules) == pytest.approx(target)
    assert interval_seconds(budget, rules) == pytest.approx(interval)
