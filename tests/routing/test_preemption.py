"""Running requests that give way to emergencies: which, when, and what becomes of them and of what they were charged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import pytest

from policies.capacity_tokens import TokenRules
from policies.fairness import FairnessRules
from policies.lengths import TextSize
from policies.pool_choice import PoolChoiceRules, PoolFacts, PoolRole
from policies.preemption import PreemptionRules
from policies.terms import BackendId, Lane, PoolName, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease, Ticket
from routing.fleet import PoolPlan
from routing.preemption import Running
from routing.router import Router
from routing.rules import Rules
from routing.tagger import TaggerRules
from tests.routing.test_router import leased, plans, router_of, waiting

BATCH = Intent(lane=Lane.BATCH, tenant="nightly")
INTERACTIVE = Intent(lane=Lane.INTERACTIVE)
EMERGENCY = Intent(lane=Lane.EMERGENCY)
AT_ONCE = PreemptionRules(wait_seconds=0.0)


def full(*intents: Intent, rules: PreemptionRules = AT_ONCE) -> tuple[Router, list[Lease]]:
    """A backend whose slots these hold."""
    router = router_of(len(intents), rules=Rules(preemption=rules))
    return router, [leased(router.arrive("", 0.0, intent)) for intent in intents]


def victims(router: Router, running: Iterable[Lease], now: float = 0.0) -> list[Lease]:
    """What has to give way, the last of `running` having been dispatched last."""
    return router.preemption.choose(
        lambda: [Running(lease, float(place)) for place, lease in enumerate(running)], now
    )


def granted(router: Router, now: float = 0.0) -> list[Ticket]:
    grants = router.pump(now)
    assert all(isinstance(grant, Lease) for _, grant in grants)
    return [ticket for ticket, _ in grants]


def test_nobody_is_looked_at_while_no_emergency_waits() -> None:
    router, leases = full(BATCH)
    waiting(router.arrive("", 0.0, INTERACTIVE))
    assert victims(router, leases) == []
    assert router.preemption.look_at == inf


def test_the_emergency_gets_the_slot_and_the_victim_waits_before_all_others() -> None:
    router, [lease] = full(BATCH)
    other = waiting(router.arrive("", 0.0, INTERACTIVE))
    emergency = waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, [lease]) == [lease]
    router.put_back(lease, 1.0)
    assert (router.preempted, lease.ticket is not None, lease.backend.in_flight) == (1, True, 0)
    [(ticket, grant)] = router.pump(1.0)
    assert ticket is emergency and isinstance(grant, Lease)
    assert granted(router, 1.0) == []
    router.finish(grant, 3.0)
    victims_ticket = lease.ticket
    assert granted(router, 3.0) == [victims_ticket]
    assert (lease.attempts, lease.queue_seconds, lease.backend.in_flight) == (2, 2.0, 1)
    router.finish(lease, 4.0)
    assert granted(router, 4.0) == [other]


def test_the_lowest_lane_gives_way_and_in_it_who_was_dispatched_last() -> None:
    router, leases = full(BATCH, BATCH, INTERACTIVE)
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, leases) == [leases[1]]


def test_an_emergency_never_gives_way() -> None:
    router, leases = full(EMERGENCY)
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, leases) == []


def test_who_gave_way_twice_is_immune() -> None:
    router, [lease] = full(BATCH)
    now = 0.0
    for _ in range(2):
        emergency = waiting(router.arrive("", now, EMERGENCY))
        assert victims(router, [lease], now) == [lease]
        router.put_back(lease, now)
        [(ticket, grant)] = router.pump(now)
        assert ticket is emergency and isinstance(grant, Lease)
        router.finish(grant, now)
        assert len(granted(router, now)) == 1 and lease.ticket is None
        now += 10.0
    waiting(router.arrive("", now, EMERGENCY))
    assert victims(router, [lease], now) == []
    assert lease.preemptions == 2


def test_it_is_switched_off_by_no_preemptions_at_most() -> None:
    router, leases = full(BATCH, rules=PreemptionRules(wait_seconds=0.0, max_preemptions=0))
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, leases) == []
    assert router.preemption.look_at == inf


# --- when -----------------------------------------------------------------------------------------------------------------------


def test_while_nothing_is_known_of_its_wait_an_emergency_waits_first() -> None:
    router, leases = full(BATCH, rules=PreemptionRules())
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, leases, 0.0) == []
    assert router.preemption.look_at == pytest.approx(0.25)
    assert victims(router, leases, 0.25) == leases


@pytest.mark.parametrize(("seconds_per_end", "gives_way"), [(0.1, False), (1.0, True)])
def test_a_wait_that_is_predicted_to_be_long_needs_none(seconds_per_end: float, gives_way: bool) -> None:
    router, [running] = full(BATCH, rules=PreemptionRules())
    for _ in range(30):
        waiting(router.arrive("", 0.0, INTERACTIVE))
    now = 0.0
    for _ in range(25):
        now += seconds_per_end
        router.finish(running, now)
        [(_, grant)] = router.pump(now)
        assert isinstance(grant, Lease)
        running = grant
    waiting(router.arrive("", now, EMERGENCY))
    assert victims(router, [running], now) == [running] * gives_way


def test_two_at_most_give_way_at_once_and_the_next_after_a_pause_since_both_slots_came_back() -> None:
    router, leases = full(BATCH, BATCH, BATCH, BATCH)
    for _ in range(3):
        waiting(router.arrive("", 0.0, EMERGENCY))
    first = victims(router, leases)
    assert first == [leases[2], leases[3]]
    router.put_back(first[0], 1.0)
    assert len(granted(router, 1.0)) == 1
    assert victims(router, leases[:2], 9.0) == [], "one slot is still on its way back"
    router.put_back(first[1], 9.0)
    assert len(granted(router, 9.0)) == 1
    assert victims(router, leases[:2], 9.4) == []
    assert router.preemption.look_at == pytest.approx(9.5)
    assert victims(router, leases[:2], 9.5) == [leases[1]]


@pytest.mark.parametrize("ends_by", ["finish", "move"])
def test_a_slot_that_comes_back_in_another_way_counts_as_back_too(ends_by: str) -> None:
    router = router_of(1, 1, rules=Rules(preemption=AT_ONCE))
    leases = [leased(router.arrive("", 0.0, BATCH)) for _ in range(2)]
    for _ in range(2):
        waiting(router.arrive("", 0.0, EMERGENCY))
    other, lease = victims(router, leases)
    router.put_back(other, 0.0)
    assert len(granted(router)) == 1
    if ends_by == "finish":
        router.finish(lease, 0.0)
    else:
        assert router.move(lease, Verdict.FAULT, False, True, 0.0)
    assert not lease.gives_way and router.preempted == 1
    assert len(granted(router)) == 1
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, [], 0.4) == []
    assert router.preemption.look_at == pytest.approx(0.5)


# --- whose ----------------------------------------------------------------------------------------------------------------------


def test_a_slot_of_an_engine_that_cannot_serve_the_emergency_is_of_no_use() -> None:
    router = router_of(1, 1, rules=Rules(preemption=AT_ONCE))
    router.engines.learn_models(BackendId("b0"), frozenset({"x"}))
    router.engines.learn_models(BackendId("b1"), frozenset({"y"}))
    on_x, on_y = (leased(router.arrive(model, 0.0, BATCH)) for model in "xy")
    waiting(router.arrive("x", 0.0, EMERGENCY))
    assert victims(router, [on_y]) == []
    assert victims(router, [on_x, on_y]) == [on_x]


def test_emergencies_that_nobody_can_help_do_not_keep_others_from_it() -> None:
    router = router_of(1, 1, rules=Rules(preemption=AT_ONCE))
    router.engines.learn_models(BackendId("b0"), frozenset({"x"}))
    router.engines.learn_models(BackendId("b1"), frozenset({"y"}))
    on_y = [leased(router.arrive(model, 0.0, BATCH)) for model in "xy"][1]
    for model in "xxy":
        waiting(router.arrive(model, 0.0, EMERGENCY))
    assert victims(router, [on_y]) == [on_y]


def test_a_slot_above_a_window_that_shrank_is_of_no_use() -> None:
    router, leases = full(BATCH, BATCH)
    router.configure(plans(1), router.rules)
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, leases) == []
    router.finish(leases.pop(), 0.0)
    assert victims(router, leases, 1.0) == leases


def test_a_backend_that_an_emergency_has_tried_or_that_is_absent_is_of_no_use() -> None:
    router = router_of(1, 1, rules=Rules(preemption=AT_ONCE))
    emergency = leased(router.arrive("", 0.0, EMERGENCY))
    batch = leased(router.arrive("", 0.0, BATCH))
    assert router.move(emergency, Verdict.FAULT, False, True, 0.0)
    on_tried = leased(router.arrive("another", 0.0, BATCH))
    assert on_tried.backend in emergency.tried
    assert victims(router, [on_tried]) == []
    router.unreachable(batch.backend, 0.0)
    assert victims(router, [batch, on_tried], 1.0) == []


@pytest.mark.parametrize(("pinned", "helps"), [("b0", True), ("b1", False)])
def test_an_emergency_that_names_its_backend_needs_a_slot_of_that_one(pinned: str, helps: bool) -> None:
    router = router_of(1, 1, rules=Rules(preemption=AT_ONCE))
    leases = [leased(router.arrive("", 0.0, BATCH)) for _ in range(2)]
    on_b0 = [lease for lease in leases if lease.backend.id == "b0"]
    waiting(router.arrive("", 0.0, EMERGENCY._replace(backend=BackendId(pinned))))
    assert victims(router, on_b0) == on_b0 * helps


@pytest.mark.parametrize("spill", [True, False])
def test_a_slot_of_a_pool_that_the_emergency_may_not_enter_is_of_no_use(spill: bool) -> None:
    rules = Rules(preemption=AT_ONCE, tagger=TaggerRules(pool_choice=PoolChoiceRules(spill=spill)))
    fast, large = PoolName("fast"), PoolName("large")
    router = Router(rules)
    router.configure(
        [BackendPlan(BackendId("f"), fast, 1), BackendPlan(BackendId("l"), large, 1)],
        rules,
        [PoolPlan(PoolFacts(fast, PoolRole.LOW_LATENCY)), PoolPlan(PoolFacts(large))],
    )
    batch = leased(router.arrive("", 0.0, BATCH))
    assert batch.backend.id == "l"
    leased(router.arrive("", 0.0, EMERGENCY))
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, [batch]) == [batch] * spill


def test_a_victim_whose_tokens_are_too_few_for_the_emergency_is_of_no_use() -> None:
    rules = Rules(preemption=AT_ONCE)
    plan = BackendPlan(BackendId("b"), PoolName("p"), 2, tokens=TokenRules(max_tokens=1000))
    router = Router(rules)
    router.configure([plan], rules)
    sizes = [TextSize(token_ids=tokens) for tokens in (100, 600)]
    small, large = (leased(router.arrive("", 0.0, BATCH._replace(size=size, max_tokens=1))) for size in sizes)
    waiting(router.arrive("", 0.0, EMERGENCY._replace(size=TextSize(token_ids=800), max_tokens=1)))
    assert victims(router, [small]) == []
    assert victims(router, [large, small], 1.0) == [large]


# --- what it costs the victim ---------------------------------------------------------------------------------------------------


def test_no_retry_is_spent_and_the_victim_may_go_back_to_its_backend() -> None:
    rules = Rules(preemption=AT_ONCE)
    router = router_of(1, 1, rules=replace(rules, retries=replace(rules.retries, max_retries=1)))
    lease, other = (leased(router.arrive("", 0.0, BATCH)) for _ in range(2))
    before = lease.backend
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, [lease]) == [lease]
    lease.verdict = Verdict.FAULT
    router.put_back(lease, 0.0)
    assert lease.verdict is Verdict.IGNORED and not lease.tried and before.is_present()
    [(_, grant)] = router.pump(0.0)
    assert isinstance(grant, Lease)
    router.finish(grant, 0.0)
    assert len(granted(router)) == 1 and lease.backend is before
    router.finish(other, 0.0)
    assert router.move(lease, Verdict.FAULT, False, True, 0.0), "its one second try is still its own"
    assert lease.backend is not before and lease.attempts == 3


def test_a_victim_is_charged_once_and_nothing_if_it_ends_while_it_waits() -> None:
    router, [lease] = full(BATCH)
    assert lease.charged == lease.tag.cost > 0
    waiting(router.arrive("", 0.0, EMERGENCY))
    router.put_back(victims(router, [lease])[0], 0.0)
    assert lease.charged == lease.tag.cost
    router.finish(lease, 0.0)
    assert lease.charged == 0


def test_victims_are_never_put_out_of_a_full_queue() -> None:
    rules = Rules(preemption=AT_ONCE, fairness=FairnessRules(max_waiting=2))
    router = router_of(1, rules=rules)
    lease = leased(router.arrive("", 0.0, BATCH))
    waiting(router.arrive("", 0.0, EMERGENCY))
    router.put_back(victims(router, [lease])[0], 0.0)
    assert len(granted(router)) == 1
    batch = waiting(router.arrive("", 0.0, BATCH))
    waiting(router.arrive("", 0.0, INTERACTIVE))
    assert [ticket for ticket, _ in router.pump(0.0)] == [batch]
    assert lease.ticket is not None and router.waiting == 2


def test_victims_of_one_decision_keep_their_order() -> None:
    router, leases = full(BATCH, BATCH)
    for _ in range(2):
        waiting(router.arrive("", 0.0, EMERGENCY))
    for lease in victims(router, leases):
        router.put_back(lease, 0.0)
    for lease, (_, grant) in zip(leases, router.pump(0.0), strict=True):
        assert isinstance(grant, Lease)
        router.finish(grant, 0.0)
        expected = lease.ticket
        assert granted(router) == [expected]


def test_a_victim_waits_for_the_pools_of_now() -> None:
    router, [lease] = full(BATCH)
    waiting(router.arrive("", 0.0, EMERGENCY))
    assert victims(router, [lease]) == [lease]
    new = BackendPlan(BackendId("new"), PoolName("another"), 1)
    router.configure([new], router.rules)
    router.put_back(lease, 1.0)
    [(_, grant)] = router.pump(1.0)
    assert isinstance(grant, Lease) and grant.backend.id == "new"
    router.finish(grant, 2.0)
    assert len(granted(router, 2.0)) == 1 and lease.backend.id == "new"
