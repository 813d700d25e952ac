"""What a standing queue refuses and of whom, with the real router in front of one engine in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush

import pytest

from policies.overload import OverloadRules
from policies.shedding import SheddingRules
from policies.terms import BackendId, Lane, PoolName, Refusal, Tag, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease, Line, Ticket
from routing.overload import MAX_FLOWS, MAX_QUEUES, Overload
from routing.router import Router
from routing.rules import Rules

SLOTS, SERVICE_SECONDS, TARGET = 4, 0.1, 1.0
PER_SECOND = SLOTS / SERVICE_SECONDS
# So that the predicted wait refuses nobody.
LENIENT = SheddingRules(margin=10.0)


class Engine:
    """Serves `SLOTS` requests at a time; each flow's requests come evenly."""

    def __init__(self, rules: Rules) -> None:
        self.router = Router(rules)
        self.router.configure([BackendPlan(BackendId("a"), PoolName("p"), SLOTS)], rules)
        self.now = 0.0
        self.served: Counter[str] = Counter()
        self.refused: Counter[tuple[str, Refusal]] = Counter()
        self.arrived: Counter[str] = Counter()
        self.waits: list[tuple[float, float]] = []
        """When each was dispatched, and how long it had waited."""
        self._events: list[tuple[float, int, str | Lease]] = []
        self._count = 0

    def run(self, seconds: float, rates: Mapping[str, float], intents: Mapping[str, Intent] = {}) -> None:
        end = self.now + seconds
        for number, (tenant, rate) in enumerate(rates.items()):
            for step in range(round(seconds * rate)):
                self._at(self.now + (step + number / len(rates)) / rate, tenant)
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heappop(self._events)
            if isinstance(event, Lease):
                event.verdict = Verdict.GOOD
                event.service_seconds = SERVICE_SECONDS
                self.router.finish(event, self.now)
                self.served[event.tag.tenant] += 1
            else:
                self.arrived[event] += 1
                intent = intents.get(event, Intent(tenant=event, target_seconds=TARGET))
                decision = self.router.arrive("", self.now, intent)
                if isinstance(decision, Refusal):
                    self.refused[event, decision] += 1
                elif isinstance(decision, Lease):
                    self._dispatched(decision)
            for ticket, grant in self.router.pump(self.now):
                if isinstance(grant, Lease):
                    self._dispatched(grant)
                else:
                    self.refused[ticket.tag.tenant, grant] += 1
        self.now = end

    def lost(self, tenant: str) -> float:
        return self.refused[tenant, Refusal.STANDING_QUEUE] / self.arrived[tenant]

    def _dispatched(self, lease: Lease) -> None:
        self.waits.append((self.now, lease.queue_seconds))
        self._at(self.now + SERVICE_SECONDS, lease)

    def _at(self, when: float, event: str | Lease) -> None:
        self._count += 1
        heappush(self._events, (when, self._count, event))


def engine(shedding: SheddingRules = LENIENT, overload: OverloadRules | None = None) -> Engine:
    return Engine(Rules(shedding=shedding, overload=overload or OverloadRules()))


def standing(refused: Counter[tuple[str, Refusal]]) -> int:
    return sum(count for (_, reason), count in refused.items() if reason is Refusal.STANDING_QUEUE)


@pytest.mark.parametrize("load", [0.8, 1.0])
def test_what_the_engine_can_serve_is_not_refused(load: float) -> None:
    stage = engine()
    stage.run(20.0, {"a": load * PER_SECOND})
    assert not stage.refused


def test_a_burst_that_is_over_soon_is_absorbed() -> None:
    stage = engine()
    stage.run(0.4, {"a": 2 * PER_SECOND})
    stage.run(5.0, {"a": 0.5 * PER_SECOND})
    assert not stage.refused


@pytest.mark.parametrize("load", [1.3, 2.0, 3.0])
def test_in_overload_waits_stay_short_and_the_engine_stays_busy(load: float) -> None:
    stage = engine()
    stage.run(10.0, {"a": load * PER_SECOND})
    settled = [waited for at, waited in stage.waits if at > 4.0]
    assert max(settled) < 0.5 * TARGET
    assert len(settled) >= 0.98 * 6.0 * PER_SECOND
    assert stage.lost("a") == pytest.approx(1 - 1 / load, abs=0.12)


def test_without_it_the_same_load_waits_as_long_as_it_may() -> None:
    stage = engine(overload=OverloadRules(standing_share=1.0, standing_seconds=60.0))
    stage.run(10.0, {"a": 2 * PER_SECOND})
    assert not standing(stage.refused)
    assert max(waited for _, waited in stage.waits) > 0.9 * TARGET


def test_the_heaviest_flows_are_refused_and_one_below_its_share_is_not() -> None:
    stage = engine()
    rates = {"heavy": 50.0, "middle": 25.0, "light": 9.0}
    stage.run(20.0, rates)
    assert stage.lost("heavy") > stage.lost("middle") + 0.1 > 0.3
    assert stage.lost("light") < 0.05
    assert stage.served["heavy"] == pytest.approx(stage.served["middle"], rel=0.15)


def test_after_the_overload_nobody_is_refused_for_long() -> None:
    stage = engine()
    stage.run(10.0, {"a": 3 * PER_SECOND})
    stage.run(1.0, {"a": 0.8 * PER_SECOND})
    before = standing(stage.refused)
    stage.run(10.0, {"a": 0.8 * PER_SECOND})
    assert standing(stage.refused) == before > 0


def test_an_engine_that_answers_nobody_is_seen_though_nothing_is_dispatched() -> None:
    rules = Rules(shedding=LENIENT)
    router = Router(rules)
    router.configure([BackendPlan(BackendId("a"), PoolName("p"), 1)], rules)
    assert isinstance(router.arrive("", 0.0), Lease)
    decisions = [router.arrive("", 0.1 * step, Intent(target_seconds=20.0)) for step in range(200)]
    assert all(isinstance(decision, Ticket) for decision in decisions[:100])
    assert Refusal.STANDING_QUEUE in decisions[100:]


@pytest.mark.parametrize(
    "spared",
    [Intent(tenant="b", lane=Lane.EMERGENCY, target_seconds=TARGET), Intent(tenant="b")],
    ids=["emergency", "without a target"],
)
def test_emergencies_and_what_cannot_be_late_are_not_refused(spared: Intent) -> None:
    stage = engine()
    stage.run(5.0, {"a": 2 * PER_SECOND, "b": 8.0}, {"b": spared})
    assert stage.lost("a") > 0.0 and stage.lost("b") == 0.0


@pytest.mark.parametrize(
    ("shedding", "overload", "is_refused"),
    [
        (LENIENT, OverloadRules(), True),
        (SheddingRules(enabled=False), OverloadRules(), False),
        (LENIENT, OverloadRules(standing_share=1.0), False),
        (LENIENT, OverloadRules(standing_seconds=5.0), False),
    ],
)
def test_the_rules_are_followed(shedding: SheddingRules, overload: OverloadRules, is_refused: bool) -> None:
    stage = engine(shedding, overload)
    stage.run(2.0, {"a": 1.6 * PER_SECOND})
    assert (standing(stage.refused) > 0) is is_refused


def test_what_waits_in_a_lower_lane_does_not_make_a_queue_stand() -> None:
    stage = engine()
    batch = Intent(tenant="b", lane=Lane.BATCH)
    urgent = Intent(tenant="a", lane=Lane.INTERACTIVE, target_seconds=TARGET)
    stage.run(10.0, {"a": 8.0, "b": 60.0}, {"a": urgent, "b": batch})
    assert stage.router.waiting > 100 and not standing(stage.refused)


def test_a_queue_that_is_found_empty_again_and_again_refuses_nobody() -> None:
    stage = engine()
    stage.run(10.0, {"a": 2 * PER_SECOND})
    assert standing(stage.refused) > 0 and max(stage.router.admission.overload.shares().values()) > 0.0
    stage.run(1.0, {"a": 0.6 * PER_SECOND})
    stage.run(1.0, {"a": 1.01 * PER_SECOND})
    assert max(stage.router.admission.overload.shares().values()) == 0.0


def test_what_was_known_before_a_pause_refuses_nobody_after_it() -> None:
    stage = engine()
    stage.run(10.0, {"a": 3 * PER_SECOND})
    before = standing(stage.refused)
    stage.run(2.0, {"a": 1.0})
    stage.run(0.3, {"a": 2 * PER_SECOND})
    assert standing(stage.refused) == before > 0


def test_who_agreed_to_be_served_late_is_relegated_instead() -> None:
    stage = engine()
    later = Intent(tenant="a", target_seconds=TARGET, relegate=True)
    stage.run(5.0, {"a": 2 * PER_SECOND}, {"a": later})
    assert not stage.refused and stage.router.counts.relegated > 0


def test_queues_and_flows_that_are_remembered_are_bounded() -> None:
    overload = Overload(OverloadRules())
    tag = Tag(target_seconds=1.0, lane=Lane.INTERACTIVE)
    for number in range(MAX_QUEUES + 50):
        overload.refuses(Line(str(number), (), None), tag, None, True, 0.0)
    for number in range(MAX_FLOWS + 50):
        overload.refuses(Line("m", (), None), tag._replace(tenant=str(number)), None, True, 0.0)
    assert overload.remembered() == (MAX_QUEUES, MAX_FLOWS + MAX_QUEUES - 1)


def test_a_flow_that_asks_for_nothing_any_more_is_forgotten() -> None:
    overload, line = Overload(OverloadRules()), Line("m", (PoolName("p"),))
    for now, tenant in ((0.0, "early"), (60.0, "late"), (61.0, "late")):
        overload.refuses(line, Tag(tenant=tenant, target_seconds=1.0), None, True, now)
    assert overload.remembered() == (1, 1)
