"""How often a key was seen: never too seldom, decayed by the window, in bounded memory."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.frequency_sketch import FrequencySketch

KEYS = st.integers(0, 2**64 - 1)


@given(st.lists(KEYS, max_size=200), st.integers(4, 10))
def test_nothing_is_counted_too_low_however_narrow_the_sketch(keys: list[int], bits: int) -> None:
    sketch = FrequencySketch(1 << bits, 10.0)
    sketch.count(keys, 0.0)
    for key, times in Counter(keys).items():
        assert sketch.seen(key, 0.0) >= times


def test_keys_that_come_once_are_hardly_ever_taken_for_frequent_ones() -> None:
    chance = Random(1)
    sketch = FrequencySketch(1 << 14, 10.0)
    keys = [chance.getrandbits(64) for _ in range(1 << 14)]
    sketch.count(keys, 0.0)
    assert sum(sketch.seen(key, 0.0) >= 5 for key in keys) <= 2
    strangers = [chance.getrandbits(64) for _ in range(1 << 14)]
    assert sum(sketch.seen(key, 0.0) >= 5 for key in strangers) <= 2


def test_what_was_seen_fades_evenly_over_the_next_window_and_is_gone_after_it() -> None:
    sketch = FrequencySketch(64, 10.0)
    sketch.count([7] * 8, 9.0)
    assert sketch.seen(7, 9.9) == 8
    assert sketch.seen(7, 10.0) == pytest.approx(8)
    assert sketch.seen(7, 15.0) == pytest.approx(4)
    sketch.count([7], 15.0)
    assert sketch.seen(7, 15.0) == pytest.approx(5)
    assert sketch.seen(7, 20.0) == pytest.approx(1)
    assert sketch.seen(7, 30.0) == 0


def test_after_a_long_pause_nothing_is_left() -> None:
    sketch = FrequencySketch(64, 10.0)
    sketch.count([7] * 8, 0.0)
    assert sketch.seen(7, 1000.0) == 0
    sketch.count([7], 1000.0)
    assert sketch.seen(7, 1009.0) == 1


def test_counters_stop_at_what_a_byte_holds() -> None:
    sketch = FrequencySketch(64, 10.0)
    sketch.count([7] * 1000, 0.0)
    assert sketch.seen(7, 0.0) == 255
