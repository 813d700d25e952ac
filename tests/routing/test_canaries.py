"""The way back of an open circuit: one probe at a time, each at its time, and a slow start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.circuit import CanaryOutcome, CircuitRules, CircuitState, TripCause
from policies.terms import BackendId, Verdict
from routing.backend import Hold, Limiter
from tests.routing.circuit_stage import GOOD, Stage

BAD, FINE, SLOW, NEUTRAL = CanaryOutcome.BAD, CanaryOutcome.GOOD, CanaryOutcome.SLOW, CanaryOutcome.NEUTRAL
B0 = BackendId("b0")


def test_there_is_none_before_its_time_and_only_one_at_a_time() -> None:
    stage = Stage()
    circuit, circuits = stage.breaks(0), stage.router.circuits
    assert 2.5 <= circuit.probe_at - stage.now <= 5.0
    assert not circuits.canary_begins(circuit, circuit.probe_at - 0.001)
    assert circuits.canary_begins(circuit, circuit.probe_at)
    assert circuit.state is CircuitState.HALF_OPEN
    assert not circuits.canary_begins(circuit, circuit.probe_at + 100.0)
    circuits.canary_ended(circuit, FINE, stage.now, 0.0)
    assert circuits.canary_begins(circuit, stage.now)
    circuits.canary_given_up(circuit)
    assert circuits.canary_begins(circuit, stage.now)


def test_a_closed_circuit_is_not_probed() -> None:
    stage = Stage()
    stage.calls(0, GOOD)
    assert not stage.router.circuits.canary_begins(stage.circuit(0), 1e9)
    stage.router.circuits.canary_ended(stage.circuit(0), BAD, stage.now, 0.0)
    assert stage.circuit(0).is_closed and not stage.router.circuits.canaries


def test_three_good_ones_in_a_row_close_it() -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    stage.canary(circuit, FINE)
    stage.canary(circuit, FINE)
    assert circuit.state is CircuitState.HALF_OPEN and stage.fleet[0].holds == {Hold.CIRCUIT}
    stage.canary(circuit, BAD)
    assert stage.router.circuits.transitions[B0, CircuitState.OPEN] == 2
    for _ in range(2):
        stage.canary(circuit, FINE)
        assert stage.used(4) == {"b1"}
    stage.canary(circuit, FINE)
    assert circuit.is_closed and not stage.fleet[0].holds and stage.used(12) == {"b0", "b1"}
    assert stage.router.circuits.canaries == {(B0, FINE): 5, (B0, BAD): 1}
    assert stage.router.circuits.transitions[B0, CircuitState.CLOSED] == 1
    assert stage.router.circuits.transitions[B0, CircuitState.HALF_OPEN] == 2
    assert stage.router.circuits.transitions[B0, CircuitState.OPEN] == 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_each_bad_one_doubles_the_pause_up_to_five_minutes_half_of_it_by_chance(jitters: list[float]) -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    for number, jitter in enumerate(jitters, 1):
        stage.canary(circuit, BAD, jitter)
        whole = min(5.0 * 2**number, 300.0)
        assert circuit.probe_at - stage.now == pytest.approx(whole / 2 * (1 + jitter))


def test_pauses_of_circuits_that_open_together_differ() -> None:
    stage = Stage(backends=8)
    pauses = {stage.breaks(number).probe_at - stage.now for number in range(8)}
    assert len(pauses) == 8 and all(2.5 <= one <= 5.0 for one in pauses)


def test_the_exponent_goes_on_where_it_breaks_again_and_falls_with_each_five_minutes_of_health() -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    assert circuit.k == 0
    for _ in range(3):
        stage.canary(circuit, BAD)
    assert circuit.k == 3
    stage.comes_back(circuit)
    stage.now += 299.0
    assert stage.breaks(0).k == 4
    stage.comes_back(circuit)
    stage.now += 600.0
    assert stage.breaks(0).k == 3
    stage.comes_back(circuit)
    stage.now += 3600.0
    assert stage.breaks(0).k == 0


def test_a_full_engine_is_asked_again_after_a_first_pause_and_nothing_else_changes() -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    stage.canary(circuit, BAD)
    stage.canary(circuit, FINE)
    stage.canary(circuit, NEUTRAL, 1.0)
    assert circuit.probe_at == stage.now + 5.0 and circuit.k == 1 and circuit.good_canaries == 1
    assert circuit.state is CircuitState.HALF_OPEN
    stage.canary(circuit, FINE)
    stage.canary(circuit, FINE)
    assert circuit.is_closed


def test_a_slow_answer_is_bad_only_where_slow_calls_had_opened_it() -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    for _ in range(3):
        stage.canary(circuit, SLOW)
    assert circuit.is_closed
    circuit = stage.breaks(1)
    circuit.cause = TripCause.SLOW_CALLS
    stage.canary(circuit, SLOW)
    assert circuit.state is CircuitState.OPEN and circuit.k == 1


def test_what_begins_to_answer_later_than_slow_factor_times_the_pools_quickest_is_slow() -> None:
    stage = Stage()
    assert stage.router.circuits.canary_limit_seconds(stage.fleet[0]) == float("inf")
    stage.calls(0, GOOD, 10, 0.25)
    assert stage.router.circuits.canary_limit_seconds(stage.fleet[1]) == pytest.approx(4 * 0.25 + 0.2)


def test_who_comes_back_starts_with_a_tenth_of_its_window_and_has_all_of_it_after_thirty_seconds() -> None:
    stage = Stage(window=100)
    circuit, backend = stage.breaks(0), stage.fleet[0]
    stage.comes_back(circuit)
    windows, shares = [backend.window], [backend.shares[Limiter.SLOW_START]]
    for _ in range(29):
        stage.pass_time(1.0)
        windows.append(backend.window)
        shares.append(backend.shares[Limiter.SLOW_START])
    assert (windows[0], windows[15], windows[29]) == (10, 55, 97)
    assert shares == pytest.approx([0.1 + 0.03 * second for second in range(30)])
    stage.pass_time(1.0)
    assert backend.window == 100 and not backend.shares


def test_who_breaks_again_on_its_slow_start_begins_it_anew() -> None:
    stage = Stage(window=100)
    circuit, backend = stage.breaks(0), stage.fleet[0]
    stage.comes_back(circuit)
    stage.pass_time(20.0)
    stage.breaks(0)
    assert Limiter.SLOW_START not in backend.shares
    stage.pass_time(2.0)
    stage.comes_back(circuit)
    assert backend.window == 10


def test_without_a_slow_start_all_of_its_window_is_there_at_once() -> None:
    stage = Stage(window=100, circuit=CircuitRules(slow_start_seconds=0.0))
    stage.comes_back(stage.breaks(0))
    assert stage.fleet[0].window == 100 and not stage.fleet[0].shares


def test_an_engine_that_can_be_reached_again_is_probed_at_once() -> None:
    stage = Stage()
    circuit, backend = stage.breaks(0), stage.fleet[0]
    for _ in range(6):
        stage.canary(circuit, BAD, 1.0)
    stage.router.unreachable(backend, stage.now)
    stage.changes.clear()
    stage.pass_time(1.0)
    assert circuit.probe_at > stage.now + 200.0 and not stage.changes
    stage.router.engines.probed(backend.id, True, False, stage.now)
    stage.pass_time(1.0)
    assert circuit.probe_at == stage.now and stage.changes == [circuit]


def test_the_absence_in_which_it_opened_counts_too_be_it_a_moment_ago() -> None:
    for was_absent in (True, False):
        stage = Stage()
        backend = stage.fleet[0]
        stage.pass_time(1.0)
        running = [stage.lease(0, tenant=str(number)) for number in range(5)]
        if was_absent:
            stage.router.unreachable(backend, stage.now)
        for lease in running:
            stage.end(lease, Verdict.FAULT)
        stage.router.engines.probed(backend.id, True, False, stage.now)
        stage.pass_time(1.0)
        assert (stage.circuit(0).probe_at == stage.now) is was_absent


def test_no_request_is_a_probe_even_when_the_pause_is_over() -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    stage.now = circuit.probe_at + 100.0
    assert stage.used(30) == {"b1"}
    stage.router.circuits.canary_begins(circuit, stage.now)
    assert stage.used(30) == {"b1"}
    assert circuit.window.last(60, stage.now).calls == 0


def test_listeners_hear_of_each_change_when_it_is_done() -> None:
    stage = Stage()
    seen: list[tuple[CircuitState, bool]] = []
    stage.router.circuits.on_change = lambda circuit: seen.append(
        (circuit.state, Hold.CIRCUIT in circuit.backend.holds)
    )
    circuit = stage.breaks(0)
    stage.comes_back(circuit)
    assert seen == [(CircuitState.OPEN, True), (CircuitState.HALF_OPEN, True), (CircuitState.CLOSED, False)]


def test_a_trial_that_runs_when_its_circuit_opens_still_says_that_the_backend_is_there() -> None:
    stage = Stage()
    backend = stage.fleet[0]
    stage.router.unreachable(backend, stage.now)
    stage.now += 5.0
    lease = stage.lease(0)
    assert lease.is_trial
    stage.end(lease, Verdict.GOOD)
    assert backend.is_present()
