"""How long an unreachable backend is left alone."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.absence import PRESENT, Absence, AbsenceRules, after_failure

RULES = AbsenceRules(first_seconds=1.0, longest_seconds=30.0)
SECONDS = st.floats(0.001, 1e6)
NOW = st.floats(0, 1e9)


@given(first=SECONDS, longest=SECONDS, failures=st.integers(1, 40), now=NOW)
def test_each_failure_makes_the_pause_no_shorter_and_never_longer_than_the_longest(
    first: float, longest: float, failures: int, now: float
) -> None:
    rules = AbsenceRules(first, longest)
    absence = PRESENT
    pauses = []
    for _ in range(failures):
        absence = after_failure(absence, now, rules)
        pauses.append(absence.until - now)
    assert absence.failures == failures
    rounding = 4 * math.ulp(now + longest)
    assert all(0 <= pause <= longest + rounding for pause in pauses)
    assert all(later >= earlier - rounding for earlier, later in pairwise(pauses))


@given(now=NOW, failures=st.integers(0, 10_000))
def test_a_backend_is_blocked_until_its_pause_is_over_and_not_a_moment_longer(
    now: float, failures: int
) -> None:
    absence = after_failure(Absence(failures), now, RULES)
    assert absence.blocks(now)
    assert absence.blocks(math.nextafter(absence.until, 0))
    assert not absence.blocks(absence.until)


@pytest.mark.parametrize(
    ("failures", "pause"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (5000, 30)]
)
def test_the_pause_doubles_up_to_the_longest(failures: int, pause: float) -> None:
    assert after_failure(Absence(failures - 1), 100.0, RULES) == Absence(failures, 100.0 + pause)


def test_a_present_backend_is_never_blocked() -> None:
    assert not PRESENT.blocks(0.0)
    assert not PRESENT.blocks(-1.0)
