"""How many requests one backend may hold at once."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log10

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.service_lines import Level, ServiceLine
from policies.windows import (
    Control,
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
    ("count", "gap", "moves"),
    [
        (19, 0.1, False),
        (20, 0.1, True),
        (40, 0.02, False),
        (4, 2.0, True),
        (4, 1.0, False),
        (3, 2.5, True),
        (2, 5.0, False),
    ],
)
def test_an_interval_needs_twenty_samples_or_three_in_five_seconds(
    count: int, gap: float, moves: bool
) -> None:
    window = started(RULES)
    for index in range(count):
        window = sampled(window, 0.15, 8, index * gap, RULES)
    assert (window.limit != 8) == moves


@pytest.mark.parametrize(("elapsed", "moves"), [(19.9, False), (20.0, True)])
def test_where_a_service_takes_long_so_does_the_wait_for_three_samples(elapsed: float, moves: bool) -> None:
    window = Window(20.0, NOW, 2, 40, 0.4, 0.08, control=SETTLED._replace(mean_seconds=2.0))
    assert (sampled(window, 0.2, 20, NOW + elapsed, WIDE).limit > 20.0) is moves


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


def test_one_request_that_waits_is_a_queue_and_a_queue_ends_a_halving() -> None:
    window = Window(20.0, NOW, control=SETTLED._replace(probing=2, resume=40.0))
    for _ in range(3):
        window = reported(window, 1, None, NOW, WIDE)
    assert (window.limit, window.control.probing) == (19.5, 0)


def test_a_kv_cache_is_full_above_nine_tenths() -> None:
    assert reported(started(RULES), None, 0.9, 0.0, RULES).control.kv_full_until == -inf
    assert reported(started(RULES), None, 0.91, 0.0, RULES).control.kv_full_until == 3.0


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


# --- one control interval, by the formulas ------------------------------------------------------------------------------------------

WIDE = WindowRules(start=20, min=1, max=100)
LEVELS = {8: Level(8.0, 0.14, 20.0), 20: Level(20.0, 0.2, 20.0)}
LINE = ServiceLine(0.1, 0.005, tuple(LEVELS.get(number, Level()) for number in range(40)))
"""0.2 s with 20 in flight."""
NOW = 5000.0
SETTLED = Control(LINE, queued_once=True, mean_seconds=0.2, high=20.0, low_seen_at=NOW - 10.0)
STEP = log10(20.0)


def evaluated(
    seconds: float,
    control: Control = SETTLED,
    in_flight: int = 20,
    limit: float = 20.0,
    rules: WindowRules = WIDE,
    deviation: float = 0.0,
) -> Window:
    """An interval of forty samples with this mean and this deviation ends."""
    window = Window(limit, NOW - 1.0, control=control)
    pairs = [(seconds - deviation, in_flight), (seconds + deviation, in_flight)] * 20
    window = gathered(window, pairs[:-1])
    return sampled(window, *pairs[-1], NOW, rules)


@pytest.mark.parametrize(
    ("seconds", "before", "slowdown", "limit"),
    [
        (0.2, 1.0, 1.0, 20.0 + STEP),
        (0.22, 1.0, 1.08, 20.0 + STEP),
        (0.25, 1.0, 1.2, 20.0),
        (0.3, 1.0, 1.4, 20.0 - STEP),
        (0.2, 2.0, 1.6, 20.0 - STEP),
        (0.01, 1.0, 0.64, 20.0 + STEP),
    ],
)
def test_the_queue_is_worked_out_from_the_slowdown_and_moves_the_limit_by_a_step(
    seconds: float, before: float, slowdown: float, limit: float
) -> None:
    window = evaluated(seconds, SETTLED._replace(slowdown=before))
    assert window.control.slowdown == pytest.approx(slowdown)
    assert window.limit == pytest.approx(limit)
    assert (window.since, window.samples) == (NOW, 0)
    assert window.control.mean_seconds == pytest.approx(seconds)
    assert window.control.line == LINE, (
        "with a queue once seen and a full window nothing is learnt of the line"
    )


def test_an_interval_leaves_what_reports_said() -> None:
    told = SETTLED._replace(
        kv_full_until=NOW, waiting_reports=2, queued_since=NOW - 3.0, pushed_back_at=NOW - 4.0
    )
    window = evaluated(0.2, told)
    assert window.control[-4:] == (NOW, 2, NOW - 3.0, NOW - 4.0)
    assert window.limit > 20.0, "a full cache is forgotten when its time is over"
    assert evaluated(0.2, told._replace(kv_full_until=NOW + 0.1)).limit == 20.0


@pytest.mark.parametrize(("in_flight", "grows"), [(15, True), (14, False)])
def test_it_grows_where_three_quarters_of_it_are_used(in_flight: int, grows: bool) -> None:
    window = evaluated(0.1 + 0.005 * in_flight, in_flight=in_flight)
    assert window.limit == pytest.approx(20.0 + STEP * grows)


def test_a_small_limit_moves_by_half_a_slot_at_least() -> None:
    assert evaluated(0.11, in_flight=2, limit=2.0).limit == pytest.approx(2.0 + log10(3.0))


def test_it_rests_for_an_interval_after_it_shrank_for_the_target() -> None:
    assert evaluated(0.3, SETTLED._replace(resting=True)).limit == 20.0
    assert evaluated(0.2, SETTLED._replace(resting=True)).limit == 20.0
    targeted = replace(WIDE, target_seconds=0.1)
    shrunk = evaluated(0.2, rules=targeted)
    assert (shrunk.limit, shrunk.control.resting) == (18.0, True)
    again = evaluated(0.2, SETTLED._replace(resting=True), rules=targeted)
    assert (again.limit, again.control.resting) == (20.0, False)


@pytest.mark.parametrize(
    ("deviation", "limit"),
    [(0.0, 20.0 + STEP), (0.019, 20.0 + STEP), (0.025, 20.0), (0.06, 20.0), (0.1, 18.0)],
)
def test_the_target_is_held_against_the_mean_and_its_deviation(deviation: float, limit: float) -> None:
    rules = replace(WIDE, target_seconds=0.2 / 0.8 + 0.04)
    assert evaluated(0.2, rules=rules, deviation=deviation).limit == pytest.approx(limit)


def test_ten_minutes_without_a_low_it_is_halved_for_three_intervals_and_put_back() -> None:
    assert evaluated(0.2, SETTLED._replace(low_seen_at=NOW - 600.0)).control.probing == 0
    window = evaluated(0.2, SETTLED._replace(low_seen_at=NOW - 600.1))
    assert (window.limit, window.control.probing, window.control.resume) == (10.0, 3, 20.0)
    probing = window.control
    for left in (2, 1):
        window = evaluated(0.15, probing._replace(probing=left + 1), in_flight=10, limit=10.0)
        assert (window.limit, window.control.probing) == (10.0, left)
    last = probing._replace(probing=1)
    assert evaluated(0.15, last, in_flight=10, limit=10.0).limit == 20.0
    full = last._replace(kv_full_until=NOW + 1.0)
    assert evaluated(0.15, full, in_flight=10, limit=10.0).limit == 10.0


@pytest.mark.parametrize(
    ("in_flight", "limit", "control", "is_low"),
    [
        (12, 20.0, SETTLED, True),
        (13, 20.0, SETTLED, False),
        # What it once was is forgotten slowly.
        (20, 20.0, SETTLED._replace(high=34.0), True),
        (20, 20.0, SETTLED._replace(high=33.35), False),
        # While it is halved its own low counts against what it is to be put back to.
        (12, 10.0, SETTLED._replace(high=1.0, probing=2, resume=20.0), True),
        (12, 10.0, SETTLED._replace(high=1.0, probing=0, resume=20.0), False),
    ],
)
def test_three_fifths_of_what_it_was_are_a_low(
    in_flight: int, limit: float, control: Control, is_low: bool
) -> None:
    window = evaluated(0.1 + 0.005 * in_flight, control, in_flight=in_flight, limit=limit)
    assert (window.control.low_seen_at == NOW) is is_low
    assert (window.control.line != LINE) is is_low, "only a low says how long a request takes without a queue"


def test_what_the_least_window_holds_is_always_a_low() -> None:
    rules = WindowRules(start=20, min=20, max=40)
    assert evaluated(0.2, rules=rules).control.low_seen_at == NOW
    assert evaluated(0.2, rules=replace(rules, min=19)).control.low_seen_at != NOW


def test_high_falls_a_little_in_each_interval_and_never_below_the_limit() -> None:
    assert evaluated(0.2, SETTLED._replace(high=50.0)).control.high == pytest.approx(50.0 * 0.998)
    assert evaluated(0.2, SETTLED._replace(high=10.0)).control.high == 20.0
    assert evaluated(0.15, SETTLED._replace(high=1.0, probing=2, resume=30.0), 10, 10.0).control.high == 30.0


def test_the_first_low_is_looked_for_after_a_minute_and_so_is_one_of_an_engine_that_became_faster() -> None:
    assert evaluated(0.2, SETTLED._replace(low_seen_at=-inf)).control.low_seen_at == NOW - 540.0
    faster = SETTLED._replace(slowdown=0.8)
    assert evaluated(0.15, faster).control.low_seen_at == NOW - 540.0
    assert evaluated(0.19, SETTLED).control.low_seen_at == NOW - 10.0


def test_a_faster_engine_moves_the_line() -> None:
    window = evaluated(0.15, SETTLED._replace(slowdown=0.84))
    assert window.control.line.base == pytest.approx(0.1 * (1.0 + 0.3 * (0.15 / 0.2 - 1.0)))
    assert evaluated(0.15, SETTLED._replace(slowdown=0.85)).control.line == LINE


def test_before_a_queue_was_seen_each_interval_is_learnt_and_the_first_queue_is_taken_out_of_the_line() -> (
    None
):
    fresh = SETTLED._replace(queued_once=False)
    quiet = evaluated(0.2, fresh).control
    assert not quiet.queued_once
    assert {level.in_flight for level in quiet.line.levels if level.weight} == {8.0, 20.0}
    queue = evaluated(1.0, fresh).control
    assert queue.queued_once
    assert {level.in_flight for level in queue.line.levels if level.weight} == {8.0}
    assert evaluated(0.2).control.queued_once, "once seen it is known for good"


def test_nothing_in_flight_counts_as_one() -> None:
    window = evaluated(0.105, in_flight=0)
    assert window.control.line.levels[0] == pytest.approx(Level(1.0, 0.105, 1.0))


def test_a_sample_counts_as_four_times_the_slowest_that_the_line_knows_at_most() -> None:
    cap = evaluated(0.2).cap_seconds
    assert cap == pytest.approx(4.0 * (0.1 + 0.005 * 100))
    window = Window(20.0, NOW, cap_seconds=cap, control=SETTLED)
    for after in (gathered(window, [(99.0, 3)]), sampled(window, 99.0, 3, NOW, WIDE)):
        assert (after.samples, after.in_flight_sum) == (1, 3)
        assert (after.seconds_sum, after.squares_sum) == (cap, cap * cap)


def test_samples_are_gathered_for_two_services_and_a_second_at_least() -> None:
    assert gathers_until(Window(20.0)) == -inf
    window = Window(20.0, NOW, control=SETTLED)
    assert gathers_until(window) == NOW + 1.0
    assert gathers_until(window._replace(control=SETTLED._replace(mean_seconds=3.0))) == NOW + 6.0


# --- between intervals --------------------------------------------------------------------------------------------------------------


def test_a_push_back_takes_a_tenth_down_to_the_least_and_ends_a_halving() -> None:
    window = Window(20.0, NOW, control=SETTLED._replace(probing=2))
    after = pushed_back(window, NOW, WIDE)
    assert (after.limit, after.control.probing, after.control.pushed_back_at) == (18.0, 0, NOW)
    assert pushed_back(after, NOW + 0.1, WIDE) is after
    assert pushed_back(after, NOW + 0.21, WIDE).limit == pytest.approx(16.2)
    assert pushed_back(after, NOW + 0.21, replace(WIDE, min=17)).limit == 17.0


def test_an_empty_queue_ends_a_run_and_an_old_run_begins_anew_with_the_report_that_comes() -> None:
    def limits(*reports: tuple[float, int]) -> list[float]:
        window, found = started(replace(RULES, start=20)), []
        for now, waiting in reports:
            window = reported(window, waiting, None, now, RULES)
            found.append(window.limit)
        return found

    assert limits((0, 6), (1, 0), (2, 6), (3, 6)) == [20, 20, 20, 20]
    assert limits((0, 6), (31, 6), (32, 6), (33, 6)) == [20, 20, 20, 17]


def test_it_starts_with_all_that_it_may_be_known_as_high() -> None:
    assert started(RULES).control.high == 8.0


@pytest.mark.parametrize(("silence", "samples"), [(60.0, 2), (60.1, 1)])
def test_after_ten_intervals_of_silence_what_was_gathered_is_dropped(silence: float, samples: int) -> None:
    window = Window(20.0, NOW, 1, 20, 3.0, 9.0, control=SETTLED._replace(mean_seconds=3.0))
    assert sampled(window, 3.0, 20, NOW + silence, WIDE).samples == samples
