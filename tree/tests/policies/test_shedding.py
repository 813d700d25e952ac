"""Whether a request can still meet its deadline."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.shedding import SheddingRules, admit, hopeless
from policies.terms import Lane

SECONDS = st.floats(0, 1e6)
ANY = st.floats(-1e6, 1e6)
OTHERS = st.sampled_from([Lane.INTERACTIVE, Lane.STANDARD, Lane.BATCH])
MARGINS = st.floats(0.1, 10).map(lambda margin: SheddingRules(margin=margin))


@given(st.none() | SECONDS, SECONDS, ANY, MARGINS)
def test_an_emergency_is_never_refused_nor_given_up(
    wait: float | None, service: float, left: float, rules: SheddingRules
) -> None:
    assert admit(wait, service, left, Lane.EMERGENCY, rules)
    assert not hopeless(0.0, left, service, Lane.EMERGENCY, rules)


@given(SECONDS, ANY, OTHERS, MARGINS)
def test_what_is_uncertain_is_admitted(service: float, left: float, lane: Lane, rules: SheddingRules) -> None:
    assert admit(None, service, left, lane, rules)


@given(SECONDS | st.just(inf), SECONDS, OTHERS, MARGINS)
def test_what_has_no_deadline_is_neither_refused_nor_given_up(
    wait: float, service: float, lane: Lane, rules: SheddingRules
) -> None:
    assert admit(wait, service, inf, lane, rules)
    assert not hopeless(0.0, inf, service, lane, rules)


@given(SECONDS, SECONDS, SECONDS, ANY, OTHERS, MARGINS)
def test_a_longer_wait_never_helps(
    wait: float, longer: float, service: float, left: float, lane: Lane, rules: SheddingRules
) -> None:
    if admit(wait + longer, service, left, lane, rules):
        assert admit(wait, service, left, lane, rules)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), OTHERS)
def test_what_was_admitted_and_waited_as_predicted_is_not_hopeless(
    wait: int, service: int, more: int, lane: Lane
) -> None:
    rules = SheddingRules()
    deadline = float(wait + service + more)
    assert admit(wait, service, deadline, lane, rules)
    if service + more > 0:
        assert not hopeless(wait, deadline, service, lane, rules)


@pytest.mark.parametrize(
    ("wait", "service", "left", "rules", "taken"),
    [
        (0.2, 0.1, 0.3, SheddingRules(), False),  # 0.30000000000000004: the bound itself is no promise
        (0.25, 0.25, 0.5, SheddingRules(), True),
        (0.3, 0.25, 0.5, SheddingRules(), False),
        (0.3, 0.25, 0.5, SheddingRules(margin=1.2), True),
        (0.2, 0.25, 0.5, SheddingRules(margin=0.8), False),
        (9.0, 9.0, 0.5, SheddingRules(enabled=False), True),
        (0.0, 0.0, -1.0, SheddingRules(), False),
    ],
)
def test_at_arrival(wait: float, service: float, left: float, rules: SheddingRules, taken: bool) -> None:
    assert admit(wait, service, left, Lane.STANDARD, rules) is taken


@pytest.mark.parametrize(
    ("now", "service", "rules", "given_up"),
    [
        (9.0, 0.5, SheddingRules(), False),
        (9.0, 1.0, SheddingRules(), False),
        (9.0, 1.5, SheddingRules(), True),
        (9.0, 1.5, SheddingRules(margin=2.0), False),
        (9.0, 1.5, SheddingRules(enabled=False), False),
        (10.0, 0.0, SheddingRules(margin=10.0), True),
        (11.0, 0.0, SheddingRules(margin=10.0), True),
    ],
)
def test_at_dispatch(now: float, service: float, rules: SheddingRules, given_up: bool) -> None:
    assert hopeless(now, 10.0, service, Lane.INTERACTIVE, rules) is given_up
