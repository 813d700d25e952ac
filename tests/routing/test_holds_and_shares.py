"""A backend that something holds gets nothing new; one that is to be used less has that share of its window. Several reasons add up and leave no trace."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from policies.dialects import EngineReport
from policies.terms import BackendId, PoolName, Refusal, Verdict
from policies.windows import WindowRules
from routing.backend import BackendPlan, Hold, Limiter
from routing.decision import Lease
from routing.router import Router
from routing.rules import Rules

POOL = PoolName("p")


def core(*windows: int | None) -> Router:
    router = Router(Rules())
    plans = [BackendPlan(BackendId(f"b{number}"), POOL, window) for number, window in enumerate(windows)]
    router.configure(plans, Rules())
    return router


def leases(router: Router, count: int) -> list[Lease]:
    taken = [router.arrive("", 0.0) for _ in range(count)]
    return [lease for lease in taken if isinstance(lease, Lease)]


def test_a_held_backend_gets_nothing_until_its_last_hold_is_gone_and_what_runs_goes_on() -> None:
    router = core(4, 4)
    first, second = router.fleet
    running = leases(router, 2)
    router.fleet.hold(first, Hold.RULE)
    router.fleet.hold(first, Hold.CIRCUIT)
    router.fleet.hold(first, Hold.RULE)
    assert {lease.backend for lease in leases(router, 3)} == {second}
    assert first.in_flight == 1 and router.fleet.pools[POOL].capacity == 4
    router.fleet.release(first, Hold.RULE)
    router.engines.probed(first.id, True, False, 1.0)  # well, and held all the same
    assert first.is_blocked
    router.fleet.release(first, Hold.CIRCUIT)
    router.fleet.release(first, Hold.CIRCUIT)
    assert not first.is_blocked and router.fleet.pools[POOL].capacity == 8
    for lease in running:
        router.finish(lease, 2.0)
    assert router.fleet.pools[POOL].in_flight == 3


def test_where_all_are_held_nobody_is_served_and_an_absent_one_stays_absent_when_it_is_released() -> None:
    router = core(1)
    [backend] = router.fleet
    router.unreachable(backend, 0.0)
    router.fleet.hold(backend, Hold.OPERATOR)
    assert router.arrive("", 5.0) is Refusal.NO_BACKEND
    router.fleet.release(backend, Hold.OPERATOR)
    assert isinstance(router.arrive("", 5.0), Lease)  # its trial
    router.fleet.hold(backend, Hold.OPERATOR)
    router.unreachable(backend, 5.0)
    router.fleet.release(backend, Hold.OPERATOR)
    assert router.arrive("", 5.5) is Refusal.NO_BACKEND


def test_shares_multiply_and_leave_a_slot_at_least() -> None:
    router = core(20, 20)
    first, _ = router.fleet
    router.fleet.use_share(first, Limiter.RULE, 0.5)
    assert first.window == 10 and router.fleet.pools[POOL].capacity == 30
    router.fleet.use_share(first, Limiter.SLOW_START, 0.1)
    assert first.window == 1
    router.fleet.use_share(first, Limiter.OUTLIER, 0.1)
    assert first.window == 1
    router.fleet.use_share(first, Limiter.SLOW_START, 1.0)
    router.fleet.use_share(first, Limiter.OUTLIER, 1.0)
    assert first.window == 10
    router.fleet.use_share(first, Limiter.RULE, 1.0)
    assert first.window == 20 and first.shares == {} and router.fleet.pools[POOL].capacity == 40


def test_a_window_that_moves_goes_on_moving_under_its_share() -> None:
    router = Router(Rules())
    plan = BackendPlan(BackendId("b"), POOL, None, WindowRules(16, 4, 32))
    router.configure([plan], Rules())
    [backend] = router.fleet
    router.fleet.use_share(backend, Limiter.OUTLIER, 0.5)
    assert (backend.whole_window, backend.window) == (16, 8)
    router.fleet.pushed_back(backend, 1.0)
    whole = backend.whole_window
    assert whole is not None and whole < 16 and backend.window == max(1, whole // 2)
    router.fleet.configure([plan])
    assert (backend.whole_window, backend.window) == (whole, max(1, whole // 2))


def test_without_a_window_it_is_a_share_of_what_the_engine_runs_or_of_what_the_others_get() -> None:
    router = core(None, None)
    first, second = router.fleet
    router.fleet.use_share(first, Limiter.RULE, 0.25)
    held = [lease.backend for lease in leases(router, 10)]
    assert held.count(first) == 2 and held.count(second) == 8 and first.window is None
    router.engines.reported(first.id, EngineReport(max_num_seqs=64), 1.0)
    assert first.window == 16 and router.fleet.pools[POOL].capacity == inf
    router.fleet.use_share(first, Limiter.RULE, 1.0)
    assert first.window is None


@given(
    st.lists(
        st.tuples(st.sampled_from(Limiter), st.sampled_from((0.05, 0.3, 0.5, 0.9, 1.0)), st.booleans()),
        max_size=20,
    )
)
def test_whatever_comes_and_goes_the_pool_counts_what_is_there(
    steps: list[tuple[Limiter, float, bool]],
) -> None:
    router = core(10, 7)
    first, second = router.fleet
    running: list[Lease] = []
    for limiter, share, holds in steps:
        router.fleet.use_share(first, limiter, share)
        (router.fleet.hold if holds else router.fleet.release)(first, Hold.RULE)
        running += leases(router, 1)
        if len(running) > 3:
            lease = running.pop(0)
            lease.verdict = Verdict.GOOD
            router.finish(lease, 0.0)
        pool = router.fleet.pools[POOL]
        usable = [one for one in (first, second) if not one.is_blocked]
        assert pool.capacity == sum(one.window or 0 for one in usable)
        assert pool.in_flight == sum(min(one.in_flight, one.window or 0) for one in usable)
    for limiter in Limiter:
        router.fleet.use_share(first, limiter, 1.0)
    router.fleet.release(first, Hold.RULE)
    assert first.window == 10 and router.fleet.pools[POOL].capacity == 17
