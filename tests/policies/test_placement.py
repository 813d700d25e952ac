"""Which backend gets the next request."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.placement import least_loaded


@dataclass
class Slots:
    in_flight: int
    window: int | None = None


LOADS = st.lists(
    st.builds(Slots, st.integers(0, 12), st.none() | st.integers(0, 12)),
    max_size=6,
)


def share(load: Slots) -> Fraction:
    return Fraction(load.in_flight, load.window or 1)


@given(LOADS, st.integers(0, 1000))
def test_the_choice_has_room_and_nobody_with_room_is_less_loaded(loads: list[Slots], turn: int) -> None:
    with_room = [load for load in loads if load.window is None or load.in_flight < load.window]
    index = least_loaded(loads, turn)
    assert (index is None) == (not with_room)
    if index is not None:
        assert loads[index] in with_room
        assert share(loads[index]) == min(share(load) for load in with_room)


@given(st.integers(1, 8), st.none() | st.integers(1, 9), st.integers(0, 1000))
def test_equal_backends_are_used_in_turn_whatever_the_first_turn(
    count: int, window: int | None, turn: int
) -> None:
    loads = [Slots(0, window) for _ in range(count)]
    chosen = [least_loaded(loads, turn + step) for step in range(count)]
    assert sorted(index for index in chosen if index is not None) == list(range(count))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 100))
def test_choice_after_choice_fills_every_window_and_then_says_full(windows: list[int], turn: int) -> None:
    loads = [Slots(0, window) for window in windows]
    for step in range(sum(windows)):
        index = least_loaded(loads, turn + step)
        assert index is not None
        loads[index].in_flight += 1
    assert [load.in_flight for load in loads] == windows
    assert least_loaded(loads, turn) is None


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([], None),
        ([Slots(0)], 0),
        ([Slots(0, 0)], None),
        ([Slots(3, 4), Slots(5, 16)], 1),
        ([Slots(1, 2), Slots(8, 16), Slots(7, 16)], 2),
        ([Slots(5), Slots(4)], 1),
        ([Slots(2, 2), Slots(900)], 1),
    ],
)
def test_the_smallest_share_of_a_window_wins(loads: list[Slots], chosen: int | None) -> None:
    assert all(least_loaded(loads, turn) == chosen for turn in range(4))
