"""The bounds and the start of a window that the configuration leaves open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.automatic_window import HIGHEST, LOWEST, START, AutomaticWindow, automatic_rules
from policies.windows import WindowRules

OPEN = AutomaticWindow()


@pytest.mark.parametrize(
    ("told", "rules"),
    [
        (None, WindowRules(START, LOWEST, HIGHEST)),
        (0, WindowRules(START, LOWEST, HIGHEST)),
        (2, WindowRules(4, 4, 4)),
        (8, WindowRules(8, 4, 10)),
        (64, WindowRules(64, 16, 80)),
        (1000, WindowRules(1000, 250, 1024)),
        (100_000, WindowRules(1024, 1024, 1024)),
    ],
)
def test_it_follows_what_the_engine_says_that_it_runs_at_a_time(told: int | None, rules: WindowRules) -> None:
    assert automatic_rules(OPEN, told) == rules


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        (AutomaticWindow(min=2), WindowRules(64, 2, 80)),
        (AutomaticWindow(min=100), WindowRules(100, 100, 100)),
        (AutomaticWindow(start=20), WindowRules(20, 16, 80)),
        (AutomaticWindow(start=3), WindowRules(3, 3, 80)),
        (AutomaticWindow(start=500), WindowRules(500, 16, 500)),
        (AutomaticWindow(min=5, start=9), WindowRules(9, 5, 80)),
    ],
)
def test_what_is_configured_holds_and_the_rest_follows(given: AutomaticWindow, rules: WindowRules) -> None:
    assert automatic_rules(given, 64) == rules


NUMBERS = st.none() | st.integers(1, 5000)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_the_start_lies_between_the_bounds(lowest: int | None, start: int | None, told: int | None) -> None:
    rules = automatic_rules(AutomaticWindow(lowest, start), told)
    assert 1 <= rules.min <= rules.start <= rules.max
    assert lowest is None or rules.min == lowest
