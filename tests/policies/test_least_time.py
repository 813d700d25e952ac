"""Which of two backends answers sooner."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.least_time import load_key

SLOWDOWNS = st.floats(0.1, 100)


@given(st.integers(0, 40), st.integers(0, 40), SLOWDOWNS)
def test_a_full_backend_is_never_chosen_and_one_with_room_may_be(
    in_flight: int, window: int, slowdown: float
) -> None:
    assert (load_key(in_flight, window, slowdown) == inf) == (in_flight >= window)


@given(st.integers(0, 40), st.none() | st.integers(2, 60), SLOWDOWNS)
def test_one_more_request_never_makes_a_backend_better(
    in_flight: int, window: int | None, slowdown: float
) -> None:
    assert load_key(in_flight, window, slowdown) < load_key(in_flight + 1, window, slowdown) or (
        load_key(in_flight, window, slowdown) == inf
    )


@given(st.integers(1, 6), st.integers(4, 64))
def test_an_engine_that_is_so_many_times_slower_holds_so_many_times_less(times: int, count: int) -> None:
    held = {1: 0, times: 0} if times > 1 else {1: 0}
    slow = 0
    for _ in range(count):
        if load_key(slow, 100, times) < load_key(held[1], 100, 1.0):
            slow += 1
        else:
            held[1] += 1
    assert abs(slow * times - held[1]) <= times


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ((0, 16, 1.0), (0, 4, 1.0)),
        ((7, 16, 1.0), (2, 4, 1.0)),
        ((2, 16, 1.0), (0, 16, 3.1)),
        ((3, None, 1.0), (4, None, 1.0)),
        ((0, None, 1.9), (1, None, 1.0)),
        ((1, None, 1.0), (0, None, 2.1)),
        ((15, 16, 9.0), (4, 4, 1.0)),
    ],
)
def test_examples(better: tuple[int, int | None, float], worse: tuple[int, int | None, float]) -> None:
    assert load_key(*better) < load_key(*worse)


@given(st.integers(0, 40), st.none() | st.integers(41, 60), SLOWDOWNS, st.integers(0, 40))
def test_requests_of_others_weigh_like_our_own(
    in_flight: int, window: int | None, slowdown: float, foreign: int
) -> None:
    whole = None if window is None else window + foreign
    assert load_key(in_flight, whole, slowdown, foreign) == load_key(in_flight + foreign, whole, slowdown)


def test_requests_of_others_take_no_slot() -> None:
    assert load_key(3, 4, 1.0, 100) < inf
