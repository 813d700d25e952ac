"""The fair queue as a container: what is pushed comes out once, in the promised order, and nothing is left behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.fairness import FairnessRules, QueueBound, due, starving_seconds
from policies.lanes import RANK
from policies.terms import Lane, Tag, TicketId
from routing.fair_queue import FairQueue
from routing.queue_view import FlowView
from tests.routing.reachable import entries, kept_by
from tests.routing.waiting import Waits, numbered

RULES = FairnessRules()
LINES = ("x", "y", "z")
TENANTS = ("t", "u")
BUSINESS = ("b", "c")
SUBSETS = st.sets(st.sampled_from(LINES))


class FairQueueMachine(RuleBasedStateMachine):
    """Any sequence of events, beside a plain list of what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[Waits] = FairQueue(RULES)
        self.now = 0.0
        self.waiting: list[Waits] = []
        self.first: set[TicketId] = set()
        self.gone: list[Waits] = []
        self.number = 0

    @initialize(every=st.integers(1, 3), idle=st.integers(1, 3))
    def begin(self, every: int, idle: int) -> None:
        self.queue.configure(replace(RULES, starving_every=every, max_flows=idle))

    @rule(seconds=st.sampled_from([0.01, 1.0, 29.0, 200.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        lane=st.sampled_from(Lane),
        tenant=st.sampled_from(TENANTS),
        business=st.sampled_from(BUSINESS),
        line=st.sampled_from(LINES),
        cost=st.sampled_from([1.0, 100.0, 5000.0]),
        weight=st.sampled_from([0.5, 1.0, 2.0]),
        left=st.sampled_from([0.5, 3.0, inf]),
        first=st.sampled_from([False, False, False, True]),
        many=st.sampled_from([1, 1, 30]),
    )
    def push(
        self,
        lane: Lane,
        tenant: str,
        business: str,
        line: str,
        cost: float,
        weight: float,
        left: float,
        first: bool,
        many: int,
    ) -> None:
        for _ in range(many):
            self.number += 1
            tag = Tag(
                business=business,
                lane=lane,
                tenant=tenant,
                weight=weight,
                cost=cost,
                deadline=self.now + left,
            )
            ticket = Waits(TicketId(self.number), tag, line, self.now)
            self.queue.push(ticket, self.now, first)
            self.waiting.append(ticket)
            if first:
                self.first.add(ticket.id)

    @precondition(lambda self: self.gone)
    @rule(choice=st.integers(0, 1000))
    def put_back(self, choice: int) -> None:
        ticket = self.gone.pop(choice % len(self.gone))
        self.queue.push(ticket, self.now)
        self.waiting.append(ticket)

    @precondition(lambda self: self.waiting)
    @rule(choice=st.integers(0, 1000), many=st.sampled_from([1, 1, 25]))
    def remove(self, choice: int, many: int) -> None:
        for _ in range(min(many, len(self.waiting))):
            ticket = self.waiting[choice % len(self.waiting)]
            assert self.queue.remove(ticket)
            assert not self.queue.remove(ticket)
            self.left(ticket)

    @rule(lines=SUBSETS, lanes=st.none() | st.sets(st.sampled_from(Lane)), many=st.sampled_from([1, 1, 10]))
    def take(self, lines: set[str], lanes: set[Lane] | None, many: int) -> None:
        for _ in range(many):
            open_to = [
                one for one in self.waiting if one.line in lines and (lanes is None or one.tag.lane in lanes)
            ]
            head = self.queue.head(lines, self.now, lanes)
            assert self.queue.head(lines, self.now, lanes) is head, "asking changes something"
            if head is None:
                assert not open_to
                return
            assert head in open_to
            self.check_order(head, open_to)
            self.queue.take(head, self.now)
            self.left(head)

    @rule(lane=st.sampled_from(Lane), tenant=st.sampled_from(TENANTS), difference=st.floats(-9000, 9000))
    def settle(self, lane: Lane, tenant: str, difference: float) -> None:
        self.queue.settle(Tag(business="b", lane=lane, tenant=tenant), difference, self.now)

    @rule(lane=st.sampled_from(Lane), tenant=st.sampled_from([*TENANTS, "v", "w"]))
    def charge(self, lane: Lane, tenant: str) -> None:
        self.queue.charge(Tag(business="b", lane=lane, tenant=tenant, cost=100.0), self.now)

    def left(self, ticket: Waits) -> None:
        self.waiting.remove(ticket)
        self.first.discard(ticket.id)
        self.gone = [*self.gone[-5:], ticket]

    def check_order(self, head: Waits, open_to: list[Waits]) -> None:
        urgent = [one for one in open_to if one.tag.lane is Lane.EMERGENCY]
        before = [one for one in open_to if one.id in self.first]
        if urgent:
            assert head in urgent, "an emergency had to wait"
            same = [one for one in urgent if one.id in self.first] or urgent
        elif before:
            same = [one for one in before if one.tag.lane is head.tag.lane]
        else:
            same = [one for one in open_to if self.flow(one) == self.flow(head)]
        starving = self.number and head.id not in self.first and head.tag.lane is not Lane.EMERGENCY
        if starving:
            # Out of turn it is the first of its flow on its own line.
            same = [one for one in same if one.line == head.line]
        assert head.id in self.first or (self.due(head), head.id) == min(
            (self.due(one), one.id) for one in same
        )

    @staticmethod
    def flow(ticket: Waits) -> tuple[str, str, str]:
        return (ticket.tag.lane, ticket.tag.tenant, ticket.tag.business)

    @staticmethod
    def due(ticket: Waits) -> float:
        return due(ticket.tag.deadline, ticket.arrived, starving_seconds(ticket.tag.lane, RULES))

    @invariant()
    def counts_agree(self) -> None:
        queue = self.queue
        assert queue.waiting == len(self.waiting)
        lanes = Counter(one.tag.lane for one in self.waiting)
        flows = Counter(self.flow(one) for one in self.waiting)
        lines = Counter(one.line for one in self.waiting)
        assert set(queue.lines()) == lines.keys()
        for line in LINES:
            assert queue.waiting_in_line(line) == lines[line]
            assert queue.has_waiting(line) == (line in lines)
        view = queue.snapshot(0.0)
        assert {(one.lane, one.tenant, one.business): one.waiting for one in view.flows} == flows
        cost = 0.0
        for lane, shown in zip(Lane, view.lanes, strict=True):
            assert queue.waiting_in_lane(lane) == shown.waiting == lanes[lane]
            own = sum(one.tag.cost for one in self.waiting if one.tag.lane is lane)
            cost += own
            assert shown.cost == pytest.approx(own) and queue.cost_waiting(lane) == pytest.approx(cost)
            for tenant in (*TENANTS, "new"):
                tag = Tag(lane=lane, tenant=tenant, business="b")
                assert queue.waiting_of_flow(tag) == flows[lane, tenant, "b"]
                assert -1e-6 <= queue.cost_ahead(tag) <= queue.cost_waiting(Lane.BATCH) + 1e-6

    @invariant()
    def the_newest_of_the_lowest_lane_would_make_room(self) -> None:
        newest = self.queue.newest_of_lowest_lane()
        others = [one for one in self.waiting if one.id not in self.first]
        if newest is None:
            assert not others
        else:
            assert newest in others and RANK[newest.tag.lane] == max(RANK[one.tag.lane] for one in others)

    def teardown(self) -> None:
        assert entries(self.queue) <= 60 * len(self.waiting) + 3000, "what is void piles up"
        while (head := self.queue.head(LINES, self.now)) is not None:
            self.queue.take(head, self.now)
            self.waiting.remove(head)
        assert not self.waiting and self.queue.waiting == 0
        kept = [one for one in kept_by(self.queue) if isinstance(one, Waits)]
        assert not kept, "tickets are kept for ever"


TestFairQueue = FairQueueMachine.TestCase
TestFairQueue.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0, inf]), min_size=1, max_size=12))
def test_inside_a_flow_the_earliest_deadline_is_first_and_equal_ones_go_in_order_of_arrival(
    deadlines: list[float],
) -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    pushed = [make(deadline=deadline) for deadline in deadlines]
    for ticket in pushed:
        queue.push(ticket, 0.0)
    assert drained(queue) == sorted(pushed, key=lambda one: (one.tag.deadline, one.id))


def test_a_request_without_a_deadline_is_not_passed_for_ever_by_those_that_have_one() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    patient = make(arrived=0.0)
    queue.push(patient, 0.0)
    now = 0.0
    while (head := queue.head(["m"], now)) is None or head is not patient:
        if head is not None:
            queue.take(head, now)
        now += 1.0
        queue.push(make(deadline=now + 2.0, arrived=now), now)
    assert now <= RULES.standard_starving_seconds


def test_emergencies_come_first_and_among_themselves_by_deadline() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    usual = make(lane=Lane.INTERACTIVE, deadline=0.1)
    late, soon, also_soon = (
        make(lane=Lane.EMERGENCY, deadline=deadline, tenant=str(deadline)) for deadline in (9.0, 1.0, 1.0)
    )
    again = make(lane=Lane.EMERGENCY, deadline=99.0)
    for ticket in (usual, late, soon, also_soon):
        queue.push(ticket, 0.0)
    queue.push(again, 0.0, first=True)
    assert queue.cost_ahead(late.tag) == 400.0
    assert drained(queue) == [again, soon, also_soon, late, usual]


def test_who_has_waited_once_goes_before_its_line_and_is_not_charged_twice() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    before = make("other", deadline=0.1)
    moved, later = make("t", deadline=3.0), make("t", deadline=4.0)
    queue.push(before, 0.0)
    queue.push(later, 0.0, first=True)
    queue.push(moved, 0.0, first=True)
    assert queue.newest_of_lowest_lane() is before
    others = [make(tenant) for tenant in ("t", "other", "t")]
    for ticket in others:
        queue.push(ticket, 0.0)
    assert drained(queue) == [moved, later, before, *others]


def test_a_line_that_nobody_can_serve_does_not_hold_up_another() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    stuck = [make(line="x", deadline=0.1, lane=lane) for lane in Lane for _ in range(3)]
    free = make(line="y", lane=Lane.BATCH)
    for ticket in (*stuck, free):
        queue.push(ticket, 0.0)
    assert queue.head(["y"], 0.0) is free
    assert queue.head(["unknown"], 0.0) is None
    assert queue.head(["unknown", "y"], 0.0) is free


def test_only_the_lanes_that_may_be_served_are_looked_at() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    tickets = {lane: make(lane=lane) for lane in Lane}
    for ticket in tickets.values():
        queue.push(ticket, 0.0)
    queue.push(make(lane=Lane.STANDARD), 0.0, first=True)
    for lane, ticket in tickets.items():
        head = queue.head(["m"], 0.0, {lane})
        assert head is ticket or lane is Lane.STANDARD
    assert queue.head(["m"], 0.0, set()) is None


def test_what_is_put_back_has_its_old_place() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    one, two, three = (make() for _ in range(3))
    for ticket in (one, two, three):
        queue.push(ticket, 0.0)
    queue.take(one, 0.0)
    queue.take(two, 0.0)
    queue.settle(two.tag, -two.tag.cost, 0.0)
    queue.push(two, 0.0)
    assert drained(queue) == [two, three]


def test_another_ticket_with_the_same_number_is_not_removed() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    ticket = make()
    assert not queue.remove(ticket)
    queue.push(ticket, 0.0)
    assert not queue.remove(ticket._replace(arrived=1.0))
    assert queue.remove(ticket)


def test_a_ticket_cannot_wait_twice() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    ticket = make()
    queue.push(ticket, 0.0)
    with pytest.raises(AssertionError, match="once"):
        queue.push(ticket, 0.0)


def test_each_bound_of_waiting_requests_is_kept() -> None:
    rules = replace(RULES, max_waiting_per_flow=2, max_waiting_per_lane=3, max_waiting=4)
    queue, make = FairQueue[Waits](rules), numbered()
    queue.push(make(), 0.0)
    queue.push(make(), 0.0, first=True)
    assert queue.bound_hit(make().tag) is QueueBound.FLOW
    assert queue.bound_hit(make("u").tag) is None
    queue.push(make("u"), 0.0)
    assert queue.bound_hit(make("u").tag) is QueueBound.LANE
    queue.push(make("u", lane=Lane.EMERGENCY), 0.0)
    assert queue.bound_hit(make("u", lane=Lane.BATCH).tag) is QueueBound.TOTAL
    queue.configure(replace(rules, max_waiting=5))
    assert queue.bound_hit(make("u", lane=Lane.BATCH).tag) is None


def test_the_newest_of_the_lowest_lane_makes_room() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    assert queue.newest_of_lowest_lane() is None
    standard, older, newer = make(), make(lane=Lane.BATCH), make(lane=Lane.BATCH)
    for ticket in (standard, older, newer, make(lane=Lane.EMERGENCY)):
        queue.push(ticket, 0.0)
    for expected in (newer, older, standard):
        assert queue.newest_of_lowest_lane() is expected
        queue.remove(expected)


def test_the_snapshot_shows_the_flows_with_the_most_waiting_and_counts_what_happened() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    tickets = [make(f"t{number}", lane=Lane.BATCH) for number in range(30) for _ in range(number + 1)]
    for ticket in tickets:
        queue.push(ticket, 0.0)
    queue.push(make("t29", lane=Lane.BATCH), 0.0, first=True)
    queue.take(tickets[-1], 0.0)
    queue.remove(tickets[-2])
    queue.charge(make("new").tag, 0.0)
    view = queue.snapshot(0.0)
    assert view.flows[:2] == (
        FlowView("batch", "t28", "b", 29),
        FlowView("batch", "t29", "b", 29),
    ) or view.flows[:2] == (FlowView("batch", "t29", "b", 29), FlowView("batch", "t28", "b", 29))
    assert len(view.flows) == 20 and view.flows_known == 31
    assert (view.taken, view.removed, view.started, view.lines) == (1, 1, 1, 1)
    assert view.waiting == view.lanes[RANK[Lane.BATCH]].waiting == len(tickets) - 1


def test_memory_is_bounded_by_what_waits_and_by_the_flows_that_count() -> None:
    queue, make = FairQueue[Waits](replace(RULES, max_flows=50)), numbered()
    for number in range(2000):
        queue.charge(make(f"t{number}", business=f"b{number % 3}").tag, 0.0)
    assert queue.snapshot(0.0).flows_known <= 50
    forgetful = FairQueue[Waits](replace(RULES, half_life_seconds=1.0))
    for number in range(3000):
        ticket = make(f"t{number % 1500}", line=f"line{number}")
        forgetful.push(ticket, float(number))
        assert forgetful.head([ticket.line], float(number)) is ticket
        forgetful.take(ticket, float(number))
    assert forgetful.snapshot(0.0).flows_known <= 12 and entries(forgetful) < 1000


def test_a_flow_that_is_not_ahead_of_the_others_is_forgotten_at_once() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    for number in range(200):
        queue.charge(make("busy", 10.0).tag, 2.0 * number)
        queue.charge(make(f"t{number}", 1.0, business="rare").tag, 2.0 * number)
    assert queue.snapshot(0.0).flows_known <= 5


def test_of_a_tenant_that_waits_the_flows_are_forgotten_that_are_not_ahead_in_it() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    waits = make(business="waits")
    queue.push(waits, 0.0)
    queue.charge(make(business="level", cost=0.0).tag, 0.0)
    queue.charge(make(business="ahead").tag, 0.0)
    queue.charge(waits.tag, 0.0)
    queue.charge(make("new").tag, 0.0)
    assert queue.snapshot(0.0).flows_known == 3
    assert queue.remove(waits)
    assert queue.waiting == 0


def test_flows_that_are_ahead_are_remembered_for_ten_half_lives() -> None:
    queue, make = FairQueue[Waits](replace(RULES, half_life_seconds=1.0)), numbered()
    queue.settle(make("ahead").tag, 1000.0, 0.0)
    queue.charge(make("b").tag, 9.0)
    assert queue.snapshot(0.0).flows_known == 2
    queue.charge(make("c").tag, 11.0)
    assert queue.snapshot(0.0).flows_known == 2


def drained(queue: FairQueue[Waits]) -> list[Waits]:
    taken = []
    while (head := queue.head(list(queue.lines()), 0.0)) is not None:
        queue.take(head, 0.0)
        taken.append(head)
    return taken


def test_where_nobody_of_these_lanes_waits_on_any_of_the_lines_there_is_no_head() -> None:
    queue, make = FairQueue[Waits](RULES), numbered()
    for line in LINES:
        queue.push(make(line=line, lane=Lane.STANDARD), 0.0)
    assert queue.head(LINES, 0.0, {Lane.BATCH}) is None
    assert queue.head(LINES[:1], 0.0, {Lane.BATCH}) is None
    assert queue.head(("nobody", "none"), 0.0) is None
