"""What opens a circuit and what never does: calls on a router, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.circuit import CanaryOutcome, CircuitRules, CircuitState, TripCause
from policies.terms import BackendId, PoolName, Refusal, Verdict
from routing.backend import BackendPlan, Hold
from routing.circuits import MAX_CIRCUITS
from routing.decision import Intent, Lease
from tests.routing.circuit_stage import FAULT, GOOD, POOL, TENANTS, Stage
from tests.routing.reachable import kept_by

B0 = BackendId("b0")


NO_ROWS = CircuitRules(failures_in_a_row=1000)


def mixed(stage: Stage, good: int, faults: int) -> None:
    stage.calls(0, GOOD, good)
    stage.calls(0, FAULT, faults)


@pytest.mark.parametrize(
    ("good", "faults", "opens"), [(5, 4, False), (6, 5, False), (5, 5, True), (9, 9, True), (0, 9, False)]
)
def test_half_of_ten_calls_in_ten_seconds_open_it(good: int, faults: int, opens: bool) -> None:
    stage = Stage(circuit=NO_ROWS)
    mixed(stage, good, faults)
    assert stage.is_open(0) is opens and not stage.is_open(1)
    if opens:
        assert stage.circuit(0).cause is TripCause.FAILURES
        assert stage.fleet[0].holds == {Hold.CIRCUIT}
        assert stage.used(6) == {"b1"}
        assert stage.router.circuits.trips == {(B0, TripCause.FAILURES): 1}


def test_what_is_older_than_the_window_does_not_count() -> None:
    for pause, opens in ((9.0, True), (10.0, False)):
        stage = Stage(circuit=NO_ROWS)
        mixed(stage, 4, 4)
        stage.now += pause
        mixed(stage, 1, 1)
        assert stage.is_open(0) is opens


def test_five_failures_in_a_row_open_it_however_long_they_take() -> None:
    stage = Stage()
    for _ in range(4):
        stage.calls(0, FAULT, tenants=[TENANTS[0]])
        stage.now += 100.0
    assert not stage.is_open(0)
    stage.calls(0, FAULT, tenants=[TENANTS[1]])
    assert stage.circuit(0).cause is TripCause.CONSECUTIVE


def test_a_good_call_between_them_begins_the_row_anew() -> None:
    stage = Stage()
    stage.calls(0, FAULT, 4)
    stage.calls(0, GOOD)
    stage.calls(0, FAULT, 4)
    assert not stage.is_open(0)


def test_a_prompt_that_breaks_every_engine_takes_none_of_them_out() -> None:
    stage = Stage()
    for backend in (0, 1):
        stage.calls(backend, FAULT, 50, tenants=["the same"])
    assert not stage.is_open(0) and not stage.is_open(1)


def test_one_client_alone_suffices_where_another_backend_serves_it() -> None:
    stage = Stage()
    stage.calls(1, GOOD, tenants=["the same"])
    stage.calls(0, FAULT, 9, tenants=["the same"])
    assert not stage.is_open(0)
    stage.calls(0, FAULT, 1, tenants=["the same"])
    assert stage.circuit(0).cause is TripCause.FAILURES


def test_that_another_pool_serves_it_says_nothing() -> None:
    stage = Stage()
    other = BackendPlan(BackendId("c0"), PoolName("q"), 10)
    plans = [BackendPlan(one.id, POOL, 10) for one in stage.fleet]
    stage.router.configure([*plans, other], stage.rules)
    served = stage.router.arrive("", stage.now, Intent(tenant="same", streamed=True, backend=other.id))
    assert isinstance(served, Lease) and served.backend.pool == "q"
    stage.end(served, GOOD)
    stage.calls(0, FAULT, 20, tenants=["same"])
    assert not stage.is_open(0)


def test_another_clients_failure_counts_as_long_as_it_is_in_the_window() -> None:
    for pause, opens in ((9.5, True), (10.5, False)):
        stage = Stage(circuit=NO_ROWS)
        stage.calls(0, FAULT, tenants=["another"])
        stage.now += pause
        running = [stage.lease(0, tenant="the same") for _ in range(10)]
        for lease in running:
            stage.end(lease, FAULT)
        assert stage.is_open(0) is opens


@pytest.mark.parametrize("verdict", [Verdict.IGNORED, Verdict.BACKPRESSURE])
def test_what_says_nothing_of_the_backend_opens_nothing_and_breaks_no_row(verdict: Verdict) -> None:
    stage = Stage()
    stage.calls(0, verdict, 500)
    assert stage.circuits() == []
    stage.calls(0, FAULT, 4)
    stage.calls(0, verdict, 20)
    assert not stage.is_open(0)
    stage.calls(0, FAULT)
    assert stage.is_open(0)


def test_a_fleet_that_is_overloaded_alike_keeps_all_its_circuits_closed() -> None:
    """Full engines, deadlines that are missed, and answers ten times as late as before."""
    stage = Stage(backends=3, window=2)
    for second in range(90):
        seconds = 0.1 if second < 30 else 1.0
        running = [one for one in [stage.arrive() for _ in range(12)] if isinstance(one, Lease)]
        for number, lease in enumerate(running):
            verdict = GOOD if second < 30 or number % 3 else Verdict.BACKPRESSURE
            stage.end(lease, verdict, seconds if verdict is GOOD else 0.0)
        for ticket, grant in stage.router.pump(stage.now):
            assert isinstance(grant, Lease) and ticket.id
            stage.end(grant, GOOD, seconds)
        for ticket in list(stage.router.queue.tickets()):
            stage.router.cancel(ticket)
        stage.pass_time(1.0)
    assert stage.router.circuits.trips == {}
    assert all(not one.holds and not one.shares for one in stage.fleet)


def paced(stage: Stage, seconds_of: dict[int, float], seconds: int, calls: int = 3) -> None:
    """So many calls a second on each of these, each with its own time to the first byte."""
    for _ in range(seconds):
        for backend, service in seconds_of.items():
            if not stage.is_open(backend):
                stage.calls(backend, GOOD, calls, service)
        stage.pass_time(1.0)


def test_calls_five_times_slower_than_the_others_open_it() -> None:
    stage = Stage()
    paced(stage, {0: 0.1, 1: 0.1}, 25)
    assert not stage.is_open(0)
    paced(stage, {0: 0.5, 1: 0.1}, 90)
    assert stage.circuit(0).cause is TripCause.SLOW_CALLS
    assert stage.router.circuits.trips == {(B0, TripCause.SLOW_CALLS): 1}
    assert not stage.is_open(1)


def test_calls_three_times_slower_do_not_and_nor_do_those_of_a_backend_alone() -> None:
    stage = Stage()
    paced(stage, {0: 0.1, 1: 0.1}, 25)
    paced(stage, {0: 0.3, 1: 0.1}, 120)
    assert not stage.is_open(0)
    alone = Stage(backends=1)
    paced(alone, {0: 0.1}, 25)
    paced(alone, {0: 5.0}, 120)
    assert not alone.is_open(0)


def test_of_slow_calls_twenty_and_four_fifths_are_needed() -> None:
    def slow_of(slow: int, quick: int) -> bool:
        stage = Stage()
        paced(stage, {0: 0.1, 1: 0.1}, 61)
        stage.now += 61.0  # nothing of it is in the slow window any more
        stage.calls(1, GOOD, 20, 0.1)
        stage.calls(0, GOOD, quick, 0.1)
        stage.calls(0, GOOD, slow, 2.0)
        stage.pass_time(1.0)
        return stage.is_open(0)

    assert slow_of(20, 0) and slow_of(16, 4)
    assert not slow_of(19, 0) and not slow_of(15, 4) and not slow_of(16, 5)


def test_other_pools_say_nothing_of_what_is_slow() -> None:
    stage = Stage()
    paced(stage, {0: 0.1, 1: 0.1}, 61)
    stage.now += 61.0
    other = BackendPlan(BackendId("c0"), PoolName("q"), 10)
    plans = [BackendPlan(one.id, POOL, 10) for one in stage.fleet]
    stage.router.configure([*plans, other], stage.rules)
    for _ in range(50):
        quick = stage.router.arrive("", stage.now, Intent(streamed=True, backend=other.id))
        assert isinstance(quick, Lease)
        stage.end(quick, GOOD, 0.1)
    stage.calls(1, GOOD, 19, 0.1)
    stage.calls(0, GOOD, 20, 2.0)
    stage.pass_time(1.0)
    assert not stage.is_open(0)
    stage.calls(1, GOOD, 1, 0.1)
    stage.pass_time(1.0)
    assert stage.is_open(0)


def test_calls_that_began_before_a_circuits_last_change_say_nothing_of_it() -> None:
    stage = Stage()
    before = [stage.lease(0, tenant=TENANTS[number % 2]) for number in range(5)]
    good = stage.lease(0)
    circuit = stage.breaks(0)
    assert circuit.window.last(60, stage.now).calls == 5
    stage.comes_back(circuit)
    for lease in before:
        stage.end(lease, FAULT)
    stage.end(good, GOOD)
    assert circuit.is_closed and circuit.in_a_row == 0 and circuit.window.last(60, stage.now).calls == 0
    stage.calls(0, FAULT, 5)  # those that begin now do
    assert not circuit.is_closed


def test_good_calls_do_not_close_a_circuit_and_bad_ones_do_not_prolong_it() -> None:
    stage = Stage(backends=1)
    circuit = stage.breaks(0)
    probe_at = circuit.probe_at
    stage.calls(0, GOOD, 30)
    stage.calls(0, FAULT, 30)
    assert circuit.state is CircuitState.OPEN and circuit.probe_at == probe_at
    assert circuit.window.last(60, stage.now).calls == 65
    assert stage.router.circuits.trips == {(B0, TripCause.CONSECUTIVE): 1}


def test_an_attempt_that_is_tried_elsewhere_is_one_failure() -> None:
    stage = Stage()
    for number in range(5):
        lease = stage.lease(0, tenant=TENANTS[number % 2])
        lease.line, lease.tag = lease.line._replace(backend=None), lease.tag._replace(backend=None)
        lease.intent = lease.intent._replace(backend=None)
        assert stage.router.move(lease, FAULT, False, True, stage.now)
        assert lease.backend is stage.fleet[1]
        stage.end(lease, GOOD)
    assert stage.is_open(0)
    assert stage.circuit(0).in_a_row == 5 and stage.circuit(0).window.last(60, stage.now).failures == 5
    assert stage.circuit(1).window.last(60, stage.now) == (5, 0, 0)


def test_only_the_model_that_fails_is_taken_out_of_a_backend() -> None:
    stage = Stage(models=["x", "y"])
    stage.breaks(0, "x")
    assert stage.used(6, "x") == {"b1"} and stage.used(6, "y") == {"b0", "b1"} == stage.used(6)
    assert not stage.fleet[0].holds
    circuit = stage.breaks(0, "y")
    assert stage.fleet[0].holds == {Hold.CIRCUIT}  # it has nothing left to serve
    assert stage.used(6, "y") == {"b1"} == stage.used(6)
    stage.comes_back(circuit)
    assert stage.used(6, "x") == {"b1"} and not stage.fleet[0].holds


def test_names_that_no_engine_tells_share_a_circuit() -> None:
    stage = Stage()
    for number in range(1000):
        stage.end(stage.lease(0, f"model-{number}"), GOOD)
    assert [one.model for one in stage.circuits()] == [""]


def test_a_backend_of_very_many_models_has_so_many_circuits_at_most() -> None:
    models = [f"model-{number}" for number in range(200)]
    stage = Stage(models=models)
    for model in models:
        stage.calls(0, GOOD, model=model)
        stage.calls(0, GOOD)
    assert len(stage.circuits()) == MAX_CIRCUITS


def test_the_circuit_of_a_model_that_is_gone_is_gone_and_leaves_no_trace() -> None:
    stage = Stage(models=["x", "y"])
    late = stage.lease(0, "x")
    circuit = stage.breaks(0, "x")
    stage.changes.clear()
    stage.router.engines.learn_models(B0, frozenset("y"))
    assert circuit not in stage.circuits() and stage.changes == [circuit] and not circuit.is_live
    assert stage.fleet[0].open_models == frozenset()
    assert not stage.router.circuits.canary_begins(circuit, stage.now + 1000.0)
    stage.router.circuits.canary_ended(circuit, CanaryOutcome.BAD, stage.now, 0.0)
    stage.end(late, FAULT)
    assert {one.model for one in stage.circuits()} == {""}  # and there it does not count
    assert stage.circuit(0).window.last(60, stage.now).calls == 0
    stage.router.engines.learn_models(B0, frozenset("xy"))
    assert stage.used(6, "x") == {"b0", "b1"}


def test_a_probe_of_a_circuit_that_is_gone_changes_nothing_when_it_ends() -> None:
    stage = Stage(models=["x", "y"])
    circuit = stage.breaks(0, "x")
    assert stage.router.circuits.canary_begins(circuit, circuit.probe_at)
    stage.router.engines.learn_models(B0, frozenset("y"))
    before = dict(stage.router.circuits.transitions)
    stage.router.circuits.canary_ended(circuit, CanaryOutcome.GOOD, stage.now, 0.0)
    assert stage.router.circuits.transitions == before and not stage.router.circuits.canaries


def test_a_backend_that_is_configured_no_more_takes_its_circuits_along() -> None:
    stage = Stage(backends=3)
    circuit = stage.breaks(2)
    backend = stage.fleet[2]
    late = stage.lease(1)
    stage.changes.clear()
    stage.configure(2)
    assert stage.changes == [circuit] and not circuit.is_live
    stage.changes.clear()
    assert not any(one is backend or one is circuit for one in kept_by(stage.router))
    stage.configure(3)
    assert stage.used(9) == {"b0", "b1", "b2"}
    stage.end(late, FAULT)


def test_while_it_is_not_enabled_nobody_is_judged_and_nothing_is_kept() -> None:
    stage = Stage(backends=3)
    stage.breaks(0)
    stage.comes_back(stage.breaks(1))
    assert stage.fleet[1].shares
    stage.rules = replace(stage.rules, circuit=CircuitRules(enabled=False))
    stage.configure(2)
    assert stage.circuits() == [] and not any(one.holds or one.shares for one in stage.fleet)
    stage.calls(0, FAULT, 50)
    stage.calls(0, GOOD, 50, 0.1)
    stage.pass_time(40.0)
    assert stage.circuits() == [] and list(stage.router.circuits.watches) == []
    stage.rules = replace(stage.rules, circuit=CircuitRules())
    stage.configure(2)
    stage.breaks(0)


def test_a_new_configuration_keeps_what_is_open_and_a_new_window_begins_empty() -> None:
    stage = Stage()
    circuit = stage.breaks(0)
    stage.calls(1, FAULT, 4)
    stage.configure(2)
    assert not circuit.is_closed and stage.fleet[0].holds == {Hold.CIRCUIT}
    assert stage.circuit(1).window.last(60, stage.now).calls == 4
    stage.rules = replace(stage.rules, circuit=CircuitRules(slow_seconds=90))
    stage.configure(2)
    assert not circuit.is_closed
    assert stage.circuit(1).window.last(90, stage.now).calls == 0
    assert stage.circuit(1).window.seconds == 90


def test_what_is_refused_for_want_of_a_backend_is_counted_as_lost_to_the_breaker() -> None:
    stage = Stage(backends=1, circuit=CircuitRules(panic_share=1.0))
    stage.router.fleet.hold(stage.fleet[0], Hold.OPERATOR)
    assert stage.arrive() is Refusal.NO_BACKEND
    assert stage.router.circuits.lost_requests == 0  # no circuit is open
    stage.router.fleet.release(stage.fleet[0], Hold.OPERATOR)
    stage.breaks(0)
    assert stage.arrive() is Refusal.NO_BACKEND
    assert stage.router.circuits.lost_requests == 1 and not stage.router.circuits.panics(PoolName("p"))


def test_what_is_refused_for_another_models_sake_is_no_loss() -> None:
    stage = Stage(models=["x", "y"])
    stage.breaks(0, "x")
    for backend in stage.fleet:
        stage.router.fleet.hold(backend, Hold.OPERATOR)
    assert stage.arrive(model="y") is Refusal.NO_BACKEND
    assert stage.router.circuits.lost_requests == 0
    assert stage.arrive(model="x") is Refusal.NO_BACKEND
    assert stage.router.circuits.lost_requests == 1


def test_who_waits_when_the_last_backend_is_taken_out_is_counted_too() -> None:
    stage = Stage(backends=1, window=1, circuit=CircuitRules(panic_share=1.0, failures_in_a_row=2))
    stage.calls(0, FAULT)
    lease = stage.lease(0, tenant=TENANTS[1])
    assert not isinstance(stage.arrive(), (Lease, Refusal))
    stage.end(lease, FAULT)
    [(_, grant)] = stage.router.pump(stage.now)
    assert grant is Refusal.NO_BACKEND and stage.router.circuits.lost_requests == 1


def test_slow_calls_are_forgotten_when_they_are_older_than_the_window() -> None:
    stage = Stage()
    paced(stage, {0: 0.1, 1: 0.1}, 61)
    stage.now += 61.0
    stage.calls(0, GOOD, 1, 2.0)
    assert stage.circuit(0).has_slow
    stage.pass_time(stage.rules.circuit.slow_seconds - 1.0)
    assert stage.circuit(0).has_slow
    stage.pass_time(2.0)
    assert not stage.circuit(0).has_slow and not stage.is_open(0)


def test_an_engine_that_can_be_reached_again_is_probed_at_once_and_closed_circuits_are_left_alone() -> None:
    stage = Stage(models=("x", "y"))
    circuit = stage.breaks(0, "x")
    stage.calls(0, GOOD, 1, model="y")
    other = stage.circuit(0, "y")
    before = other.probe_at
    backend = stage.fleet[0]
    stage.router.unreachable(backend, stage.now)
    stage.pass_time(1.0)
    due = circuit.probe_at
    assert due > stage.now + 1.0
    stage.router.fleet.mark_reachable(backend)
    stage.changes.clear()
    stage.pass_time(1.0)
    assert circuit.probe_at == stage.now and other.probe_at == before
    assert stage.changes == [circuit]


def test_a_slow_start_ends() -> None:
    stage = Stage()
    stage.comes_back(stage.breaks(0))
    [watch] = [one for one in stage.router.circuits.watches if one.backend is stage.fleet[0]]
    assert watch.slow_start_at is not None
    stage.pass_time(stage.rules.circuit.slow_start_seconds + 1.0)
    assert watch.slow_start_at is None
    assert not stage.fleet[0].shares


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.9])
def test_the_first_pause_is_spread_by_the_chance_of_the_last_beat(jitter: float) -> None:
    stage = Stage()
    stage.router.circuits.beat(stage.now, jitter)
    pause = stage.breaks(0).probe_at - stage.now
    whole = stage.rules.circuit.open_seconds
    assert pause == pytest.approx(whole / 2 * (1 + (jitter + 0.618033988749895) % 1.0))
