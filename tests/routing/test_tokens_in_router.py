"""Who gets a slot where tokens are the limit, who waits, and who is not passed for ever."""

from __future__ import annotations

import pytest

from policies.capacity_tokens import TokenRules
from policies.gathering import GatheringRules
from policies.lengths import TextSize
from policies.pool_choice import PoolFacts
from policies.terms import BackendId, Lane, PoolName, Verdict
from routing.backend import Backend, BackendPlan
from routing.decision import Decision, Intent, Lease, Ticket
from routing.fleet import PoolPlan
from routing.router import Grant, Router
from routing.rules import Rules
from routing.token_choice import MAX_PASSED

P = PoolName("p")


def router_of(
    *max_tokens: int | None,
    prefill: int | None = None,
    window: int | None = 100,
    pool: PoolPlan | None = None,
) -> Router:
    """Backends `b0`, `b1`, ... with these limits of tokens; None has none."""
    rules = Rules()
    router = Router(rules)
    plans = [
        BackendPlan(
            BackendId(f"b{number}"),
            P,
            window,
            tokens=TokenRules(limit, prefill) if limit or prefill else None,
        )
        for number, limit in enumerate(max_tokens)
    ]
    router.configure(plans, rules, [pool] if pool else [])
    return router


def of(prompt: int, output: int = 0, lane: Lane = Lane.STANDARD, **fields: object) -> Intent:
    size = TextSize(token_ids=prompt)
    return Intent(lane=lane, size=size, max_tokens=output)._replace(**fields)  # type: ignore[arg-type]


def leased(decision: Decision) -> Lease:
    assert isinstance(decision, Lease), decision
    return decision


def waiting(decision: Decision) -> Ticket:
    assert isinstance(decision, Ticket), decision
    return decision


def one(grants: list[tuple[Ticket, Grant]], ticket: Ticket) -> Lease:
    [(granted, lease)] = grants
    assert granted is ticket and isinstance(lease, Lease)
    return lease


def held(router: Router) -> list[tuple[int, int]]:
    """Tokens and prefill of each backend."""
    return [(one.room.reserved, one.room.backlog) for one in router.fleet if one.room is not None]


def backend(router: Router, number: int) -> Backend:
    found = router.fleet.get(BackendId(f"b{number}"))
    assert found is not None
    return found


# --- the limit ----------------------------------------------------------------------------------------------------------------


def test_a_request_waits_where_prompt_and_expected_answer_exceed_the_limit_with_what_is_there() -> None:
    router = router_of(100)
    first = leased(router.arrive("", 0.0, of(30, 20)))
    leased(router.arrive("", 0.0, of(30, 20)))
    assert held(router) == [(100, 0)]
    third = waiting(router.arrive("", 0.0, of(1)))
    assert router.pump(0.0) == []
    router.finish(first, 1.0)
    one(router.pump(1.0), third)
    assert held(router) == [(51, 0)]


def test_a_request_beyond_the_limit_runs_alone() -> None:
    router = router_of(100)
    small = leased(router.arrive("", 0.0, of(10)))
    large = waiting(router.arrive("", 0.0, of(500)))
    router.finish(small, 1.0)
    alone = one(router.pump(1.0), large)
    waiting(router.arrive("", 1.0, of(1)))
    router.finish(alone, 2.0)
    assert len(router.pump(2.0)) == 1


def test_a_pool_without_a_window_has_its_tokens_counted_too_and_whoever_waits_there_is_charged() -> None:
    router = router_of(100, window=None)
    first = leased(router.arrive("", 0.0, of(60)))
    assert first.charged > 0
    waiting(router.arrive("", 0.0, of(60)))


def test_a_backend_that_has_the_tokens_is_taken_before_one_that_answers_sooner() -> None:
    router = router_of(100, 1000)
    leases = [leased(router.arrive("", 0.0, of(80))) for _ in range(2)]
    assert {lease.backend.id for lease in leases} == {"b0", "b1"}
    assert leased(router.arrive("", 0.0, of(80))).backend.id == "b1"
    assert leased(router.arrive("", 0.0, of(20))).backend.id == "b1", "the smaller share"
    assert leased(router.arrive("", 0.0, of(700))).backend.id == "b1"
    assert leased(router.arrive("", 0.0, of(20))).backend.id == "b0", "only that one has so many left"


def test_a_backend_without_a_limit_takes_what_the_others_cannot() -> None:
    router = router_of(10, None)
    places = [leased(router.arrive("", 0.0, of(10))).backend.id for _ in range(6)]
    assert sorted(places) == ["b0"] + 5 * ["b1"]


def test_a_long_row_of_backends_without_the_tokens_is_not_searched_to_its_end() -> None:
    router = router_of(*([100] * (MAX_PASSED + 5)))
    for _ in range(MAX_PASSED + 5):
        leased(router.arrive("", 0.0, of(90)))
    waiting(router.arrive("", 0.0, of(90)))


def test_a_request_for_one_backend_waits_for_its_tokens() -> None:
    router = router_of(100, 100)
    pinned = of(60, backend=BackendId("b0"))
    first = leased(router.arrive("", 0.0, pinned))
    second = waiting(router.arrive("", 0.0, pinned))
    assert router.pump(0.0) == []
    router.finish(first, 1.0)
    assert one(router.pump(1.0), second).backend.id == "b0"


def test_a_moved_request_takes_its_tokens_along() -> None:
    router = router_of(100, 100)
    lease = leased(router.arrive("", 0.0, of(60)))
    at = lease.backend
    assert router.move(lease, Verdict.FAULT, False, True, 0.0)
    assert lease.backend is not at
    assert sorted(held(router)) == [(0, 0), (60, 0)]
    router.finish(lease, 1.0)
    assert held(router) == [(0, 0), (0, 0)]


def test_a_moved_request_waits_for_tokens_elsewhere() -> None:
    router = router_of(100, 100)
    leases = [leased(router.arrive("", 0.0, of(60))) for _ in range(2)]
    moved, other = leases
    assert router.move(moved, Verdict.FAULT, False, True, 0.0)
    ticket = moved.ticket
    assert ticket is not None and moved.room is None
    assert router.pump(0.0) == []
    router.finish(other, 1.0)
    assert one(router.pump(1.0), ticket) is moved
    router.finish(moved, 2.0)
    assert held(router) == [(0, 0), (0, 0)]


def test_a_batch_is_no_larger_than_the_tokens_allow() -> None:
    gathering = GatheringRules(2, 8, 0.1, False)
    router = router_of(100, pool=PoolPlan(PoolFacts(P), gathering))
    for _ in range(6):
        waiting(router.arrive("", 0.0, of(30)))
    assert len(router.pump(1.0)) == 3
    assert router.pump(2.0) == []


def test_the_state_tells_what_is_held_and_null_where_nothing_is_limited() -> None:
    router = router_of(100)
    leased(router.arrive("", 0.0, of(30, 20)))
    room = backend(router, 0).room
    assert room is not None
    assert room.state() == {
        "reserved": 50,
        "max_tokens": 100,
        "prefill_backlog": 0,
        "max_prefill_tokens": None,
        "prefill_tokens_per_second": None,
    }


# --- prefill ------------------------------------------------------------------------------------------------------------------


def test_prompts_count_as_backlog_until_the_first_tokens_of_their_answer() -> None:
    router = router_of(None, prefill=100)
    first = leased(router.arrive("", 0.0, of(60, 1000)))
    second = waiting(router.arrive("", 0.0, of(60, 1000)))
    assert router.pump(0.0) == [] and held(router) == [(316, 60)]
    assert router.produced(first, 1, 1.0), "tokens are free"
    assert not router.produced(first, 1, 1.0)
    one(router.pump(1.0), second)
    assert held(router) == [(632, 60)]
    router.finish(first, 2.0)
    assert held(router) == [(316, 60)]


def test_a_prompt_beyond_the_prefill_limit_goes_where_nothing_is_being_prefilled() -> None:
    router = router_of(None, prefill=100)
    running = leased(router.arrive("", 0.0, of(50)))
    long = waiting(router.arrive("", 0.0, of(5000)))
    assert router.pump(0.0) == []
    router.produced(running, 1, 1.0)
    one(router.pump(1.0), long)


def test_an_answer_that_ends_without_a_first_part_ends_its_prefill() -> None:
    router = router_of(None, prefill=100)
    router.finish(leased(router.arrive("", 0.0, of(60))), 1.0)
    assert held(router) == [(0, 0)]


def test_without_a_limit_of_the_prefill_no_backlog_is_kept() -> None:
    router = router_of(1000)
    lease = leased(router.arrive("", 0.0, of(60)))
    assert held(router) == [(60, 0)]
    assert not router.produced(lease, 1, 1.0)


# --- whose turn it is -----------------------------------------------------------------------------------------------------------


def test_small_ones_behind_a_large_one_in_its_line_do_not_pass_it() -> None:
    router = router_of(100, 100)
    running = [leased(router.arrive("", 0.0, of(50))) for _ in range(2)]
    large = waiting(router.arrive("", 0.0, of(80)))
    small = waiting(router.arrive("", 0.0, of(10)))
    assert router.pump(0.0) == []
    router.finish(running[0], 1.0)
    assert [ticket for ticket, _ in router.pump(1.0)] == [large, small]


@pytest.mark.parametrize("backends", [1, 3])
def test_a_large_one_is_not_passed_for_ever_by_small_ones_of_other_models(backends: int) -> None:
    """Each of them comes before the last one has ended, so that no backend is ever empty by itself."""
    router = router_of(*([100] * backends))
    running = [leased(router.arrive("small", 0.0, of(20))) for _ in range(4 * backends)]
    large = waiting(router.arrive("large", 0.0, of(100)))
    assert router.pump(0.0) == []
    passed = 0
    for now in range(1, 100):
        decision = router.arrive("small", now, of(20))
        if isinstance(decision, Lease):
            running.append(decision)
            passed += 1
        router.finish(running.pop(0), now)
        for ticket, grant in router.pump(now):
            assert isinstance(grant, Lease)
            if ticket is large:
                assert now <= 5 * backends
                assert grant.backend.in_flight == 1
                assert (passed > 0) == (backends > 1), "the other backends went on meanwhile"
                return
            running.append(grant)
            passed += 1
    raise AssertionError("it starved")


def test_what_arrives_while_a_backend_is_kept_for_a_large_one_does_not_take_its_place() -> None:
    router = router_of(100)
    first, second = (leased(router.arrive("small", 0.0, of(40))) for _ in range(2))
    large = waiting(router.arrive("large", 0.0, of(90)))
    assert router.pump(0.0) == []
    router.finish(first, 1.0)
    assert router.pump(1.0) == []
    late = waiting(router.arrive("small", 1.0, of(10)))
    assert router.pump(1.0) == []
    router.finish(second, 2.0)
    assert [ticket for ticket, _ in router.pump(2.0)] == [large, late]


def test_an_emergency_takes_what_is_kept_for_a_large_one() -> None:
    router = router_of(100)
    leased(router.arrive("small", 0.0, of(40)))
    waiting(router.arrive("large", 0.0, of(90)))
    assert router.pump(0.0) == []
    leased(router.arrive("small", 1.0, of(10, lane=Lane.EMERGENCY)))


def test_what_was_kept_for_a_large_one_that_left_is_free_at_once() -> None:
    router = router_of(100)
    leased(router.arrive("small", 0.0, of(40)))
    large = waiting(router.arrive("large", 0.0, of(90)))
    small = waiting(router.arrive("large", 0.0, of(10)))
    assert router.pump(0.0) == [] and router.slots.tokens.keeps
    assert router.cancel(large)
    leased(router.arrive("small", 1.0, of(10)))
    one(router.pump(1.0), small)
    assert not router.slots.tokens.keeps


def test_a_large_one_that_is_served_elsewhere_keeps_nothing() -> None:
    router = router_of(100, 100)
    running = [leased(router.arrive("", 0.0, of(50))) for _ in range(2)]
    large = waiting(router.arrive("large", 0.0, of(80)))
    assert router.pump(0.0) == []
    router.finish(running[1], 1.0)
    assert one(router.pump(1.0), large).backend is running[1].backend
    assert leased(router.arrive("small", 1.0, of(50))).backend is running[0].backend
    assert backend(router, 0).room is not None


def test_the_first_token_of_a_long_prompt_makes_its_backend_the_best_again() -> None:
    router = router_of(None, None, prefill=100)
    large = leased(router.arrive("", 0.0, of(90)))
    assert leased(router.arrive("", 0.0, of(20))).backend is not large.backend
    assert router.produced(large, 1, 0.0)
    assert leased(router.arrive("", 0.0, of(80))).backend is large.backend


def test_an_engine_that_restarts_keeps_its_limits_where_they_are_not_measured() -> None:
    router = router_of(100)
    leased(router.arrive("", 0.0, of(60)))
    backend(router, 0).restarted()
    waiting(router.arrive("", 0.0, of(60)))
    assert held(router) == [(60, 0)]


def test_what_one_pool_keeps_for_a_large_one_does_not_hold_up_another_pool() -> None:
    rules = Rules()
    router = Router(rules)
    plans = [
        BackendPlan(BackendId(f"b{number}"), PoolName(pool), 100, tokens=TokenRules(100, None))
        for number, pool in enumerate("pq")
    ]
    router.configure(plans, rules)
    here, there = (PoolName("p"),), (PoolName("q"),)
    first = leased(router.arrive("", 0.0, of(60, pools=here)))
    large = waiting(router.arrive("", 0.0, of(100, pools=here)))
    assert router.pump(0.0) == []
    assert router.slots.tokens.keeps
    second = leased(router.arrive("", 0.0, of(60, pools=there)))
    other = waiting(router.arrive("", 0.0, of(50, pools=there)))
    # For one of its own pool that would fit it is kept.
    waiting(router.arrive("", 0.0, of(10, pools=here)))
    assert router.pump(0.0) == []
    router.finish(second, 1.0)
    one(router.pump(1.0), other)
    router.finish(first, 2.0)
    one(router.pump(2.0), large)
