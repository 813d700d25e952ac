"""Room for bodies: what is held is counted once, small ones apart, and given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body_room import SMALL_BYTES, BodyRoom
from gateway.errors import Refused
from policies.terms import Refusal

LARGE = SMALL_BYTES + 1


def test_a_body_is_counted_once_however_often_it_grows_and_given_back() -> None:
    room = BodyRoom(10 * LARGE)
    with room.place() as place:
        for size in (LARGE, LARGE, 2 * LARGE, 3 * LARGE):
            place.grows(size)
        assert room.held_bytes == 3 * LARGE
    assert room.held_bytes == 0


def test_small_bodies_are_neither_counted_nor_refused() -> None:
    room = BodyRoom(1)
    with room.place() as place:
        place.grows(SMALL_BYTES)
        assert room.held_bytes == 0


def test_what_does_not_fit_is_refused_and_what_it_had_taken_comes_back() -> None:
    room = BodyRoom(3 * LARGE)
    with room.place() as first:
        first.grows(2 * LARGE)
        with pytest.raises(Refused) as refused, room.place() as second:
            second.grows(LARGE)
            second.grows(LARGE + 1)
        assert refused.value.reason is Refusal.BODIES_FULL
        assert room.held_bytes == 2 * LARGE
        with room.place() as third:
            third.grows(LARGE)
    assert room.held_bytes == 0


@given(st.lists(st.lists(st.integers(0, 4 * LARGE), max_size=5), max_size=6), st.integers(0, 8 * LARGE))
def test_never_more_is_held_than_the_limit(bodies: list[list[int]], limit: int) -> None:
    room = BodyRoom(limit)
    places = [room.place() for _ in bodies]
    for place, sizes in zip(places, bodies, strict=True):
        for size in sorted(sizes):
            try:
                place.grows(size)
            except Refused:
                break
            assert room.held_bytes <= limit
    for place in places:
        place.__exit__(None, None, None)
    assert room.held_bytes == 0
