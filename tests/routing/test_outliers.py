"""A backend that is slower than its like for three windows of ten seconds is used less, long before it is taken out."""

from __future__ import annotations

import pytest

from policies.circuit import CircuitRules
from policies.outlier import OutlierRules
from routing.backend import Hold, Limiter
from tests.routing.circuit_stage import GOOD, Stage


def windows(stage: Stage, count: int, *seconds: float, calls: int = 10) -> None:
    """So many windows, in which each backend answers some calls in its time."""
    for _ in range(count):
        for backend, service in enumerate(seconds):
            if service and not stage.fleet[backend].holds:
                stage.calls(backend, GOOD, calls, service)
        stage.pass_time(10.0)


def staged(backends: int = 3, factor: float = 2.0) -> Stage:
    """The time to the first byte is known, and a window has just begun."""
    stage = Stage(backends, 100, circuit=CircuitRules(slow_factor=100.0), outlier=OutlierRules(factor))
    windows(stage, 2, *[0.1] * backends)
    return stage


def weight(stage: Stage, backend: int = 0) -> float:
    return stage.fleet[backend].shares.get(Limiter.OUTLIER, 1.0)


def test_its_weight_is_halved_at_the_third_slow_window_and_at_each_that_follows_down_to_a_tenth() -> None:
    stage = staged()
    seen = []
    for _ in range(8):
        windows(stage, 1, 0.3, 0.1, 0.1)
        seen.append(weight(stage))
    assert seen == [1.0, 1.0, 0.5, 0.25, 0.125, 0.1, 0.1, 0.1]
    assert stage.fleet[0].window == 10 and stage.fleet[1].window == stage.fleet[2].window == 100


def test_it_gets_a_quarter_more_with_each_window_that_is_not_slow() -> None:
    stage = staged()
    windows(stage, 4, 0.3, 0.1, 0.1)
    assert weight(stage) == 0.25
    windows(stage, 1, 0.1, 0.1, 0.1)
    assert weight(stage) == 0.3125
    windows(stage, 7, 0.1, 0.1, 0.1)
    assert weight(stage) == 1.0 and not stage.fleet[0].shares


def test_twice_as_slow_as_the_median_is_not_yet_slow_and_the_factor_says_where_it_begins() -> None:
    stage = staged()
    windows(stage, 6, 0.19, 0.1, 0.1)
    assert weight(stage) == 1.0
    stage = staged(factor=1.5)
    windows(stage, 6, 0.19, 0.1, 0.1)
    assert weight(stage) < 1.0


def test_where_all_become_slow_alike_nobody_loses_weight() -> None:
    stage = staged()
    windows(stage, 9, 3.0, 3.0, 3.0)
    assert [weight(stage, number) for number in range(3)] == [1.0, 1.0, 1.0]


def test_two_backends_are_too_few_to_say_who_is_the_odd_one() -> None:
    stage = staged(2)
    windows(stage, 9, 1.0, 0.1)
    assert weight(stage) == 1.0


def test_windows_with_few_samples_are_put_together() -> None:
    stage = staged()
    windows(stage, 5, 0.3, 0.1, 0.1, calls=2)
    assert weight(stage) == 1.0
    windows(stage, 4, 0.3, 0.1, 0.1, calls=2)
    assert weight(stage) == 0.5


def test_a_backend_that_is_held_learns_nothing_and_speaks_for_nobody() -> None:
    stage = staged()
    stage.calls(0, GOOD, 10, 0.3)
    stage.router.fleet.hold(stage.fleet[0], Hold.OPERATOR)
    windows(stage, 9, 0.0, 0.1, 0.1)
    watch = next(one for one in stage.router.circuits.watches if one.backend is stage.fleet[0])
    assert weight(stage) == 1.0 and watch.standing.slow_windows == 0 and watch.pace_calls == 0
    others = [one.others_pace for one in stage.router.circuits.watches]
    assert others[1] is not None and others[1] == pytest.approx(others[2], rel=0.01)  # not the 3 of before


def test_who_is_held_keeps_its_weight_until_it_is_used_again() -> None:
    stage = staged()
    windows(stage, 4, 0.3, 0.1, 0.1)
    stage.router.fleet.hold(stage.fleet[0], Hold.OPERATOR)
    windows(stage, 9, 0.0, 0.1, 0.1)
    assert weight(stage) == 0.25
    stage.router.fleet.release(stage.fleet[0], Hold.OPERATOR)
    windows(stage, 1, 0.1, 0.1, 0.1)
    assert weight(stage) == 0.3125


def test_weight_goes_with_the_rules() -> None:
    stage = staged()
    windows(stage, 4, 0.3, 0.1, 0.1)
    assert weight(stage) == 0.25
    stage.configure(2)
    assert weight(stage) == 0.25
    stage.router.configure([], stage.rules)
    stage.configure(3)
    assert weight(stage) == 1.0
