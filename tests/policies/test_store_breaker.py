"""A store that fails is left alone, and found again within two seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.store_breaker import (
    CLOSED,
    BreakerRules,
    StoreBreaker,
    after_call,
    after_probe,
    probe_is_due,
    probing,
)

RULES = BreakerRules()


def called(breaker: StoreBreaker, goods: str, now: float = 0.0, jitter: float = 0.0) -> StoreBreaker:
    """`+` for a good call, `-` for a failed one."""
    for one in goods:
        breaker = after_call(breaker, breaker.epoch, one == "+", now, jitter, RULES)
    return breaker


def probed(breaker: StoreBreaker, good: bool, jitter: float = 0.0) -> StoreBreaker:
    assert breaker.probe_at is not None
    return after_probe(probing(breaker), good, breaker.probe_at, jitter, RULES)


@pytest.mark.parametrize(
    ("calls", "opens"),
    [
        ("--", False),
        ("---", True),
        ("++++--+--", False),
        ("-+-+", False),
        ("-+-+-", True),
        ("+" * 20 + "--", False),
        ("+" * 20 + "---", True),
    ],
)
def test_three_failures_in_a_row_open_it_or_half_of_the_calls_of_the_last_second(
    calls: str, opens: bool
) -> None:
    assert called(CLOSED, calls).is_open is opens


def test_failures_of_long_ago_do_not_count_among_the_last_second() -> None:
    early = called(CLOSED, "-+-+", now=0.4)
    assert called(early, "-", now=0.9).is_open
    assert not called(early, "-", now=1.1).is_open
    assert not called(early, "-", now=1.6).is_open


def test_it_stays_open_twice_as_long_each_time_but_a_second_at_most() -> None:
    one = called(CLOSED, "---", now=10.0)
    spans = []
    began = 10.0
    for _ in range(4):
        assert one.probe_at is not None
        spans.append(one.probe_at - began)
        began = one.probe_at
        one = probed(one, good=False)
    assert spans == pytest.approx([0.5, 1.0, 1.0, 1.0])


def test_one_probe_at_a_time_and_none_before_its_time() -> None:
    one = called(CLOSED, "---", now=10.0)
    assert not probe_is_due(one, 10.49) and probe_is_due(one, 10.5)
    assert not probe_is_due(probing(one), 10.5)
    assert not probe_is_due(CLOSED, 10.5)


def test_a_good_probe_closes_it_and_a_good_call_makes_the_next_opening_short_again() -> None:
    closed = probed(called(CLOSED, "---"), good=True)
    assert not closed.is_open
    at_once = called(closed, "---", now=20.0)
    assert at_once.probe_at == pytest.approx(21.0)
    after_good = called(called(closed, "+", now=20.0), "---", now=20.0)
    assert after_good.probe_at == pytest.approx(20.5)


def test_what_a_call_brings_that_began_before_it_opened_changes_nothing() -> None:
    one = called(CLOSED, "---")
    assert after_call(one, 0, True, 0.1, 0.0, RULES) is one
    closed = probed(one, good=True)
    for _ in range(10):
        assert after_call(closed, 0, False, 0.6, 0.0, RULES) is closed


def test_jitter_only_shortens() -> None:
    assert called(CLOSED, "---", jitter=1.0).probe_at == pytest.approx(0.375)


@given(st.lists(st.tuples(st.floats(0, 0.2), st.booleans(), st.floats(0, 1)), max_size=60), st.floats(0, 1))
def test_whatever_happened_it_is_closed_two_seconds_after_the_store_is_back(
    history: list[tuple[float, bool, float]], jitter: float
) -> None:
    """Each probe that is under way when the store comes back still fails after its 30 ms."""
    now = 0.0
    one = CLOSED
    for elapsed, good, chance in history:
        now += elapsed
        if probe_is_due(one, now):
            one = after_probe(probing(one), good, now, chance, RULES)
        else:
            one = after_call(one, one.epoch, good, now, chance, RULES)
    back = now
    if one.is_open:
        one = after_probe(probing(one), False, now + 0.03, jitter, RULES)
        assert one.probe_at is not None
        now = one.probe_at
        one = after_probe(probing(one), True, now, jitter, RULES)
    assert not one.is_open
    assert now - back <= 1.1


@given(st.text("+-", max_size=100))
def test_it_never_opens_without_a_failure_and_always_after_three(calls: str) -> None:
    breaker = CLOSED
    for number, one in enumerate(calls, start=1):
        before = breaker
        breaker = called(breaker, one)
        assert not (breaker.is_open and not before.is_open and one == "+")
        assert breaker.is_open or not calls[:number].endswith("---")


def test_what_a_probe_brings_that_nobody_waits_for_changes_nothing() -> None:
    for breaker in (CLOSED, called(CLOSED, "---")):
        assert after_probe(breaker, True, 5.0, 0.0, RULES) is breaker
        assert after_probe(breaker, False, 5.0, 0.0, RULES) is breaker


def test_however_often_it_opens_the_longest_time_holds() -> None:
    one = called(CLOSED, "---")
    for _ in range(2_000):
        one = probed(one, good=False)
    began = one.probe_at
    again = probed(one, good=False)
    assert began is not None and again.probe_at == pytest.approx(began + RULES.max_open_seconds)


def test_a_call_is_counted_in_its_half_second_and_the_one_before_is_kept() -> None:
    one = called(CLOSED, "+-", now=0.6)
    assert one == StoreBreaker(in_a_row=1, bucket=1, calls=2, failures=1)
    assert called(one, "+", now=1.1) == StoreBreaker(bucket=2, calls=1, earlier_calls=2, earlier_failures=1)
    assert called(one, "+", now=1.6) == StoreBreaker(bucket=3, calls=1)


def test_it_opens_where_just_the_share_has_failed() -> None:
    rules = BreakerRules(min_calls=4, failed_share=0.5)
    one = CLOSED
    for good in (True, False, True, False):
        one = after_call(one, 0, good, 0.0, 0.0, rules)
    assert one.is_open


def test_each_opening_is_an_epoch_of_its_own_and_twice_as_long_as_the_last() -> None:
    rules = BreakerRules(max_open_seconds=60.0)
    one = CLOSED
    for _ in range(3):
        one = after_call(one, 0, False, 0.0, 0.0, rules)
    assert one == StoreBreaker(0.5, epoch=1, openings=1)
    for seconds in (1.0, 2.0, 4.0):
        one = after_probe(probing(one), False, 0.0, 0.0, rules)
        assert (one.probe_at, one.epoch) == (seconds, 1)
