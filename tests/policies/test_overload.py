"""Whether a queue stands, and the share that is refused of it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.overload import (
    MAX_SHARE,
    NO_DELAYS,
    Delays,
    OverloadRules,
    excess_share,
    interval_seconds,
    is_standing,
    observed,
    tick_seconds,
)

RULES = OverloadRules()
INTERVAL = 0.5
SEEN = st.lists(st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.3, 0.31, 2.0])), max_size=60)
"""Gaps in sixteenths of a second, and delays."""


def timeline(seen: list[tuple[int, float]]) -> list[tuple[float, float]]:
    now, times = 0.0, []
    for gap, delay in seen:
        now += gap / 16
        times.append((now, delay))
    return times


def after(seen: list[tuple[float, float]]) -> Delays:
    delays = NO_DELAYS
    for now, delay in seen:
        delays = observed(delays, delay, now, INTERVAL, RULES)
    return delays


@given(SEEN)
def test_a_queue_stands_only_if_no_delay_of_the_last_interval_was_allowed(
    seen: list[tuple[int, float]],
) -> None:
    times = timeline(seen)
    if times and is_standing(after(times), times[-1][0], INTERVAL):
        last = times[-1][0]
        assert min(delay for now, delay in times if now > last - INTERVAL) > RULES.standing_share
        assert any(now <= last - INTERVAL for now, _ in times)


@given(SEEN)
def test_one_short_delay_ends_it_at_once(seen: list[tuple[int, float]]) -> None:
    times = timeline(seen)
    now = times[-1][0] if times else 0.0
    calm = observed(after(times), RULES.standing_share, now, INTERVAL, RULES)
    assert not is_standing(calm, now, INTERVAL)


def test_what_is_known_is_when_a_run_began_and_when_a_delay_was_last_seen() -> None:
    long, allowed = 0.31, 0.3
    run = observed(NO_DELAYS, long, 1.0, INTERVAL, RULES)
    assert run == Delays(1.0, 1.0)
    assert observed(run, long, 1.5, INTERVAL, RULES) == Delays(1.0, 1.5)
    assert observed(run, long, 1.6, INTERVAL, RULES) == Delays(1.6, 1.6), "after a silence"
    assert observed(run, allowed, 1.5, INTERVAL, RULES) == Delays(inf, 1.5)


def test_where_no_burst_is_absorbed_one_long_delay_is_a_queue_until_it_is_old() -> None:
    one = after([(1.0, 0.31)])
    assert not is_standing(one, 1.0, INTERVAL)
    assert is_standing(one, 1.0, INTERVAL, absorbs_bursts=False)
    assert is_standing(one, 1.0 + INTERVAL, INTERVAL, absorbs_bursts=False)
    assert not is_standing(one, 1.1 + INTERVAL, INTERVAL, absorbs_bursts=False)
    assert not is_standing(after([(1.0, 0.3)]), 1.0, INTERVAL, absorbs_bursts=False)


@given(SEEN, st.integers(1, 8))
def test_a_queue_that_stands_for_an_interval_is_found_whatever_was_before(
    seen: list[tuple[int, float]], gap: int
) -> None:
    times = timeline(seen)
    start = times[-1][0] if times else 0.0
    count = 8 // gap + 1
    times += [(start + step * gap / 16, 1.0) for step in range(count + 1)]
    assert is_standing(after(times), times[-1][0], INTERVAL)


def test_a_verdict_is_no_older_than_an_interval() -> None:
    delays = after([(0.0, 1.0), (0.25, 1.0), (0.5, 1.0)])
    assert is_standing(delays, 1.0, INTERVAL) and not is_standing(delays, 1.1, INTERVAL)
    assert not is_standing(after([(0.0, 1.0), (0.5, 1.0), (1.1, 1.0)]), 1.1, INTERVAL)
    assert not is_standing(NO_DELAYS, 0.0, INTERVAL)


@pytest.mark.parametrize(
    ("target", "rules", "interval", "tick"),
    [
        (0.3, RULES, 0.5, 0.0375),
        (0.05, RULES, 0.5, 0.02),
        (30.0, RULES, 15.0, 3.75),
        (0.5, replace(RULES, standing_seconds=0.1), 0.25, 0.0625),
        (0.5, replace(RULES, standing_seconds=3.0), 3.0, 0.0625),
    ],
)
def test_interval_and_tick_follow_the_latency_target(
    target: float, rules: OverloadRules, interval: float, tick: float
) -> None:
    assert interval_seconds(target, rules) == pytest.approx(interval)
    assert tick_seconds(target) == pytest.approx(tick)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0.01, 1))
def test_the_share_is_bounded_and_grows_with_the_delay(
    asked: float, served: float, delay: float, allowed: float
) -> None:
    rules = OverloadRules(allowed)
    share = excess_share(asked, served, delay, rules)
    assert share <= MAX_SHARE
    assert share <= excess_share(asked, served, delay + 0.1, rules)


@pytest.mark.parametrize(
    ("asked", "served", "delay", "share"),
    [
        (100.0, 100.0, 0.3, 0.0),
        (200.0, 100.0, 0.3, 0.5),
        (200.0, 100.0, 0.4, 0.6),
        (200.0, 100.0, 0.25, 0.45),
        (200.0, 100.0, 9.9, 0.75),
        (200.0, 100.0, 0.0, 0.4),
        (50.0, 100.0, 0.3, -1.0),
        (50.0, 0.0, 0.3, MAX_SHARE),
        (0.0, 0.0, 9.9, 0.0),
    ],
)
def test_refused_is_what_exceeds_what_is_served_and_some_more_where_the_queue_is_too_long(
    asked: float, served: float, delay: float, share: float
) -> None:
    assert excess_share(asked, served, delay, RULES) == pytest.approx(share)


def test_a_small_demand_has_an_excess_too() -> None:
    assert excess_share(0.5, 0.25, 2.0, OverloadRules()) == pytest.approx(
        excess_share(500.0, 250.0, 2.0, OverloadRules())
    )
