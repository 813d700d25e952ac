"""Each setting of `breaker` does what it says; `canary_timeout_seconds` is held in `test_canary`."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.breaker_settings import BreakerSettings
from gateway.core_rules import core_rules
from gateway.settings import Settings
from policies.circuit import CanaryOutcome, CircuitRules
from policies.outlier import OutlierRules
from routing.backend import Hold, Limiter
from tests.routing.circuit_stage import FAULT, GOOD, Stage


def staged(backends: int = 2, window: int = 100, **breaker: Any) -> Stage:
    rules = core_rules(Settings(pools=(), breaker=BreakerSettings(**breaker)))
    return Stage(backends, window, circuit=rules.circuit, outlier=rules.outlier)


def test_what_is_not_configured_is_as_the_rules_have_it() -> None:
    rules = core_rules(Settings(pools=()))
    assert rules.circuit == CircuitRules() and rules.outlier == OutlierRules()


@pytest.mark.parametrize("enabled", [True, False])
def test_enabled_is_whether_anybody_is_judged(enabled: bool) -> None:
    stage = staged(enabled=enabled)
    stage.calls(0, FAULT, 5)
    assert stage.is_open(0) is enabled


@pytest.mark.parametrize(("fast_seconds", "opens"), [(5, False), (20, True)])
def test_fast_seconds_is_how_long_failures_count(fast_seconds: int, opens: bool) -> None:
    stage = staged(fast_seconds=fast_seconds, failures_in_a_row=1000)
    stage.calls(0, FAULT, 9)
    stage.now += 12.0
    stage.calls(0, FAULT)
    assert stage.is_open(0) is opens


def test_from_min_calls_on_the_share_of_failures_counts() -> None:
    stage = staged(min_calls=3, failures_in_a_row=1000)
    stage.calls(0, FAULT, 2)
    assert not stage.is_open(0)
    stage.calls(0, FAULT, 1)
    assert stage.is_open(0)


@pytest.mark.parametrize(("failed_share", "opens"), [(0.2, True), (0.4, False)])
def test_failed_share_of_the_calls_have_to_fail(failed_share: float, opens: bool) -> None:
    stage = staged(failed_share=failed_share)
    stage.calls(0, GOOD, 7)
    stage.calls(0, FAULT, 3)
    assert stage.is_open(0) is opens


def test_failures_in_a_row_suffice_at_any_rate() -> None:
    stage = staged(failures_in_a_row=3)
    stage.calls(0, FAULT, 2)
    assert not stage.is_open(0)
    stage.now += 1000.0
    stage.calls(0, FAULT, 1)
    assert stage.is_open(0)


def slow_after(stage: Stage, seconds: float, calls: int = 20, good: int = 0, pause: float = 0.0) -> bool:
    """Whether so many calls of such a length open the first backend's circuit, where a tenth of a second is usual."""
    for _ in range(70):
        stage.calls(0, GOOD, 1, 0.1)
        stage.calls(1, GOOD, 1, 0.1)
        stage.pass_time(1.0)
    stage.now += 700.0
    stage.calls(0, GOOD, good, 0.1)
    stage.calls(0, GOOD, calls - 1, seconds)
    stage.now += pause
    stage.calls(0, GOOD, 1, seconds)
    stage.calls(1, GOOD, 100, 0.1)
    stage.pass_time(1.0)
    return stage.is_open(0)


@pytest.mark.parametrize(("slow_seconds", "opens"), [(60, False), (600, True)])
def test_slow_seconds_is_how_long_slow_calls_count(slow_seconds: int, opens: bool) -> None:
    assert slow_after(staged(slow_seconds=slow_seconds), 2.0, pause=100.0) is opens


@pytest.mark.parametrize(("slow_min_calls", "opens"), [(20, True), (21, False)])
def test_from_slow_min_calls_on_the_share_of_slow_ones_counts(slow_min_calls: int, opens: bool) -> None:
    assert slow_after(staged(slow_min_calls=slow_min_calls), 2.0) is opens


@pytest.mark.parametrize(("slow_share", "opens"), [(0.5, True), (0.6, False)])
def test_slow_share_of_the_calls_have_to_be_slow(slow_share: float, opens: bool) -> None:
    assert slow_after(staged(slow_share=slow_share), 2.0, calls=20, good=20) is opens


@pytest.mark.parametrize(("slow_factor", "opens"), [(2.5, True), (3.5, False)])
def test_slow_factor_times_what_the_others_take_is_slow(slow_factor: float, opens: bool) -> None:
    assert slow_after(staged(slow_factor=slow_factor), 0.3) is opens


def test_open_seconds_are_until_the_first_probe_and_max_open_seconds_until_any() -> None:
    stage = staged(open_seconds=20, max_open_seconds=50)
    circuit = stage.breaks(0)
    assert 10.0 <= circuit.probe_at - stage.now <= 20.0
    stage.canary(circuit, CanaryOutcome.BAD, 1.0)
    assert circuit.probe_at - stage.now == pytest.approx(40.0)
    stage.canary(circuit, CanaryOutcome.BAD, 1.0)
    assert circuit.probe_at - stage.now == pytest.approx(50.0)


@pytest.mark.parametrize(("seconds", "window"), [(0, 100), (10, 55), (100, 14)])
def test_within_slow_start_seconds_a_backend_has_its_whole_window_again(seconds: float, window: int) -> None:
    stage = staged(slow_start_seconds=seconds)
    stage.comes_back(stage.breaks(0))
    stage.pass_time(5.0)
    assert stage.fleet[0].window == window


@pytest.mark.parametrize(("panic_share", "held"), [(0.0, 0), (0.5, 1), (0.7, 2), (1.0, 3)])
def test_no_more_than_panic_share_of_a_pool_is_out(panic_share: float, held: int) -> None:
    stage = staged(3, panic_share=panic_share)
    for backend in range(3):
        stage.breaks(backend)
    assert sum(Hold.CIRCUIT in one.holds for one in stage.fleet) == held


@pytest.mark.parametrize(("factor", "weight"), [(1.5, 0.25), (4, 1.0)])
def test_who_is_outlier_factor_times_slower_than_the_median_gets_less(factor: float, weight: float) -> None:
    stage = staged(3, outlier_factor=factor)
    for seconds in [0.1, 0.1, 0.3, 0.3, 0.3, 0.3]:
        for backend in range(3):
            stage.calls(backend, GOOD, 10, seconds if backend == 0 else 0.1)
        stage.pass_time(10.0)
    assert stage.fleet[0].shares.get(Limiter.OUTLIER, 1.0) == weight
