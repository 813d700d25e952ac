"""Who gets how much of the service: weights, guarantees, debts and starvation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.fairness import FairnessRules
from policies.terms import Lane
from routing.fair_queue import FairQueue
from tests.routing.reachable import entries
from tests.routing.waiting import Make, Waits, numbered

RULES = FairnessRules()
ALWAYS = replace(RULES, standard_starving_seconds=1e9)


def fill(queue: FairQueue[Waits], tickets: Sequence[Waits], now: float = 0.0) -> None:
    for ticket in tickets:
        queue.push(ticket, now)


def serve(
    queue: FairQueue[Waits], count: int, now: float = 0.0, lines: Sequence[str] = ("m",)
) -> list[Waits]:
    taken = []
    for _ in range(count):
        head = queue.head(lines, now)
        if head is None:
            break
        queue.take(head, now)
        taken.append(head)
    return taken


def shares(tickets: Sequence[Waits], by: str = "tenant") -> Counter[str]:
    served: Counter[str] = Counter()
    for ticket in tickets:
        served[getattr(ticket.tag, by)] += int(ticket.tag.cost)
    return served


COSTS = st.lists(st.sampled_from([1.0, 10.0, 200.0, 1000.0]), min_size=30, max_size=30)
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 5.0])


@settings(deadline=None)
@given(COSTS, COSTS, WEIGHTS, WEIGHTS, st.lists(st.integers(0, 3), max_size=40), st.booleans())
def test_two_backlogged_tenants_differ_by_no_more_than_their_largest_requests(
    f_costs: list[float], g_costs: list[float], f: float, g: float, others: list[int], by_business: bool
) -> None:
    queue, make = FairQueue[Waits](ALWAYS), numbered()
    if by_business:
        f = g = 1.0

    def one(name: str, cost: float, weight: float) -> Waits:
        return make("t", cost, business=name) if by_business else make(name, cost, weight=weight)

    fill(queue, [one("f", cost, f) for cost in f_costs] + [one("g", cost, g) for cost in g_costs])
    bound = max(f_costs) / f + max(g_costs) / g
    lead, leads, left = 0.0, [0.0], Counter(f=30, g=30)
    for comes in [*others, *[0] * 60]:
        # Others come and go in between; the guarantee is about those that stay.
        fill(queue, [one(f"other{comes}", 50.0 * comes, 1.0) for _ in range(comes)])
        (taken,) = serve(queue, 1)
        name = taken.tag.business if by_business else taken.tag.tenant
        if name in left:
            lead += taken.tag.cost / f if name == "f" else -taken.tag.cost / g
            leads.append(lead)
            left[name] -= 1
            if not left[name]:
                break
    assert max(leads) - min(leads) <= bound + 1e-6


def test_weights_of_two_to_one_give_shares_of_two_to_one() -> None:
    queue, make, draw = FairQueue[Waits](RULES), numbered(), Random(1)
    fill(queue, [make("two", draw.uniform(10, 2000), weight=2.0) for _ in range(2000)])
    fill(queue, [make("one", draw.uniform(10, 2000)) for _ in range(2000)])
    served = shares(serve(queue, 1500))
    assert served["two"] / served["one"] == pytest.approx(2.0, rel=0.05)


def test_a_weight_that_changes_counts_from_the_next_request_on() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make(tenant) for tenant in "ab" for _ in range(200)])
    assert shares(serve(queue, 100)) == {"a": 5000, "b": 5000}
    fill(queue, [make("a", weight=3.0)])
    assert queue.cost_ahead(make("b").tag) == pytest.approx(150 * 100 + 151 * 100)
    assert shares(serve(queue, 100))["a"] == pytest.approx(7500, abs=200)


def test_eight_equal_tenants_with_mixed_sizes_get_the_same() -> None:
    queue, make, draw = FairQueue[Waits](RULES), numbered(), Random(2)
    for tenant in range(8):
        size = 10.0 * 2**tenant
        fill(queue, [make(f"t{tenant}", draw.uniform(0.5, 1.5) * size) for _ in range(int(2e5 / size))])
    served = list(shares(serve(queue, 8000)).values())
    assert len(served) == 8
    assert sum(served) ** 2 / (8 * sum(one**2 for one in served)) >= 0.98


@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0])
def test_predictions_that_are_wrong_by_a_factor_do_not_change_the_shares(factor: float) -> None:
    queue, make, draw = FairQueue[Waits](RULES), numbered(), Random(3)
    running: list[Waits] = []
    served: Counter[str] = Counter()
    fill(queue, [make("wrong", 100.0 * factor, weight=2.0) for _ in range(3000)])
    fill(queue, [make("right", 100.0) for _ in range(3000)])
    for step in range(3000):
        (taken,) = serve(queue, 1, step / 100)
        running.append(taken)
        if step >= 1000:  # what runs has not been trued up yet, and at first that is most of all
            served[taken.tag.tenant] += 100
        if len(running) == 32:
            done = running.pop(draw.randrange(32))
            queue.settle(done.tag, 100.0 - done.tag.cost, step / 100)
    assert served["wrong"] / served["right"] == pytest.approx(2.0, rel=0.05)


def test_an_idle_tenant_saves_nothing_up() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make("idle"), *[make("busy") for _ in range(2000)]])
    serve(queue, 1000)
    fill(queue, [make("idle") for _ in range(1000)])
    assert shares(serve(queue, 200))["idle"] == pytest.approx(10_000, abs=200)


def test_who_starts_without_waiting_is_charged_and_saves_nothing_up_either() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    for _ in range(50):
        queue.charge(make("early", 1000.0).tag, 0.0)
    fill(queue, [make(tenant) for tenant in ("early", "late") for _ in range(100)])
    taken = serve(queue, 40)
    # Ahead by the last one: its start is where the others begin.
    assert [one.tag.tenant for one in taken[:10]] == ["late"] * 10
    assert shares(taken[10:])["early"] == pytest.approx(1500, abs=100)


def test_who_starts_elsewhere_is_behind_those_who_had_to_wait() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make("waits", line="blocked") for _ in range(9)])
    for _ in range(5):
        queue.charge(make("starts").tag, 0.0)
    fill(queue, [make("starts", line="blocked"), make("new", line="blocked")])
    taken = [one.tag.tenant for one in serve(queue, 11, lines=["blocked"])]
    assert taken.index("new") <= 1 and taken.index("starts") in (6, 7)


def test_the_groups_share_by_fairness_weight_and_batch_never_starves() -> None:
    for weight in (0.6, 0.2):
        queue, make = FairQueue[Waits](replace(RULES, fairness_weight=weight)), numbered()
        for lane in (Lane.INTERACTIVE, Lane.STANDARD, Lane.BATCH):
            fill(queue, [make(lane=lane) for _ in range(2000)])
        served = shares(serve(queue, 1000), "lane")
        assert served[Lane.INTERACTIVE] == pytest.approx(100_000 * weight, rel=0.01)
        assert served[Lane.BATCH] == pytest.approx(100_000 * (1 - weight) / 5, rel=0.02)
        assert served[Lane.BATCH] >= 5000


def test_the_lanes_of_the_throughput_group_share_by_their_weights() -> None:
    rules = replace(RULES, standard_weight=1.0, batch_weight=3.0)
    queue, make = FairQueue[Waits](RULES), numbered()
    for lane in (Lane.STANDARD, Lane.BATCH):
        fill(queue, [make(lane=lane) for _ in range(500)])
    assert shares(serve(queue, 100), "lane")[Lane.BATCH] == 2000
    queue.configure(rules)
    assert shares(serve(queue, 100), "lane")[Lane.BATCH] == pytest.approx(7500, abs=200)


def test_a_light_tenant_waits_for_a_few_requests_beside_a_noisy_one() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make("noisy") for _ in range(800)])
    for _ in range(50):
        fill(queue, [make("light")])
        assert queue.cost_ahead(make("light").tag) <= 400.0
        assert "light" in [one.tag.tenant for one in serve(queue, 3)]


def test_a_light_business_type_waits_for_a_few_requests_of_its_own_tenant() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make(business="bulk") for _ in range(800)])
    fill(queue, [make(business="chat")])
    assert "chat" in [one.tag.business for one in serve(queue, 2)]


def test_service_on_one_line_counts_on_the_others() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make(tenant, line=line) for line in "xy" for tenant in "ab" for _ in range(50)])
    fill(queue, [make("a", line="x", business="other") for _ in range(20)])
    serve(queue, 20, lines=["x"])
    # Only one of the two on the first line, the other takes what it has missed on the second.
    for ticket in _all_of("b", queue, "x"):
        queue.remove(ticket)
    serve(queue, 40, lines=["x"])
    assert [one.tag.tenant for one in serve(queue, 30, lines=["y", "x"])] == ["b"] * 30


def _all_of(tenant: str, queue: FairQueue[Waits], line: str) -> list[Waits]:
    """Takes nothing: what waits is looked at by removing it and pushing it again."""
    found = []
    while (head := queue.head([line], 0.0)) is not None:
        queue.remove(head)
        found.append(head)
    fill(queue, found)
    return [one for one in found if one.tag.tenant == tenant]


def test_a_newcomer_is_level_with_those_who_wait_after_all_were_given_back() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make(tenant, 1000.0) for tenant in "ab" for _ in range(30)])
    for taken in serve(queue, 20):
        queue.settle(taken.tag, -990.0, 0.0)
    fill(queue, [make("new", 1000.0) for _ in range(10)])
    assert shares(serve(queue, 15))["new"] == pytest.approx(5000, abs=1000)


def backlogged_debtor(debt: float, rules: FairnessRules = RULES) -> tuple[FairQueue[Waits], Make]:
    queue, make = FairQueue[Waits](rules), numbered()
    fill(queue, [make(tenant) for tenant in ("debtor", "other") for _ in range(400)])
    queue.settle(make("debtor").tag, debt, 0.0)
    return queue, make


def test_a_true_up_is_a_debt_and_a_refund_forgives_it() -> None:
    queue, make = backlogged_debtor(1000.0)
    assert shares(serve(queue, 12)) == {"debtor": 100, "other": 1100}
    queue, make = backlogged_debtor(1000.0)
    queue.settle(make("debtor").tag, -1000.0, 0.0)
    assert shares(serve(queue, 10)) == {"debtor": 500, "other": 500}


def test_a_starving_flow_gets_one_dispatch_in_eight() -> None:
    queue, _ = backlogged_debtor(1e9)
    assert "debtor" not in shares(serve(queue, 40, 29.0))
    served = []
    for step in range(80):
        served += serve(queue, 1, 31.0 + step * 30)
    assert shares(served) == {"debtor": 1000, "other": 7000}
    assert queue.snapshot(0.0).for_starving >= 10
    often, _ = backlogged_debtor(1e9, replace(RULES, starving_every=2))
    assert shares(serve(often, 2, 31.0))["debtor"] == 100


def test_a_starving_flow_that_was_served_starves_again_only_after_as_long() -> None:
    queue, _ = backlogged_debtor(1e9)
    assert shares(serve(queue, 80, 31.0))["debtor"] == 100
    assert "debtor" not in shares(serve(queue, 80, 60.0))


def test_of_the_starving_the_one_beyond_its_lane_s_patience_for_longest_goes() -> None:
    queue, make = FairQueue[Waits](replace(RULES, starving_every=1)), numbered()
    fill(queue, [make(lane=Lane.BATCH, line="x")])
    fill(queue, [make(lane=Lane.INTERACTIVE, line="x"), make("u", lane=Lane.INTERACTIVE, line="y")], 119.0)
    lines = ["x", "y"]
    head = queue.head(lines, 123.0)
    assert head is not None and head.tag.lane is Lane.BATCH
    head = queue.head(lines, 123.0, {Lane.INTERACTIVE})
    assert head is not None and head.tag.lane is Lane.INTERACTIVE
    taken = [one.tag.lane for one in serve(queue, 3, 125.0, lines)]
    assert taken == [Lane.BATCH, Lane.INTERACTIVE, Lane.INTERACTIVE]


def test_flows_that_left_do_not_hide_the_one_that_starves() -> None:
    queue, make = FairQueue[Waits](replace(RULES, starving_every=1)), numbered()
    gone = [make(f"gone{number}") for number in range(3)]
    fill(queue, [*gone, make("starves"), make("idle", lane=Lane.BATCH)])
    queue.settle(make("starves").tag, 1e9, 0.0)
    for number in range(100):
        short = make(f"t{number}")
        fill(queue, [short], 10.0)
        queue.remove(short)
    for ticket in gone:
        queue.remove(ticket)
    fill(queue, [make("other") for _ in range(9)], 10.0)
    assert "starves" not in shares(serve(queue, 3, 29.0))
    assert list(shares(serve(queue, 1, 31.0))) == ["starves"]
    assert "starves" not in shares(serve(queue, 3, 39.0))


def test_a_debt_fades_while_the_flow_is_idle() -> None:
    def dispatches_before(idle: float) -> int:
        queue, make = FairQueue[Waits](RULES), numbered()
        tag = make("debtor").tag
        queue.charge(tag, 0.0)
        queue.settle(tag, 9900.0, 0.0)
        fill(queue, [make("other") for _ in range(200)], idle)
        fill(queue, [make("debtor")], idle)
        return [one.tag.tenant for one in serve(queue, 200, idle)].index("debtor")

    assert dispatches_before(0.0) == pytest.approx(100, abs=1)
    assert dispatches_before(30.0) == pytest.approx(71, abs=1)
    assert dispatches_before(30.1) <= 3, "no more than two of its requests"


def test_a_debt_of_a_flow_that_is_forgotten_is_made_anew_and_a_credit_is_not() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    queue.settle(make("debtor").tag, 500.0, 0.0)
    queue.settle(make("creditor").tag, -500.0, 0.0)
    queue.settle(make("any", lane=Lane.EMERGENCY).tag, 500.0, 0.0)
    queue.charge(make("any", lane=Lane.EMERGENCY).tag, 0.0)
    assert queue.snapshot(0.0).flows_known == 1
    fill(queue, [make(tenant) for tenant in ("debtor", "creditor", "other") for _ in range(9)])
    assert shares(serve(queue, 10)) == {"creditor": 500, "other": 500}


def test_credit_of_a_line_that_was_blocked_fades() -> None:
    def caught_up_after(minutes: float) -> int:
        """How many the blocked tenant is served in a row, once it can be."""
        queue, make = FairQueue[Waits](ALWAYS), numbered()
        fill(queue, [make("blocked", line="x") for _ in range(200)])
        fill(queue, [make("free", line="y") for _ in range(200)])
        serve(queue, 1, 0.0, ["x"])
        serve(queue, 101, 0.0, ["y"])
        now = minutes * 60
        taken = [one.tag.tenant for one in serve(queue, 110, now, ["x", "y"])]
        return taken.index("free")

    assert caught_up_after(0) == pytest.approx(100, abs=2)
    assert caught_up_after(1) == pytest.approx(50, abs=2)
    assert caught_up_after(20) <= 2


def test_the_cost_ahead_is_what_is_served_before_a_newcomer() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make("a", weight=2.0) for _ in range(100)])
    fill(queue, [make("b") for _ in range(100)])
    fill(queue, [make("c") for _ in range(10)])
    fill(queue, [make("a", lane=Lane.INTERACTIVE) for _ in range(50)])
    fill(queue, [make("a", lane=Lane.EMERGENCY) for _ in range(3)])
    newcomer = make("b")
    predicted = queue.cost_ahead(newcomer.tag)
    fill(queue, [newcomer])
    served = 0.0
    while (head := queue.head(["m"], 0.0)) is not newcomer:
        assert head is not None
        queue.take(head, 0.0)
        served += head.tag.cost
    assert predicted == pytest.approx(served, rel=0.05)
    # Who is new has nobody of its own before it, and its tenant nobody of its lane.
    assert queue.cost_ahead(make("b", business="new").tag) <= 300.0
    assert queue.cost_ahead(make("new").tag) == 0.0


def test_a_refund_larger_than_the_next_request_goes_with_the_one_after() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    small, large = make(cost=1.0), make(cost=2000.0)
    fill(queue, [small, large])
    flow = queue._tree.find((Lane.STANDARD, "t", "b"))
    assert flow is not None
    before = flow.service
    queue.settle(small.tag, -100.0, 0.0)
    assert flow.service == before
    assert serve(queue, 1) == [small]
    assert flow.service == before + 1.0, "a counter never falls by a dispatch"
    assert serve(queue, 1) == [large]
    assert flow.service == before + 1.0 + 2000.0 - 100.0


def test_what_a_flow_is_owed_is_settled_when_the_last_of_its_requests_leaves() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    tickets = [make(cost=1000.0) for _ in range(2)]
    fill(queue, tickets)
    flow = queue._tree.find((Lane.STANDARD, "t", "b"))
    assert flow is not None
    before = flow.service
    queue.settle(tickets[0].tag, 50.0, 0.0)
    for ticket in tickets:
        queue.remove(ticket)
    assert (flow.service, flow.owed) == (before + 50.0, 0.0)


def test_refunds_that_never_end_leave_a_bounded_heap() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    fill(queue, [make(tenant, cost=100.0) for tenant in ("t", "u")])
    before = entries(queue)
    for _ in range(1000):
        queue.settle(make("t", cost=100.0).tag, -1000.0, 0.0)
    assert entries(queue) <= before + 100
    assert [one.tag.tenant for one in serve(queue, 2)] == ["t", "u"]
