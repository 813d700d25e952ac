"""Several pools in one order: where a request is tried first, who is a guest where, and what of it is counted."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from policies.capacity_tokens import TokenRules
from policies.emergency import ReserveRules
from policies.gathering import GatheringRules
from policies.lengths import TextSize
from policies.path_split import PathRules
from policies.pool_choice import PoolChoiceRules, PoolFacts, PoolRole
from policies.terms import BackendId, CachePath, Lane, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import Decision, Intent, Lease, Line, Ticket
from routing.fleet import PoolPlan
from routing.placement import AffinityRules
from routing.pool_order import MAX_SPILLS
from routing.router import Router
from routing.rules import Rules
from routing.tagger import TaggerRules

FAST, BIG = PoolName("fast"), PoolName("big")
LIVE = Intent(lane=Lane.INTERACTIVE)
BULK = Intent(lane=Lane.BATCH)


def router_of(
    fast: int | None = 1,
    big: int | None = 1,
    *,
    choice: PoolChoiceRules | None = None,
    gathering: GatheringRules | None = None,
    reserve: int = 0,
    role: PoolRole = PoolRole.HIGH_BATCH,
    tokens: int | None = None,
    cold_share: float = 0.3,
) -> Router:
    """A low-latency pool with the backend `f` and one of another kind (or `role`) with `b`; None for a window leaves the pool empty."""
    rules = Rules(
        tagger=TaggerRules(pool_choice=choice or PoolChoiceRules()),
        reserve=ReserveRules(reserved_per_pool=reserve, lending_share=0.0),
        affinity=AffinityRules(
            paths=PathRules(hot_share=1.0 - cold_share, cold_share=cold_share, follow_traffic=False)
        ),
    )
    router = Router(rules)
    limit = TokenRules(tokens, None) if tokens else None
    plans = [
        BackendPlan(BackendId(id), pool, window, tokens=limit)
        for id, pool, window in (("f", FAST, fast), ("b", BIG, big))
        if window is not None
    ]
    facts = (PoolFacts(FAST, PoolRole.LOW_LATENCY), PoolFacts(BIG, role))
    router.configure(plans, rules, [PoolPlan(one, gathering) for one in facts])
    return router


def on(decision: Decision) -> Lease:
    assert isinstance(decision, Lease), decision
    return decision


def waiting(decision: Decision) -> Ticket:
    assert isinstance(decision, Ticket), decision
    return decision


def granted(router: Router, now: float) -> list[str]:
    """Backends, or refusals."""
    return [grant.backend.id if isinstance(grant, Lease) else grant.value for _, grant in router.pump(now)]


def served(router: Router, **seconds: float) -> None:
    """So many answers of each of these backends that their time is known."""
    for id, each in seconds.items():
        for _ in range(60):
            lease = on(router.arrive("", 0.0, LIVE._replace(backend=BackendId(id))))
            assert lease.backend.id == id
            lease.verdict, lease.service_seconds = Verdict.GOOD, each
            router.finish(lease, 0.0)


def test_each_kind_goes_to_its_pool_first() -> None:
    router = router_of()
    assert on(router.arrive("", 0.0, LIVE)).backend.id == "f"
    assert on(router.arrive("", 0.0, BULK)).backend.id == "b"
    assert not router.counts.spills


def test_a_live_request_whose_pool_is_full_takes_the_others_slot_and_that_is_counted_once() -> None:
    router = router_of(1, 2)
    on(router.arrive("", 0.0, LIVE))
    guest = on(router.arrive("", 0.0, LIVE))
    assert guest.backend.id == "b"
    assert dict(router.counts.spills) == {(FAST, BIG): 1}


def test_a_guest_whose_attempt_failed_is_not_counted_again() -> None:
    router = router_of(1, 1)
    lease = on(router.arrive("", 0.0, LIVE))
    assert router.move(lease, Verdict.FAULT, False, True, 0.0)
    assert lease.backend.id == "b"
    assert not router.counts.spills


def test_a_bulk_request_is_no_guest_where_half_is_in_use() -> None:
    router = router_of(2, 1)
    on(router.arrive("", 0.0, BULK))
    assert on(router.arrive("", 0.0, BULK)).backend.id == "f"
    late = waiting(router.arrive("", 0.0, BULK))
    assert granted(router, 0.0) == []
    assert router.cancel(late)


def test_a_bulk_request_that_waits_gets_a_guests_slot_once_less_than_half_is_in_use() -> None:
    router = router_of(2, 1)
    on(router.arrive("", 0.0, BULK))
    running = [on(router.arrive("", 0.0, LIVE)), on(router.arrive("", 0.0, LIVE))]
    waiting(router.arrive("", 0.0, BULK))
    router.finish(running[0], 1.0)
    assert granted(router, 1.0) == []
    router.finish(running[1], 2.0)
    assert granted(router, 2.0) == ["f"]
    assert dict(router.counts.spills) == {(BIG, FAST): 1}


def test_a_live_request_that_waits_is_a_guest_however_much_is_in_use() -> None:
    router = router_of(1, 4)
    on(router.arrive("", 0.0, LIVE))
    running = [on(router.arrive("", 0.0, BULK)) for _ in range(4)]
    waiting(router.arrive("", 0.0, LIVE))
    router.finish(running[0], 1.0)
    assert granted(router, 1.0) == ["b"]


def test_a_bulk_request_does_not_take_a_guests_slot_that_a_live_one_opened() -> None:
    router = router_of(2, 1)
    on(router.arrive("", 0.0, BULK))
    running = [on(router.arrive("", 0.0, LIVE)) for _ in range(2)]
    waiting(router.arrive("", 0.0, BULK))
    waiting(router.arrive("", 0.0, LIVE))
    router.finish(running[0], 1.0)
    router.finish(running[1], 1.0)
    first, *rest = [(ticket.tag.lane, grant) for ticket, grant in router.pump(1.0)]
    assert first[0] is Lane.INTERACTIVE
    assert not rest, "half is in use again"


def test_where_spilling_is_off_everybody_stays_at_home() -> None:
    router = router_of(1, 1, choice=PoolChoiceRules(spill=False))
    on(router.arrive("", 0.0, LIVE))
    waiting(router.arrive("", 0.0, LIVE))
    assert granted(router, 0.0) == []


def test_among_pools_of_one_kind_nobody_is_a_guest() -> None:
    router = router_of(2, 1, role=PoolRole.LOW_LATENCY)
    full = [on(router.arrive("", 0.0, BULK)) for _ in range(2)]
    assert [lease.backend.id for lease in full] == ["f", "f"]
    assert on(router.arrive("", 0.0, BULK)).backend.id == "b"
    waiting(router.arrive("", 0.0, BULK))
    router.finish(full[0], 1.0)
    assert granted(router, 1.0) == ["f"]


def test_a_pool_that_answers_in_less_than_half_the_time_is_taken_while_home_has_slots() -> None:
    router = router_of(4, 4)
    served(router, f=10.0, b=1.0)
    before = router.counts.spills[FAST, BIG]
    lease = on(router.arrive("", 0.0, LIVE))
    assert lease.backend.id == "b"
    assert router.counts.spills[FAST, BIG] == before + 1


@pytest.mark.parametrize("pools", [(PoolName("gone"),), (PoolName("gone"), PoolName("away"))])
def test_pools_that_nobody_has_serve_nobody(pools: tuple[PoolName, ...]) -> None:
    assert router_of().arrive("", 0.0, LIVE._replace(pools=pools)) is Refusal.NO_POOL


def test_a_pool_without_backends_that_comes_first_is_passed_over_and_nobody_spilled() -> None:
    router = router_of(None, 1)
    assert on(router.arrive("", 0.0, LIVE)).backend.id == "b"
    assert not router.counts.spills
    waiting(router.arrive("", 0.0, LIVE))
    assert granted(router, 0.0) == []


def test_who_waits_for_a_pool_that_lost_its_backends_is_served_by_the_next() -> None:
    router = router_of(1, 1)
    running = on(router.arrive("", 0.0, BULK))
    live = on(router.arrive("", 0.0, LIVE))
    waiting(router.arrive("", 0.0, LIVE))
    router.configure(
        [BackendPlan(BackendId("b"), BIG, 1)],
        router.rules,
        [PoolPlan(PoolFacts(FAST, PoolRole.LOW_LATENCY)), PoolPlan(PoolFacts(BIG))],
    )
    router.finish(live, 1.0)
    assert granted(router, 1.0) == []
    router.finish(running, 1.0)
    assert granted(router, 1.0) == ["b"]


def test_a_model_that_only_the_second_pool_has_is_served_there_and_waits_there() -> None:
    router = router_of(1, 1)
    router.engines.learn_models(BackendId("f"), frozenset({"x"}))
    router.engines.learn_models(BackendId("b"), frozenset({"y"}))
    running = on(router.arrive("y", 0.0, LIVE))
    assert running.backend.id == "b"
    waiting(router.arrive("y", 0.0, LIVE))
    assert granted(router, 0.0) == []
    router.finish(running, 1.0)
    assert granted(router, 1.0) == ["b"]
    assert not router.counts.spills, "home has nobody for it"


def test_with_both_pools_full_the_shorter_time_decides_where_a_wait_is_the_same_for_both() -> None:
    router = router_of(1, 1)
    served(router, f=10.0, b=1.0)
    groups = router.fleet.groups("", (FAST, BIG))
    on(router.arrive("", 0.0, LIVE))
    on(router.arrive("", 0.0, LIVE))
    ticket = waiting(router.arrive("", 0.0, LIVE))
    assert router.slots.order.first(ticket.line, groups, ticket.tag, True, 0.0) == 1


def test_who_is_too_slow_for_its_deadline_as_a_guest_may_still_be_in_time_at_home() -> None:
    router = router_of(1, 1)
    served(router, f=1.0, b=100.0)
    at_home, guest = on(router.arrive("", 0.0, LIVE)), on(router.arrive("", 0.0, BULK))
    waiting(router.arrive("", 0.0, LIVE._replace(target_seconds=10.0)))
    router.finish(guest, 1.0)
    assert granted(router, 1.0) == []
    router.finish(at_home, 2.0)
    assert granted(router, 2.0) == ["f"]


def test_who_is_too_late_at_home_is_told_so() -> None:
    router = router_of(1, 1)
    served(router, f=5.0)
    on(router.arrive("", 0.0, BULK))
    at_home = on(router.arrive("", 0.0, LIVE))
    waiting(router.arrive("", 0.0, LIVE._replace(target_seconds=10.0)))
    router.finish(at_home, 9.0)
    assert granted(router, 9.0) == ["deadline"]


def test_what_only_emergencies_may_have_goes_to_one_that_waits_and_to_nobody_else() -> None:
    router = router_of(None, 2, reserve=1)
    running = on(router.arrive("", 0.0))
    urgent = on(router.arrive("", 0.0, Intent(lane=Lane.EMERGENCY)))
    for lane in (Lane.STANDARD, Lane.STANDARD, Lane.EMERGENCY):
        waiting(router.arrive("", 0.0, Intent(lane=lane)))
    router.finish(urgent, 1.0)
    [(ticket, _)] = router.pump(1.0)
    assert ticket.tag.lane is Lane.EMERGENCY
    router.finish(running, 2.0)
    [(ticket, _)] = router.pump(2.0)
    assert ticket.tag.lane is Lane.STANDARD


GATHERS = GatheringRules(min_requests=4, gather_seconds=0.5, dynamic_scaling=False)


def test_a_request_that_is_held_back_waits_no_longer_than_the_gathering() -> None:
    router = router_of(None, 8, gathering=GATHERS)
    waiting(router.arrive("", 0.0, BULK))
    assert granted(router, 0.0) == []
    assert router.look_at == 0.5
    assert granted(router, 0.5) == ["b"]
    assert dict(router.counts.holds) == {BIG: 1}


def test_a_live_request_passes_those_that_are_held_back() -> None:
    router = router_of(None, 1, gathering=GATHERS)
    running = on(router.arrive("", 0.0, LIVE))
    waiting(router.arrive("", 0.0, BULK))
    waiting(router.arrive("", 0.0, LIVE))
    router.configure([BackendPlan(BackendId("b"), BIG, 8)], router.rules, [PoolPlan(PoolFacts(BIG), GATHERS)])
    assert granted(router, 0.0) == ["b"]
    assert router.counts.holds[BIG] == 1
    router.finish(running, 0.0)
    assert granted(router, 0.0) == []
    assert router.counts.holds[BIG] == 1, "it is the same one"


def test_hot_and_cold_that_compete_keep_to_their_shares() -> None:
    router = router_of(None, 4, cold_share=0.5)
    for _ in range(2):
        on(router.arrive("", 0.0, Intent(path=CachePath.COLD)))
    running = [on(router.arrive("", 0.0, Intent(path=CachePath.HOT))) for _ in range(2)]
    waiting(router.arrive("", 0.0, Intent(path=CachePath.COLD)))
    waiting(router.arrive("", 0.0, Intent(path=CachePath.HOT)))
    router.finish(running[0], 1.0)
    [(ticket, _)] = router.pump(1.0)
    assert ticket.tag.path is CachePath.HOT


def test_in_a_pool_without_a_window_no_path_gives_way() -> None:
    router = router_of(None, 1)
    pool = router.fleet.pools[FAST]
    assert pool.capacity == 0
    assert not router.placement.paths.gives_way(pool, CachePath.HOT)


def test_without_a_target_and_without_any_rate_nobody_is_too_late() -> None:
    router = router_of(None, 1)
    assert on(router.arrive("", 0.0, Intent(target_seconds=inf))).tag.deadline == inf


def test_a_slot_that_comes_too_late_for_the_first_of_a_line_is_free_for_who_comes_next() -> None:
    router = router_of(None, 1)
    served(router, b=5.0)
    running = on(router.arrive("", 0.0, LIVE))
    waiting(router.arrive("", 0.0, LIVE._replace(target_seconds=10.0)))
    router.finish(running, 1.0)
    late = router.arrive("", 1.0, LIVE._replace(target_seconds=60.0))
    assert isinstance(late, Ticket), "the first can still be in time"
    assert router.cancel(late)
    assert on(router.arrive("", 9.0, LIVE._replace(target_seconds=60.0))).backend.id == "b"


def test_no_slot_is_too_late_for_a_request_that_waits_for_its_next_attempt() -> None:
    router = router_of(None, 1)
    router.configure([BackendPlan(BackendId(id), BIG, 1) for id in "bc"], router.rules)
    served(router, b=5.0, c=5.0)
    failed = on(router.arrive("", 0.0, LIVE._replace(target_seconds=10.0)))
    other = on(router.arrive("", 0.0, LIVE))
    assert router.move(failed, Verdict.FAULT, False, True, 0.0)
    assert failed.ticket is not None
    router.finish(other, 9.0)
    assert isinstance(router.arrive("", 9.0, LIVE._replace(target_seconds=60.0)), Ticket)


def test_who_waits_for_a_model_that_is_served_no_more_is_told_so_all_of_them() -> None:
    router = router_of(None, 1)
    router.engines.learn_models(BackendId("b"), frozenset({"x"}))
    on(router.arrive("x", 0.0))
    for _ in range(3):
        waiting(router.arrive("x", 0.0))
    router.engines.learn_models(BackendId("b"), frozenset({"y"}))
    assert granted(router, 0.0) == ["unknown_model"] * 3


def test_an_emergency_for_a_full_backend_keeps_the_reserve_closed_for_the_others() -> None:
    router = router_of(None, 1, reserve=1)
    rules = router.rules
    router.configure([BackendPlan(BackendId(id), BIG, 1) for id in "bc"], rules)
    router.engines.learn_models(BackendId("b"), frozenset({"x"}))
    router.engines.learn_models(BackendId("c"), frozenset({"y"}))
    on(router.arrive("y", 0.0))
    waiting(router.arrive("y", 0.0, Intent(lane=Lane.EMERGENCY)))
    waiting(router.arrive("x", 0.0))
    assert granted(router, 0.0) == []


@pytest.mark.parametrize(("seconds", "is_lent"), [(None, False), (60.0, False), (0.5, True)])
def test_what_is_lent_to_short_requests_is_not_for_long_ones_nor_for_those_of_unknown_length(
    seconds: float | None, is_lent: bool
) -> None:
    router = router_of(None, 2)
    router.configure(
        [BackendPlan(BackendId("b"), BIG, 2)],
        replace(router.rules, reserve=ReserveRules(reserved_per_pool=1, lending_share=1.0)),
        [PoolPlan(PoolFacts(BIG))],
    )
    if seconds is not None:
        served(router, b=seconds)
    running = [on(router.arrive("", 0.0)), router.arrive("", 0.0), router.arrive("", 0.0)]
    assert isinstance(running[1], Lease) is is_lent
    assert isinstance(running[2], Ticket)
    assert granted(router, 0.0) == []


def test_requests_that_are_gathered_as_guests_are_counted_as_such() -> None:
    router = router_of(8, 1, gathering=replace(GATHERS, min_requests=2))
    on(router.arrive("", 0.0, Intent(lane=Lane.INTERACTIVE, pools=(BIG,))))
    for _ in range(3):
        waiting(router.arrive("", 0.0, BULK))
    assert granted(router, 0.0) == ["f", "f", "f"]
    assert dict(router.counts.spills) == {(BIG, FAST): 3}
    assert router.counts.batches[FAST].sum == 3


def test_a_batch_ends_where_a_request_comes_that_is_not_for_throughput_or_has_been_moved() -> None:
    router = router_of(None, 8, gathering=replace(GATHERS, min_requests=2))
    first = [waiting(router.arrive("", 0.0, BULK)) for _ in range(2)]
    assert [ticket for ticket, _ in router.pump(0.0)] == first
    held = waiting(router.arrive("", 0.0, BULK))
    assert granted(router, 1.0) == ["b"]
    assert not router.cancel(held)


def test_a_batch_ends_where_the_pool_has_no_slot_for_the_next_or_its_tokens_are_all_held() -> None:
    gathering = replace(GATHERS, min_requests=2, gather_seconds=0.0)
    router = router_of(None, 4, gathering=gathering, reserve=2)
    for _ in range(4):
        waiting(router.arrive("", 0.0, BULK))
    assert granted(router, 0.0) == ["b", "b"]
    router = router_of(None, 8, gathering=gathering, tokens=100)
    for _ in range(4):
        waiting(router.arrive("", 0.0, BULK._replace(size=TextSize(token_ids=40), max_tokens=0)))
    assert granted(router, 0.0) == ["b", "b"]


def test_a_path_gives_way_to_no_request_that_has_no_time_to_lose() -> None:
    def first_of(now: float, target_seconds: float, lane: Lane = Lane.INTERACTIVE) -> CachePath:
        router = router_of(None, 2, cold_share=0.5)
        running = [on(router.arrive("", 0.0, Intent(path=CachePath.HOT, lane=lane))) for _ in range(2)]
        waiting(router.arrive("", 0.0, Intent(path=CachePath.HOT, lane=lane, target_seconds=target_seconds)))
        waiting(router.arrive("", 0.1, Intent(path=CachePath.COLD, lane=lane)))
        router.finish(running[0], now)
        [(ticket, _)] = router.pump(now)
        return ticket.tag.path

    assert first_of(3.0, inf) is CachePath.COLD
    assert first_of(1.0, 4.0) is CachePath.COLD
    assert first_of(3.0, 4.0) is CachePath.HOT
    assert first_of(3.0, inf, Lane.EMERGENCY) is CachePath.HOT


def test_lines_that_do_not_lead_to_a_pool_are_none_of_its() -> None:
    router = router_of(1, 1)
    running = [on(router.arrive("", 0.0, LIVE._replace(pools=(pool,)))) for pool in (FAST, BIG)]
    waiting(router.arrive("", 0.0, LIVE._replace(pools=(FAST,))))
    router.finish(running[1], 1.0)
    assert granted(router, 1.0) == []
    router.finish(running[0], 1.0)
    assert granted(router, 1.0) == ["f"]


def test_spills_of_many_lines_are_remembered_within_a_bound() -> None:
    order = router_of().slots.order
    for number in range(MAX_SPILLS + 10):
        order.note_spill(Line(f"m{number}", (FAST, BIG)), 1, 0.0)
    assert len(order._spills) == MAX_SPILLS


def test_a_request_that_would_spill_stays_there_for_a_while() -> None:
    router = router_of(4, 4, choice=PoolChoiceRules(max_return_saturation=0.0))
    busy = [on(router.arrive("", 0.0, LIVE)) for _ in range(4)]
    assert on(router.arrive("", 0.0, LIVE)).backend.id == "b"
    router.finish(busy[0], 1.0)
    assert on(router.arrive("", 1.0, LIVE)).backend.id == "b"
    assert on(router.arrive("", 12.0, LIVE)).backend.id == "f"
