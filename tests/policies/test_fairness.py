"""The formulas of the fair queue."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fairness import (
    FairnessRules,
    QueueBound,
    bound_hit,
    caught_up,
    charged,
    due,
    is_starving,
    rested,
    served_meanwhile,
    starving_seconds,
)
from policies.terms import Lane

RULES = FairnessRules()
COSTS = st.floats(0, 1e6)
COUNTERS = st.floats(-1e6, 1e6)
SECONDS = st.floats(-10, 1e4)
WEIGHTS = st.floats(0.1, 100)


@given(COUNTERS, COSTS, WEIGHTS)
def test_a_true_up_takes_back_what_was_charged(service: float, cost: float, weight: float) -> None:
    assert charged(charged(service, cost, weight), -cost, weight) == pytest.approx(service, abs=1e-6)


def test_twice_the_weight_is_charged_half() -> None:
    assert charged(5.0, 100.0, 2.0) == 55.0


@given(COUNTERS, COUNTERS, SECONDS, COSTS, WEIGHTS)
def test_idleness_saves_nothing_up_and_makes_no_debt(
    service: float, virtual_time: float, idle: float, largest: float, weight: float
) -> None:
    after = rested(service, virtual_time, idle, largest, weight, RULES)
    assert virtual_time <= after <= max(service, virtual_time) + 1e-6


def test_a_debt_has_a_half_life() -> None:
    assert rested(1100.0, 100.0, 30.0, 9e9, 1.0, RULES) == pytest.approx(100 + 1000 / 2**0.5)
    assert rested(1100.0, 100.0, 60.0, 9e9, 1.0, RULES) == pytest.approx(600.0)
    quicker = replace(RULES, half_life_seconds=10.0)
    assert rested(1100.0, 100.0, 10.0, 9e9, 1.0, quicker) == pytest.approx(600.0)


def test_a_debt_is_a_few_requests_at_most_once_the_flow_was_idle() -> None:
    assert rested(1e9, 0.0, 30.0, 100.0, 2.0, RULES) == pytest.approx(1e9 / 2**0.5)
    assert rested(1e9, 0.0, 30.1, 100.0, 2.0, RULES) == pytest.approx(2 * 100 / 2)
    assert rested(1e9, 0.0, 30.1, 100.0, 2.0, replace(RULES, debt_requests=5.0)) == pytest.approx(5 * 100 / 2)
    assert rested(1e9, 0.0, 3.0, 100.0, 2.0, replace(RULES, debt_idle_seconds=2.0)) == pytest.approx(100.0)


@given(COUNTERS, COSTS, SECONDS)
def test_who_lags_behind_keeps_its_credit_at_first_and_loses_it_slowly(
    service: float, lag: float, seconds: float
) -> None:
    after = caught_up(service, service + lag, seconds, RULES)
    assert service - 1e-6 <= after <= service + lag + 1e-6
    assert caught_up(service, service + lag, 0.0, RULES) == pytest.approx(service, abs=1e-6)
    assert caught_up(service, service + lag, 60.0, RULES) == pytest.approx(service + lag / 2, abs=1e-6)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from([lane for lane in Lane if lane != "emergency"]))
def test_a_request_without_a_deadline_is_due_before_later_ones_for_ever(
    arrived: float, later: float, lane: Lane
) -> None:
    assert due(arrived + later, arrived, starving_seconds(lane, RULES)) == arrived + later
    assert due(inf, arrived, starving_seconds(lane, RULES)) == arrived + starving_seconds(lane, RULES) < inf


def test_each_lane_starves_at_its_own_threshold() -> None:
    assert [starving_seconds(lane, RULES) for lane in Lane] == [inf, 5.0, 30.0, 120.0]
    other = replace(
        RULES, interactive_starving_seconds=1.0, standard_starving_seconds=2.0, batch_starving_seconds=3.0
    )
    assert [starving_seconds(lane, other) for lane in Lane] == [inf, 1.0, 2.0, 3.0]
    assert is_starving(5.0, Lane.INTERACTIVE, RULES) and not is_starving(4.9, Lane.INTERACTIVE, RULES)
    assert not is_starving(1e9, Lane.EMERGENCY, RULES)


def test_the_narrowest_bound_is_named() -> None:
    rules = replace(RULES, max_waiting_per_flow=2, max_waiting_per_lane=3, max_waiting=4)
    assert bound_hit(2, 3, 4, rules) is QueueBound.FLOW
    assert bound_hit(1, 3, 4, rules) is QueueBound.LANE
    assert bound_hit(1, 2, 4, rules) is QueueBound.TOTAL
    assert bound_hit(1, 2, 3, rules) is None


@given(COSTS, WEIGHTS, COUNTERS, COSTS, WEIGHTS)
def test_others_get_no_more_than_they_wait_for(
    own: float, weight: float, debt: float, cost: float, others: float
) -> None:
    assert 0.0 <= served_meanwhile(own, weight, debt, cost, others) <= cost


def test_others_get_their_share_and_what_the_node_is_ahead() -> None:
    assert served_meanwhile(100.0, 2.0, 0.0, 1e9, 6.0) == 300.0
    assert served_meanwhile(100.0, 2.0, 10.0, 1e9, 6.0) == 360.0
    assert served_meanwhile(100.0, 2.0, -10.0, 1e9, 6.0) == 300.0


def test_a_small_debt_and_a_short_pause_count_too() -> None:
    assert rested(100.5, 100.0, 0.0, 9e9, 1.0, RULES) == 100.5
    assert rested(100.5, 100.0, 0.5, 9e9, 1.0, RULES) == pytest.approx(100 + 0.5 / 2 ** (0.5 / 60))
