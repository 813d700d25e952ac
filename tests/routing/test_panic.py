"""No pool is left without a backend because of circuits: where too many are open the least bad are used, with a tenth of their windows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.circuit import CircuitRules
from policies.pool_choice import PoolFacts
from policies.terms import BackendId, Lane, PoolName, Refusal
from routing.backend import BackendPlan, Hold, Limiter, open_ratio
from routing.decision import Lease, Ticket
from routing.fleet import PoolPlan
from routing.preemption import Running
from tests.routing.circuit_stage import FAULT, GOOD, POOL, Stage


def let_back(stage: Stage) -> list[str]:
    return [str(one.id) for one in stage.fleet if Limiter.PANIC in one.shares]


def held(stage: Stage) -> list[str]:
    return [str(one.id) for one in stage.fleet if Hold.CIRCUIT in one.holds]


def test_with_half_of_them_open_there_is_no_panic_and_with_more_so_many_are_used_that_half_are_out() -> None:
    stage = Stage(backends=4, window=100)
    stage.breaks(0)
    stage.breaks(1)
    assert held(stage) == ["b0", "b1"] and not stage.router.circuits.panics(POOL)
    stage.breaks(2)
    assert len(held(stage)) == 2 and len(let_back(stage)) == 1 and stage.router.circuits.panics(POOL)
    stage.breaks(3)
    assert len(held(stage)) == 2 and len(let_back(stage)) == 2
    assert [one.window for one in stage.fleet if not one.holds] == [10, 10]
    assert open_ratio(stage.fleet) == 1.0


def test_a_backend_that_is_alone_is_never_left_out() -> None:
    stage = Stage(backends=1, window=100)
    circuit = stage.breaks(0)
    assert stage.fleet[0].window == 10 and isinstance(stage.arrive(), Lease)
    stage.comes_back(circuit)
    assert not stage.router.circuits.panics(POOL)
    assert set(stage.fleet[0].shares) == {Limiter.SLOW_START}


def test_a_backend_fails_until_one_of_its_models_is_served_again() -> None:
    stage = Stage(backends=2, models=["a", "b"])
    circuits, backend = stage.router.circuits, stage.fleet[0]
    assert not circuits.fails(backend), "nothing is known of it"
    stage.calls(0, FAULT, model="b")
    stage.calls(0, GOOD, model="b")
    first = stage.breaks(0, "a")
    assert not circuits.fails(backend)
    stage.breaks(0, "b")
    assert circuits.fails(backend) and not circuits.fails(stage.fleet[1])
    stage.comes_back(first)
    assert not circuits.fails(backend)


def test_those_that_fail_least_are_used() -> None:
    rules = CircuitRules(failures_in_a_row=1000)
    stage = Stage(backends=3, circuit=rules)
    for backend, good in ((0, 1), (1, 9), (2, 5)):
        stage.calls(backend, GOOD, good)
        stage.calls(backend, FAULT, max(10 - good, good))
    # Of b0 all but one of ten failed, of b1 and b2 a half.
    assert held(stage) == ["b0"] and set(let_back(stage)) == {"b1", "b2"}


def test_who_fails_less_now_is_used_from_the_next_beat_on() -> None:
    stage = Stage(backends=2, window=10)
    stage.breaks(0)
    stage.breaks(1)
    [used] = let_back(stage)
    worse = int(used[1])
    better = 1 - worse
    stage.router.fleet.hold(stage.fleet[worse], Hold.OPERATOR)
    assert let_back(stage) == [f"b{better}"]  # at once, for nobody else is there
    stage.calls(better, GOOD, 20)
    stage.router.fleet.release(stage.fleet[worse], Hold.OPERATOR)
    stage.pass_time(1.0)
    assert let_back(stage) == [f"b{better}"] and held(stage) == [f"b{worse}"]


def test_whatever_takes_the_last_good_one_away_is_followed_by_panic_in_the_same_step() -> None:
    for how in ("unreachable", "probe", "held", "configured"):
        stage = Stage(backends=2)
        stage.breaks(0)
        assert held(stage) == ["b0"] and not let_back(stage)
        other = stage.fleet[1]
        if how == "unreachable":
            stage.router.unreachable(other, stage.now)
        elif how == "probe":
            stage.router.engines.probed(other.id, False, True, stage.now)
        elif how == "held":
            stage.router.fleet.hold(other, Hold.RULE)
        else:
            stage.configure(1)
        assert let_back(stage) == ["b0"], how
        assert isinstance(stage.arrive(), Lease), how


def test_nobody_who_waits_is_refused_when_the_last_good_one_goes() -> None:
    stage = Stage(backends=2, window=1)
    stage.breaks(0)
    running = stage.lease()
    ticket = stage.arrive()
    assert isinstance(ticket, Ticket)
    stage.router.unreachable(running.backend, stage.now)
    [(granted, lease)] = stage.router.pump(stage.now)
    assert granted is ticket and isinstance(lease, Lease) and lease.backend is stage.fleet[0]


def test_it_ends_when_a_good_one_is_back() -> None:
    stage = Stage(backends=2)
    stage.breaks(0)
    stage.router.unreachable(stage.fleet[1], stage.now)
    assert let_back(stage) == ["b0"]
    stage.router.engines.probed(BackendId("b1"), True, False, stage.now)
    assert not let_back(stage) and held(stage) == ["b0"] and not stage.router.circuits.panics(POOL)


def test_it_ends_with_the_circuits() -> None:
    stage = Stage(backends=2)
    first, second = stage.breaks(0), stage.breaks(1)
    stage.comes_back(first)
    assert not let_back(stage) and held(stage) == ["b1"]
    stage.comes_back(second)
    stage.pass_time(31.0)
    assert all(not one.holds and not one.shares for one in stage.fleet)


def test_those_that_rest_or_are_held_otherwise_do_not_count() -> None:
    stage = Stage(backends=5)
    stage.router.fleet.hold(stage.fleet[4], Hold.STANDBY)
    stage.router.unreachable(stage.fleet[3], stage.now)
    stage.breaks(0)
    assert not let_back(stage)
    stage.breaks(1)  # two of three
    assert len(let_back(stage)) == 1
    assert stage.fleet[4].holds == {Hold.STANDBY}


@pytest.mark.parametrize(("share", "used"), [(0.0, 3), (0.3, 3), (0.5, 2), (0.9, 1), (1.0, 0)])
def test_panic_share_says_how_many_may_be_out(share: float, used: int) -> None:
    stage = Stage(backends=3, circuit=CircuitRules(panic_share=share))
    for backend in range(3):
        stage.breaks(backend)
    assert len(let_back(stage)) == used and len(held(stage)) == 3 - used
    if not used:
        assert stage.arrive() is Refusal.NO_BACKEND


def test_a_model_that_is_open_everywhere_is_used_where_it_fails_least_and_the_others_go_on() -> None:
    stage = Stage(backends=2, models=["x", "y"])
    stage.breaks(0, "x")
    stage.breaks(1, "x")
    assert stage.router.circuits.panics(POOL)
    assert len(stage.used(6, "x")) == 1 and stage.used(6, "y") == {"b0", "b1"}
    assert all(not one.shares and not one.holds for one in stage.fleet)


def test_a_pool_that_is_gone_while_it_panics_does_not_panic_when_it_is_back() -> None:
    stage = Stage(backends=1)
    stage.breaks(0)
    assert stage.router.circuits.panics(POOL)
    other = BackendPlan(BackendId("c"), PoolName("q"), 1)
    stage.router.configure([other], stage.rules, [PoolPlan(PoolFacts(PoolName("q")))])
    stage.configure(1)
    assert not stage.router.circuits.panics(POOL)


def test_an_emergency_is_sent_to_no_backend_in_doubt_while_another_is_well_be_it_full() -> None:
    rules = CircuitRules(panic_share=0.0)
    stage = Stage(backends=2, window=2, circuit=rules)
    stage.breaks(0)
    assert let_back(stage) == ["b0"]
    emergencies = [stage.arrive(lane=Lane.EMERGENCY) for _ in range(3)]
    assert [isinstance(one, Lease) for one in emergencies] == [True, True, False]
    assert {one.backend for one in emergencies if isinstance(one, Lease)} == {stage.fleet[1]}
    assert isinstance(stage.lease(0), Lease)  # others are


def test_an_emergency_is_no_trial_of_an_absent_backend_unless_nothing_else_is_there() -> None:
    stage = Stage(backends=2, window=2)
    stage.router.unreachable(stage.fleet[0], stage.now)
    stage.now += 60.0
    first = [stage.lease(lane=Lane.EMERGENCY) for _ in range(2)]
    assert {one.backend for one in first} == {stage.fleet[1]}
    waiting = stage.arrive(lane=Lane.EMERGENCY)
    assert isinstance(waiting, Ticket) and stage.router.pump(stage.now) == []
    stage.router.unreachable(stage.fleet[1], stage.now)
    [(_, grant)] = stage.router.pump(stage.now)
    assert isinstance(grant, Lease) and grant.backend is stage.fleet[0] and grant.is_trial


def test_an_emergency_that_only_one_backend_can_serve_is_sent_there() -> None:
    stage = Stage(backends=2, circuit=CircuitRules(panic_share=0.0))
    stage.breaks(0)
    assert stage.lease(0, lane=Lane.EMERGENCY).backend is stage.fleet[0]


def test_nobody_gives_way_on_a_backend_in_doubt() -> None:
    """Its slot would be of no use to the emergency."""
    stage = Stage(backends=2, window=1, circuit=CircuitRules(panic_share=0.0))
    stage.breaks(0)
    doubtful = stage.lease(0)
    well = stage.lease(1, lane=Lane.EMERGENCY)
    assert isinstance(stage.arrive(lane=Lane.EMERGENCY), Ticket)
    stage.now += 100.0
    running = [Running(doubtful, 0.0), Running(well, 0.0)]
    assert stage.router.preemption.choose(lambda: running, stage.now) == []


def test_rules_that_are_switched_off_let_everybody_back() -> None:
    stage = Stage(backends=3)
    for backend in range(3):
        stage.breaks(backend)
    stage.rules = replace(stage.rules, circuit=CircuitRules(enabled=False))
    stage.configure(3)
    assert all(not one.holds and not one.shares and not one.is_blocked for one in stage.fleet)
    assert not stage.router.circuits.panics(POOL) and stage.router.fleet.doubtful == set()
