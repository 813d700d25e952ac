"""Several pools in one order: where a request is tried first, who is a guest where, and what of it is counted."""

from __future__ import annotations

from math import inf

import pytest

from policies.capacity_tokens import TokenRules
from policies.emergency import ReserveRules
from policies.gathering import GatheringRules
from policies.path_split import PathRules
from policies.pool_choice import PoolChoiceRules, PoolFacts, PoolRole
from policies.shedding import SheddingRules
from policies.terms import BackendId, CachePath, Lane, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import Decision, Intent, Lease, Ticket
from routing.fleet import PoolPlan
from routing.placement import AffinityRules
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
    return [
        grant.backend.id if isinstance(grant, Lease) else grant.value for _, grant in router.pump(now)
    ]


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
    router.configure(
        [BackendPlan(BackendId("b"), BIG, 8)], router.rules, [PoolPlan(PoolFacts(BIG), GATHERS)]
    )
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
