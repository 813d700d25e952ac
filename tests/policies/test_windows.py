"""How many requests one backend may hold at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.windows import (
    Window,
    WindowRules,
    gathered,
    gathers_until,
    pushed_back,
    reported,
    sampled,
    started,
)

RULES = WindowRules(start=8, min=4, max=32)
Event = tuple[str, float, float, int]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["finishes", "report", "unknown", "push", "pause"]),
        st.floats(0.0, 2.0),
        st.floats(0.0, 1.0),
        st.integers(0, 64),
    ),
    max_size=40,
)
"""What happens, seconds in the engine, KV usage, and requests: in flight or waiting in the engine."""


def full(window: Window, seconds: float, count: int, now: float, rules: WindowRules = RULES) -> Window:
    """`count` requests that end within two seconds, all with a full window."""
    for index in range(count):
        window = sampled(window, seconds, int(window.limit), now + 2.0 * index / count, rules)
    return window


def walked(events: list[Event], rules: WindowRules) -> list[tuple[Window, float]]:
    window, now, seen = started(rules), 0.0, []
    for what, seconds, kv_usage, requests in events:
        now += 0.01
        if what == "finishes":
            for _ in range(25):
                now += 0.05
                window = sampled(window, seconds, requests, now, rules)
                seen.append((window, now))
        elif what == "report":
            window = reported(window, requests, kv_usage, now, rules)
        elif what == "unknown":
            window = reported(window, None, None, now, rules)
        elif what == "push":
            window = pushed_back(window, now, rules)
        else:
            now += 100.0 * seconds
        seen.append((window, now))
    return seen


@given(
    EVENTS, st.integers(1, 40), st.integers(1, 32), st.integers(0, 32), st.sampled_from([0.2, float("inf")])
)
def test_the_limit_stays_between_min_and_max(
    events: list[Event], start: int, least: int, more: int, target: float
) -> None:
    rules = WindowRules(start, least, least + more, target)
    assert all(rules.min <= window.limit <= rules.max for window, _ in walked(events, rules))


@given(EVENTS, st.integers(1, 32))
def test_min_and_max_in_one_are_a_fixed_window_that_never_moves(events: list[Event], size: int) -> None:
    rules = WindowRules(8, size, size)
    assert all(window == started(rules) for window, _ in walked(events, rules))
    assert started(rules).limit == size


@given(EVENTS)
def test_an_idle_time_changes_nothing_and_one_request_after_it_neither(events: list[Event]) -> None:
    seen = walked([*events, ("pause", 0.0, 0.0, 0)], RULES)
    window, now = seen[-1]
    assert sampled(window, 0.2, 1, now + 3600.0, RULES).limit == window.limit


@given(EVENTS, st.floats(0.91, 1.0))
def test_a_full_kv_cache_never_lets_it_grow(events: list[Event], kv_usage: float) -> None:
    window, now = (walked(events, RULES) or [(started(RULES), 0.0)])[-1]
    for index in range(200):
        now += 0.05
        window = reported(window, None, kv_usage, now, RULES)
        after = sampled(window, 0.01 + index / 1000, int(window.limit), now, RULES)
        assert after.limit <= window.limit
        window = after


@given(EVENTS, st.lists(st.floats(0.0, 0.5), min_size=1, max_size=40))
def test_backpressure_shrinks_by_a_tenth_at_most_once_per_mean_service(
    events: list[Event], gaps: list[float]
) -> None:
    window, now = (walked(events, RULES) or [(started(RULES), 0.0)])[-1]
    shrunk_at = None
    for gap in gaps:
        now += gap
        before, window = window, pushed_back(window, now, RULES)
        assert window.limit in (before.limit, max(before.limit * 0.9, RULES.min))
        if window.limit < before.limit:
            assert shrunk_at is None or now - shrunk_at >= before.control.mean_seconds
            shrunk_at = now


def test_it_starts_where_it_is_told_within_its_bounds() -> None:
    assert [started(replace(RULES, start=start)).limit for start in (1, 8, 99)] == [4, 8, 32]


def test_a_full_window_without_a_queue_grows_and_a_half_empty_one_does_not() -> None:
    window = full(started(RULES), 0.15, 40, 0.0)
    assert window.limit > 8
    half = started(RULES)
    for index in range(40):
        half = sampled(half, 0.15, 4, index / 20, RULES)
    assert half.limit == 8


@pytest.mark.parametrize(
    ("count", "gap", "moves"), [(19, 0.1, False), (21, 0.1, True), (4, 2.0, True), (4, 1.0, False)]
)
def test_an_interval_needs_twenty_samples_or_three_in_five_seconds(
    count: int, gap: float, moves: bool
) -> None:
    window = started(RULES)
    for index in range(count):
        window = sampled(window, 0.15, 8, index * gap, RULES)
    assert (window.limit != 8) == moves


@pytest.mark.parametrize(("seconds", "limit"), [(15.0, 5), (15.1, 8)])
def test_a_run_of_reports_of_a_queue_is_forgotten_when_it_gets_old(seconds: float, limit: float) -> None:
    window = started(RULES)
    for report in range(3):
        window = reported(window, 6, None, report * seconds, RULES)
    assert window.limit == limit


def test_a_queue_in_three_reports_in_a_row_takes_half_of_it_off_the_limit() -> None:
    window = started(replace(RULES, start=20))
    limits = []
    for waiting in (6, 6, 0, 6, None, 6, 6, 6):
        window = reported(window, waiting, None, 0.0, RULES)
        limits.append(window.limit)
    assert limits == [20, 20, 20, 20, 20, 20, 17, 17]


def test_an_unknown_kv_usage_is_not_an_empty_cache() -> None:
    known = reported(started(RULES), None, 0.95, 0.0, RULES)
    assert full(reported(known, None, None, 0.1, RULES), 0.15, 30, 0.2).limit == 8
    assert full(reported(known, None, 0.5, 0.1, RULES), 0.15, 30, 0.2).limit > 8
    assert full(known, 0.15, 30, 4.0).limit > 8, "what was heard three seconds ago is no longer known"


def test_a_target_stops_growth_at_eight_tenths_and_shrinks_beyond_twelve() -> None:
    def limit(seconds: float) -> float:
        rules = replace(RULES, target_seconds=1.0)
        return full(started(rules), seconds, 40, 0.0, rules).limit

    assert limit(0.7) > 8
    assert limit(0.9) == 8
    assert limit(1.1) == 8
    assert limit(1.3) == pytest.approx(7.2)


def test_after_it_shrank_for_the_target_it_rests_for_one_interval() -> None:
    rules = replace(RULES, target_seconds=0.1)
    window = started(rules)
    limits: list[float] = []
    for index in range(200):
        window = sampled(window, 0.2, 8, index / 20, rules)
        if not limits or limits[-1] != window.limit:
            limits.append(window.limit)
    assert limits == pytest.approx([8, 7.2, 6.48, 5.832, 5.2488, 4.72392])


@given(
    st.lists(st.tuples(st.floats(0.01, 1.0), st.integers(1, 16), st.floats(0.001, 0.2)), max_size=300),
)
def test_samples_that_are_gathered_move_a_window_as_they_would_one_by_one(
    samples: list[tuple[float, int, float]],
) -> None:
    one_by_one = together = started(RULES)
    kept: list[tuple[float, int]] = []
    now = 0.0
    for seconds, in_flight, pause in samples:
        now += pause
        one_by_one = sampled(one_by_one, seconds, in_flight, now, RULES)
        if now < gathers_until(together):
            kept.append((seconds, in_flight))
            continue
        together = sampled(gathered(together, kept), seconds, in_flight, now, RULES)
        kept.clear()
    assert gathered(together, kept) == one_by_one
