"""Each number of a decision counts that decision and no other, over a real router in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Refused
from gateway.turnstile import Turnstile
from policies.cost import weighted_tokens
from policies.emergency import ReserveRules
from policies.emergency_budget import EmergencyBudgetRules
from policies.fairness import FairnessRules
from policies.gathering import GatheringRules
from policies.lengths import TextSize
from policies.pool_choice import PoolFacts, PoolRole
from policies.retry_budget import RetryBudgetRules
from policies.terms import BackendId, Lane, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease
from routing.fleet import PoolPlan
from routing.rules import Rules
from routing.tagger import TaggerRules
from tests.gateway.metrics_stage import Stage

P, Q = PoolName("p"), PoolName("q")
BATCH = Intent(lane=Lane.BATCH)
INTERACTIVE = Intent(lane=Lane.INTERACTIVE)
EMERGENCY = Intent(lane=Lane.EMERGENCY, tenant="bank")
SIZE = TextSize(letters=1000.0, spaces=200.0, messages=1)


def one_backend(slots: int, rules: Rules | None = None, gathering: GatheringRules | None = None) -> Stage:
    pools = [PoolPlan(PoolFacts(P), gathering)]
    return Stage([BackendPlan(BackendId("a"), P, slots)], rules, pools)


def two_pools(home_slots: int, slots: int) -> Stage:
    """Batch requests are at home in p."""
    plans = [BackendPlan(BackendId("a"), P, home_slots), BackendPlan(BackendId("b"), Q, slots)]
    pools = [PoolPlan(PoolFacts(P, PoolRole.HIGH_BATCH)), PoolPlan(PoolFacts(Q, PoolRole.LOW_LATENCY))]
    return Stage(plans, None, pools)


def ends(stage: Stage, lease: Lease, verdict: Verdict = Verdict.GOOD) -> None:
    lease.verdict = verdict
    stage.router.finish(lease, stage.now)


def one_after_another(stage: Stage, running: Lease, count: int, seconds: float = 0.1) -> Lease:
    """So many ends, each of which lets the next in."""
    for _ in range(count):
        stage.now += seconds
        ends(stage, running)
        [running] = stage.granted()
    return running


# --- the queue ----------------------------------------------------------------------------------------------------------------


async def test_the_queue_is_shown_by_lane_with_its_cost_and_its_oldest_wait() -> None:
    stage = one_backend(1)
    stage.runs()
    tickets = []
    for at, intent in (
        (1.0, BATCH._replace(size=SIZE)),
        (4.0, BATCH._replace(tenant="other", size=SIZE)),
        (6.0, INTERACTIVE),
    ):
        stage.now = at
        tickets.append(stage.waits(intent))
    stage.now = 7.5
    nobody = {"emergency": 0.0, "standard": 0.0}
    assert stage.series("requests_waiting", "lane") == {"batch": 2, "interactive": 1, **nobody}
    assert stage.series("oldest_wait_seconds", "lane") == {"batch": 6.5, "interactive": 1.5, **nobody}
    costs = {"batch": tickets[0].tag.cost + tickets[1].tag.cost, "interactive": 1.0, **nobody}
    assert stage.series("waiting_weighted_tokens", "lane") == pytest.approx(costs)
    assert stage.value("flows_waiting") == 3
    for ticket in tickets:
        stage.router.cancel(ticket)
    assert set(stage.series("requests_waiting", "lane").values()) == {0.0}
    assert set(stage.series("oldest_wait_seconds", "lane").values()) == {0.0}
    assert stage.value("flows_waiting") == 0


async def test_the_share_that_is_refused_of_a_standing_queue_is_shown_by_lane() -> None:
    stage = one_backend(1)
    stage.runs()
    assert set(stage.series("shed_share", "lane").values()) == {0.0}
    hurried = INTERACTIVE._replace(target_seconds=2.0)
    while stage.router.arrive("", stage.now, hurried) is not Refusal.STANDING_QUEUE:
        stage.now += 0.1
    shares = stage.series("shed_share", "lane")
    assert 0.0 < shares.pop("interactive") < 1.0 and set(shares.values()) == {0.0}


async def test_a_start_is_counted_once_by_its_lane_and_whether_it_waited() -> None:
    stage = one_backend(1)
    lease = stage.runs(BATCH)
    stage.waits(INTERACTIVE)
    left = stage.waits(INTERACTIVE)
    assert stage.value("starts_total", lane="batch", waited="no") == 1
    assert stage.value("starts_total", lane="interactive", waited="yes") == 0
    ends(stage, lease)
    [lease] = stage.granted()
    stage.router.cancel(left)
    ends(stage, lease)
    assert stage.granted() == []
    assert stage.value("starts_total", lane="interactive", waited="yes") == 1
    assert stage.value("starts_total", lane="interactive", waited="no") == 0
    assert sum(value for (name, _), value in stage.samples().items() if name == "headrace_starts_total") == 2


async def test_a_second_try_is_no_start() -> None:
    plans = [BackendPlan(BackendId(id), P, 1) for id in "ab"]
    stage = Stage(plans)
    lease, other = stage.runs(), stage.runs()
    assert stage.router.move(lease, Verdict.FAULT, False, True, stage.now)
    ends(stage, other)
    assert stage.granted() == [lease]
    assert stage.value("starts_total", lane="standard", waited="no") == 2
    assert stage.value("starts_total", lane="standard", waited="yes") == 0


async def test_an_eviction_is_counted_by_the_lane_of_who_had_to_leave() -> None:
    stage = one_backend(1, Rules(fairness=FairnessRules(max_waiting=1)))
    stage.runs()
    stage.waits(BATCH)
    assert stage.router.arrive("", 0.0, BATCH) is Refusal.QUEUE_FULL
    assert stage.series("evictions_total", "lane")["batch"] == 0
    stage.waits(INTERACTIVE)
    assert stage.series("evictions_total", "lane") == {
        "emergency": 0,
        "interactive": 0,
        "standard": 0,
        "batch": 1,
    }


async def test_a_dispatch_for_a_starving_flow_is_counted() -> None:
    rules = FairnessRules(fairness_weight=0.95, starving_every=2, batch_starving_seconds=10)
    stage = one_backend(1, Rules(fairness=rules))
    running = stage.runs()
    for intent in (INTERACTIVE, BATCH):
        for _ in range(10):
            stage.waits(intent)
    running = one_after_another(stage, running, 4, 1.0)
    assert stage.value("starving_dispatches_total") == 0
    stage.now = 10.0
    one_after_another(stage, running, 4, 1.0)
    assert stage.value("starving_dispatches_total") == stage.router.queue.snapshot(stage.now).for_starving > 0


# --- predictions --------------------------------------------------------------------------------------------------------------


def learned_rate() -> tuple[Stage, Lease]:
    """One backend that serves ten requests per second; four more wait, so a newcomer is predicted to wait half a second."""
    stage = one_backend(1)
    running = stage.runs(INTERACTIVE)
    for _ in range(34):
        stage.waits(INTERACTIVE)
    return stage, one_after_another(stage, running, 30)


async def test_the_drain_rate_is_absent_until_it_is_known() -> None:
    stage = one_backend(1)
    assert ("headrace_drain_weighted_tokens_per_second", frozenset()) not in stage.samples()
    stage, _ = learned_rate()
    assert stage.value("drain_weighted_tokens_per_second") == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize(
    ("seconds", "above", "upto"), [(0.1, "-0.05", "0.05"), (0.2, "0.2", "1.0"), (0.02, "-0.5", "-0.2")]
)
async def test_how_long_a_request_waited_is_held_against_what_was_predicted(
    seconds: float, above: str, upto: str
) -> None:
    stage, running = learned_rate()
    ticket = stage.waits(INTERACTIVE._replace(target_seconds=1000.0))
    assert ticket.predicted_seconds == pytest.approx(0.5, rel=0.1)
    one_after_another(stage, running, 5, seconds)
    buckets = stage.series("wait_error_seconds_bucket", "le")
    assert (buckets[above], buckets[upto], buckets["+Inf"]) == (0, 1, 1)


async def test_a_request_without_a_deadline_or_a_prediction_has_no_error() -> None:
    stage, running = learned_rate()
    one_after_another(stage, running, 3)
    fresh = one_backend(1)
    lease = fresh.runs()
    fresh.waits(INTERACTIVE._replace(target_seconds=9.0))
    one_after_another(fresh, lease, 1)
    for each in (stage, fresh):
        assert each.series("wait_error_seconds_bucket", "le")["+Inf"] == 0


@pytest.mark.parametrize("by_pump", [True, False])
async def test_who_is_given_up_waited_longer_than_was_promised(by_pump: bool) -> None:
    stage, running = learned_rate()
    ticket = stage.waits(INTERACTIVE._replace(target_seconds=0.8))
    stage.now += 0.9
    if by_pump:
        ends(stage, running)
        given_up = [grant for _, grant in stage.router.pump(stage.now) if grant is Refusal.DEADLINE]
        assert len(given_up) == 1
    else:
        stage.router.cancel(ticket)
        stage.router.admission.waited(ticket, False, stage.now)
    buckets = stage.series("wait_error_seconds_bucket", "le")
    assert (buckets["0.2"], buckets["0.5"], buckets["+Inf"]) == (0, 1, 1)


@pytest.mark.parametrize(
    ("target", "max_wait", "reason", "counted"),
    [(0.3, 600.0, Refusal.DEADLINE, 1), (0.3, 0.0, Refusal.QUEUE_TIMEOUT, 0)],
)
async def test_a_wait_that_its_deadline_ends_is_held_against_the_prediction_and_a_shorter_one_is_not(
    target: float, max_wait: float, reason: Refusal, counted: int
) -> None:
    stage = one_backend(1)
    stage.now = asyncio.get_running_loop().time() - 0.03
    running = stage.runs(INTERACTIVE)
    for _ in range(34):
        stage.waits(INTERACTIVE)
    one_after_another(stage, running, 30, 0.001)
    turnstile = Turnstile(stage.router, max_wait)
    with pytest.raises(Refused) as refused:
        async with turnstile.lease("", INTERACTIVE._replace(target_seconds=target)):
            raise AssertionError("nothing ended")
    assert refused.value.reason is reason
    buckets = stage.series("wait_error_seconds_bucket", "le")
    assert (buckets["0.0"], buckets["+Inf"]) == (0, counted)


async def test_who_is_served_late_rather_than_refused_is_counted() -> None:
    stage, _ = learned_rate()
    hurried = INTERACTIVE._replace(target_seconds=0.05)
    assert stage.router.arrive("", stage.now, hurried) is Refusal.OVERLOADED
    assert stage.value("relegations_total") == 0
    assert stage.waits(hurried._replace(relegate=True)).tag.lane is Lane.BATCH
    assert stage.value("relegations_total") == 1


async def test_a_prompt_estimate_is_held_against_what_the_engine_counted() -> None:
    stage = one_backend(1)
    for factor in (1.0, 2.0):
        lease = stage.runs(BATCH._replace(size=SIZE))
        lease.usage = round(lease.tag.prompt_tokens * factor), 10, 0
        ends(stage, lease)
    unknown = stage.runs(BATCH)
    unknown.usage = 5, 5, 0
    ends(stage, unknown)
    buckets = stage.series("prompt_estimate_error_ratio_bucket", "le")
    assert (buckets["0.01"], buckets["0.25"], buckets["0.5"], buckets["+Inf"]) == (1, 1, 2, 2)
    assert stage.value("prompt_estimate_error_ratio_sum") == pytest.approx(0.5, abs=0.02)


# --- placement ----------------------------------------------------------------------------------------------------------------


async def test_a_spill_is_counted_from_home_to_where_it_started_waiting_or_not() -> None:
    stage = two_pools(1, 3)
    assert stage.runs(BATCH).backend.id == "a"
    assert ("headrace_spills_total", frozenset({("home", "p"), ("pool", "q")})) not in stage.samples()
    spilled = [stage.runs(BATCH) for _ in range(2)]
    assert [lease.backend.id for lease in spilled] == ["b", "b"]
    assert stage.value("spills_total", home="p", pool="q") == 2
    # Half of the guest pool is in use: batch requests wait, until one ends.
    ticket = stage.waits(BATCH)
    for lease in spilled:
        ends(stage, lease)
    [lease] = stage.granted()
    assert lease.backend.id == "b" and lease.tag is ticket.tag
    assert stage.value("spills_total", home="p", pool="q") == 3


async def test_where_home_does_not_serve_the_model_nothing_is_spilled() -> None:
    stage = two_pools(1, 1)
    stage.router.engines.learn_models(BackendId("a"), frozenset({"small"}))
    stage.router.engines.learn_models(BackendId("b"), frozenset({"large"}))
    assert stage.runs(BATCH, "large").backend.id == "b"
    assert not stage.series("spills_total", "pool")


async def test_a_second_try_in_another_pool_is_no_spill() -> None:
    stage = two_pools(1, 1)
    assert stage.router.move(stage.runs(BATCH), Verdict.FAULT, False, True, 0.0)
    assert not stage.series("spills_total", "pool")


async def test_a_gathered_batch_is_counted_with_its_size_and_the_hold_before_it_once() -> None:
    stage = one_backend(16, gathering=GatheringRules(4, 24, 0.1, dynamic_scaling=False))
    for step in range(3):
        stage.now = step / 100
        stage.waits(BATCH)
        assert stage.granted() == []
    assert stage.series("gather_holds_total", "pool") == {"p": 1}
    assert not stage.series("gathered_requests_count", "pool")
    stage.waits(BATCH)
    assert len(stage.granted()) == 4
    stage.waits(BATCH)  # with four of them running the engine has its batch
    assert len(stage.granted()) == 1
    assert stage.series("gather_holds_total", "pool") == {"p": 1}
    assert stage.series("gathered_requests_count", "pool") == {"p": 2}
    assert stage.series("gathered_requests_sum", "pool") == {"p": 5}
    assert stage.value("gathered_requests_bucket", pool="p", le="1.0") == 1
    assert stage.value("gathered_requests_bucket", pool="p", le="4.0") == 2


async def test_emergencies_are_counted_by_tenant_and_whether_the_budget_granted_them() -> None:
    rules = Rules(tagger=TaggerRules(budget=EmergencyBudgetRules(burst=2)))
    stage = one_backend(8, rules)
    leases = [stage.runs(EMERGENCY) for _ in range(3)]
    assert [lease.tag.lane for lease in leases] == [Lane.EMERGENCY, Lane.EMERGENCY, Lane.INTERACTIVE]
    stage.runs(INTERACTIVE)
    stage.runs(EMERGENCY._replace(tenant="shop"))
    assert stage.value("emergencies_total", tenant="bank", result="granted") == 2
    assert stage.value("emergencies_total", tenant="bank", result="demoted") == 1
    assert stage.value("emergencies_total", tenant="shop", result="granted") == 1
    assert stage.series("emergencies_in_flight", "pool") == {"p": 3}


async def test_what_is_lent_of_the_reserve_is_shown_and_comes_back() -> None:
    rules = Rules(reserve=ReserveRules(reserved_per_pool=4, lending_share=0.5, lending_seconds=2.0))
    stage = one_backend(8, rules)
    for _ in range(10):  # so that they are known to be short
        lease = stage.runs(BATCH)
        lease.service_seconds = 1.0
        ends(stage, lease)
    leases = [stage.runs(BATCH) for _ in range(6)]
    stage.waits(BATCH)
    assert stage.series("reserve_slots_lent", "pool") == {"p": 2}
    ends(stage, leases[0])
    assert stage.series("reserve_slots_lent", "pool") == {"p": 1}
    assert Stage().series("reserve_slots_lent", "pool") == {"p": 0, "q": 0}, "a pool without bounds has none"


# --- the rest -----------------------------------------------------------------------------------------------------------------


async def test_a_request_that_gives_way_to_an_emergency_is_counted() -> None:
    stage = one_backend(1)
    lease = stage.runs(BATCH)
    stage.waits(EMERGENCY)
    assert stage.value("preemptions_total") == 0
    stage.router.put_back(lease, 0.0)
    assert stage.value("preemptions_total") == 1


@pytest.mark.parametrize(("floor", "refused"), [(0.0, 1), (3.0, 0)])
async def test_a_second_try_that_the_budget_forbids_is_counted(floor: float, refused: int) -> None:
    plans = [BackendPlan(BackendId(id), P, 2) for id in "ab"]
    stage = Stage(plans, Rules(retry_budget=RetryBudgetRules(share=0.0, floor=floor, emergency_floor=0.0)))
    lease = stage.runs()
    assert not stage.router.move(lease, Verdict.FAULT, True, True, 0.0)
    assert stage.value("retry_budget_refusals_total") == 0, (
        "the first byte was sent, so nobody asked the budget"
    )
    assert stage.router.move(lease, Verdict.FAULT, False, True, 0.0) is not bool(refused)
    assert stage.value("retry_budget_refusals_total") == refused


async def test_what_a_tenant_was_charged_is_what_its_requests_took() -> None:
    stage = one_backend(4)
    for tenant, usage in (("bank", (100, 50, 20)), ("bank", (10, 1, 0)), ("shop", None)):
        lease = stage.runs(Intent(tenant=tenant, size=SIZE))
        lease.usage = usage
        ends(stage, lease, Verdict.GOOD if usage else Verdict.FAULT)
    stage.router.finish(stage.runs(EMERGENCY), 0.0)
    assert stage.series("charged_weighted_tokens_total", "tenant") == {
        "bank": weighted_tokens(100, 20, 50) + weighted_tokens(10, 0, 1),
        "shop": 0.0,
    }


async def test_no_name_that_a_client_chooses_adds_a_series() -> None:
    stage = two_pools(2, 2)
    intent = Intent(tenant="bank", size=SIZE)
    for each in (intent, intent._replace(lane=Lane.EMERGENCY)):
        ends(stage, stage.runs(each))
    before = stage.samples().keys()
    for number in range(500):
        lease = stage.runs(intent, f"model-{number}")
        lease.usage = 100 + number, number, 0
        ends(stage, lease)
    assert stage.samples().keys() == before
