"""How long a request takes with so many in flight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.service_lines import LEVELS, UNKNOWN, ServiceLine, learnt, scaled, without_levels_above


def line_of(base: float, slope: float, loads: list[int], rounds: int = 20) -> ServiceLine:
    line = UNKNOWN
    for _ in range(rounds):
        for load in loads:
            line = learnt(line, load, base + slope * load)
    return line


@given(st.floats(0.01, 10), st.floats(0, 0.1), st.integers(1, 200))
def test_base_and_slope_are_found_from_different_levels(base: float, share: float, low: int) -> None:
    slope = share * base / low
    line = line_of(base, slope, [low, 2 * low, 3 * low])
    assert line.base == pytest.approx(base, rel=0.02)
    assert line.slope == pytest.approx(slope, rel=0.02, abs=1e-9)


@given(st.lists(st.tuples(st.floats(1, 300), st.floats(0.001, 100)), min_size=1, max_size=40))
def test_the_base_is_never_nothing_and_the_slope_never_falls(samples: list[tuple[float, float]]) -> None:
    line = UNKNOWN
    for in_flight, seconds in samples:
        line = learnt(line, in_flight, seconds)
    assert line.base > 0 and line.slope >= 0


def test_hours_at_one_level_do_not_make_the_slope_forgotten() -> None:
    line = line_of(0.11, 0.00525, [4, 8, 12, 16])
    for _ in range(10_000):
        line = learnt(line, 3, 0.12575)
    assert line.slope == pytest.approx(0.00525, rel=0.02)


def test_a_level_is_the_mean_of_its_intervals() -> None:
    line = learnt(learnt(learnt(UNKNOWN, 8.0, 0.1), 9.0, 0.2), 8.5, 0.6)
    assert [level for level in line.levels if level.weight] == [pytest.approx((8.5, 0.3, 3.0))]


def test_a_slower_engine_scales_the_whole_line() -> None:
    line = line_of(0.11, 0.00525, [4, 8, 12, 16])
    for _ in range(30):
        line = scaled(line, 4, 3 * 0.131)
    assert (line.base, line.slope) == pytest.approx((0.33, 0.01575), rel=0.03)
    assert learnt(line, 4, 3 * 0.131).base == pytest.approx(0.33, rel=0.03)


def test_levels_with_a_queue_are_forgotten_and_where_none_is_left_all_is_base() -> None:
    line = line_of(0.1, 0.01, [4, 16])
    assert [level.in_flight for level in without_levels_above(line, 8, 1.0).levels if level.weight] == [4]
    assert without_levels_above(line, 8, 1.0).slope == line.slope
    assert without_levels_above(line, 2, 1.0) == ServiceLine(1.0, 0.0)


def test_scaling_keeps_what_is_known_of_each_level() -> None:
    line = line_of(0.11, 0.00525, [4, 8])
    after = scaled(line, 4, 2 * (line.base + 4 * line.slope))
    assert after.base == pytest.approx(1.3 * line.base)
    for level, before in zip(after.levels, line.levels, strict=True):
        assert (level.in_flight, level.weight) == (before.in_flight, before.weight)
        assert level.seconds == pytest.approx(1.3 * before.seconds)
    assert scaled(UNKNOWN, 4, 1.0) == UNKNOWN


def test_a_level_just_at_the_bound_is_kept() -> None:
    line = line_of(0.1, 0.01, [4, 16])
    assert [level.in_flight for level in without_levels_above(line, 4, 1.0).levels if level.weight] == [4]


def test_there_are_four_levels_to_an_octave() -> None:
    for in_flight, index in ((1, 0), (2, 4), (3, 6), (4, 8), (32, 20), (1e9, LEVELS - 1)):
        line = learnt(UNKNOWN, in_flight, 1.0)
        assert [place for place, level in enumerate(line.levels) if level.weight] == [index]


def test_the_slope_is_drawn_by_least_squares_and_what_it_was_counts_as_twenty_a_tenth_off() -> None:
    line = learnt(learnt(UNKNOWN, 10.0, 1.0), 20.0, 2.0)
    assert line.slope == pytest.approx(5.0 / (50.0 + 20.0 * 1.5**2))
    assert line.base == pytest.approx(1.5 - 15.0 * line.slope)
