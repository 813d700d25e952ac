"""When a circuit opens, for how long, and how it comes back: each rule just below its bound and just at it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.circuit import (
    Calls,
    CanaryOutcome,
    CircuitRules,
    TripCause,
    after_failure,
    is_bad,
    is_too_slow,
    less,
    let_back,
    lowered,
    open_seconds,
    raised,
    slow_start_share,
    summed,
)

RULES = CircuitRules()


def test_calls_add_up_by_kind_and_a_part_of_them_can_be_taken_out_again() -> None:
    one, other = Calls(10, 3, 2), Calls(100, 50, 25)
    assert summed([one, other, one]) == Calls(120, 56, 29)
    assert summed(iter([other])) == other
    assert summed([]) == Calls(0, 0, 0)
    assert less(summed([one, other]), other) == one


def cause(calls: int, failures: int, in_a_row: int = 1, sources: int = 2, is_served: bool = False) -> object:
    two = sources > 1
    return after_failure(Calls(calls, failures), in_a_row, two, two, lambda: is_served, RULES)


def too_slow(calls: int, slow: int, others: Calls) -> bool:
    return is_too_slow(Calls(calls, 0, slow), lambda: others, RULES)


@pytest.mark.parametrize(
    ("calls", "failures", "opens"),
    [(9, 9, False), (10, 4, False), (10, 5, True), (11, 5, False), (11, 6, True), (100, 50, True)],
)
def test_half_of_at_least_ten_calls_failed(calls: int, failures: int, opens: bool) -> None:
    assert cause(calls, failures) is (TripCause.FAILURES if opens else None)


@pytest.mark.parametrize(
    ("in_a_row", "sources", "opens"), [(4, 2, False), (5, 1, False), (5, 2, True), (9, 2, True)]
)
def test_five_in_a_row_of_two_sources_open_it_at_any_rate(in_a_row: int, sources: int, opens: bool) -> None:
    found = cause(in_a_row, in_a_row, in_a_row, sources)
    assert found is (TripCause.CONSECUTIVE if opens else None)


def test_what_one_source_alone_suffers_opens_it_only_where_the_pool_has_served_that_source() -> None:
    assert cause(20, 20, 20, sources=1) is None
    assert cause(20, 20, 20, sources=1, is_served=True) is TripCause.FAILURES
    assert cause(9, 9, 9, sources=1, is_served=True) is None


def test_whether_a_source_is_served_is_only_asked_where_it_matters() -> None:
    def never() -> bool:
        raise AssertionError

    assert after_failure(Calls(9, 9), 9, False, False, never, RULES) is None
    assert after_failure(Calls(10, 10), 4, False, True, never, RULES) is TripCause.FAILURES


@pytest.mark.parametrize(
    ("calls", "slow", "others", "is_slow"),
    [
        (19, 19, Calls(40), False),
        (20, 15, Calls(40), False),
        (20, 16, Calls(40), True),
        (20, 20, Calls(19), False),
        (20, 20, Calls(20), True),
        (20, 20, Calls(100, 0, 39), True),
        (20, 20, Calls(100, 0, 40), False),
        (20, 20, Calls(), False),
    ],
)
def test_four_fifths_of_twenty_calls_slow_and_not_half_of_that_elsewhere(
    calls: int, slow: int, others: Calls, is_slow: bool
) -> None:
    assert too_slow(calls, slow, others) is is_slow


@given(st.integers(0, 2000), st.floats(0, 1))
def test_a_pause_is_between_half_and_all_of_five_seconds_doubled_and_never_above_300(
    k: int, jitter: float
) -> None:
    whole = min(5.0 * 2.0 ** min(k, 10), 300.0)
    seconds = open_seconds(k, jitter, RULES)
    assert seconds == pytest.approx(whole / 2 + jitter * whole / 2)
    assert whole / 2 <= seconds <= 300.0


def test_the_pauses_are_5_10_20_40_80_160_300() -> None:
    k, wholes = 0, []
    for _ in range(9):
        wholes.append(open_seconds(k, 1.0, RULES))
        k = raised(k, RULES)
    assert wholes == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_pause_that_is_the_longest_already_is_not_doubled() -> None:
    rules = replace(RULES, open_seconds=5.0, max_open_seconds=40.0)
    assert [raised(k, rules) for k in (2, 3)] == [3, 3]


def test_years_of_bad_probes_are_lived_down_in_half_an_hour() -> None:
    k = 0
    for _ in range(100_000):
        k = raised(k, RULES)
    assert k == 6 and lowered(k, 1800.0, RULES) == 0


@pytest.mark.parametrize(
    ("seconds", "left"),
    [(0.0, 3), (299.9, 3), (300.0, 2), (600.0, 1), (900.0, 0), (1e9, 0), (float("inf"), 0)],
)
def test_k_falls_by_one_every_five_minutes_of_health(seconds: float, left: int) -> None:
    assert lowered(3, seconds, RULES) == left


@pytest.mark.parametrize(
    ("elapsed", "share"),
    [(-1.0, 0.1), (0.0, 0.1), (10.0, 0.4), (15.0, 0.55), (29.0, 0.97), (30.0, 1.0), (99.0, 1.0)],
)
def test_a_slow_start_goes_from_a_tenth_to_all_in_thirty_seconds(elapsed: float, share: float) -> None:
    assert slow_start_share(elapsed, RULES) == pytest.approx(share)


def test_without_a_slow_start_all_of_the_window_is_there_at_once() -> None:
    assert slow_start_share(0.0, replace(RULES, slow_start_seconds=0.0)) == 1.0


@pytest.mark.parametrize(
    ("opened", "count", "used"),
    [(0, 4, 0), (2, 4, 0), (3, 4, 1), (4, 4, 2), (1, 1, 1), (1, 2, 0), (2, 2, 1), (2, 3, 1)],
)
def test_if_more_than_half_are_open_so_many_are_used_that_half_are(
    opened: int, count: int, used: int
) -> None:
    assert let_back(opened, count, RULES) == used


@given(st.integers(0, 20), st.integers(0, 20), st.floats(0, 0.999))
def test_panic_never_leaves_a_pool_without_a_backend(opened: int, well: int, panic_share: float) -> None:
    count = opened + well
    used = let_back(opened, count, replace(RULES, panic_share=panic_share))
    assert 0 <= used <= opened
    if count:
        assert well + used >= 1
        assert used == 0 or well + used <= max(count - int(panic_share * count), well + 1)


def test_panic_can_be_switched_off() -> None:
    assert let_back(4, 4, replace(RULES, panic_share=1.0)) == 0


def test_a_slow_probe_is_bad_where_slow_calls_had_opened_the_circuit() -> None:
    for cause in TripCause:
        assert is_bad(CanaryOutcome.BAD, cause)
        assert not is_bad(CanaryOutcome.GOOD, cause)
        assert is_bad(CanaryOutcome.SLOW, cause) == (cause is TripCause.SLOW_CALLS)
