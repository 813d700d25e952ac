"""Each action of a degradation rule by itself: what it does to requests, and that nothing of it is left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from policies.degradation_actions import Effects
from policies.emergency import ReserveRules
from policies.gathering import GatheringRules
from policies.lengths import TextSize
from policies.metric_catalogue import Metric, Scope
from policies.path_split import PathRules
from policies.pool_choice import PoolTag
from policies.terms import CachePath, Lane, PoolName, Refusal, Verdict
from routing.backend import Hold
from routing.clamps import MAX_KEPT
from routing.decision import Intent, Lease
from routing.placement import AffinityRules
from routing.rules import Rules
from tests.routing.reachable import kept_by
from tests.routing.rule_stage import HOT, LANES, Stage, pool, rule
from tests.routing.test_overload import PER_SECOND, TARGET, engine

COLD = Intent(path=CachePath.COLD)
GATHERING = GatheringRules(4, 8, 0.1, False)
BATCH = HOT._replace(lane=Lane.BATCH)


def switched(stage: Stage, is_on: bool, subject: str = "", scope: Scope = Scope.FLEET) -> None:
    """The metric of `rule()` crosses its threshold."""
    metric = Metric.GPU_UTILISATION_RATIO if scope is Scope.BACKEND else Metric.SATURATION_RATIO
    stage.told(metric, 0.9 if is_on else 0.1, scope, subject)
    [event] = stage.beat()
    assert event.is_active is is_on and event.subject == subject


@pytest.mark.parametrize(
    ("action", "changed"),
    [
        ("close_cold_path", {"entrance"}),
        ("window_share 0.5", {"backends", "pools", "fits"}),
        ("serial", {"pools", "gathers", "fits"}),
        ("hold", {"backends", "pools", "fits", "entrance"}),
        ("prefer_fallback", {"order"}),
        ("activate_standby", {"backends", "pools", "fits"}),
        ("limit_rate 0.5", {"entrance", "wait", "fits"}),
        ("clamp_max_tokens batch 100", {"clamps"}),
        ("refuse_below standard", {"entrance"}),
        ("no_retries", set()),
        ("no_lending", set()),
        ("batch_share 0.5", {"batch_shares"}),
        ("batch_cold", {"batch_path"}),
        ("no_optional_work", set()),
        ("shed_over_share", {"absorbs_bursts"}),
    ],
)
def test_an_action_changes_what_it_says_and_its_undo_leaves_no_trace(action: str, changed: set[str]) -> None:
    stage = Stage(
        pool("p", gathering=GATHERING),
        pool("f", PoolTag.FALLBACK),
        pool("s", PoolTag.STANDBY),
        rules=[rule(action)],
    )
    stage.beat()
    before = stage.trace()
    switched(stage, True)
    during = stage.trace()
    assert {key for key in before if before[key] != during[key]} == changed | {"effects"}
    switched(stage, False)
    assert stage.trace() == before
    assert not stage.active()


def test_a_closed_cold_path_refuses_cold_requests_but_emergencies() -> None:
    stage = Stage(rules=[rule("close_cold_path")])
    assert stage.objection(COLD) is None
    switched(stage, True)
    assert stage.objection(COLD) is Refusal.COLD_PATH_CLOSED
    assert stage.objection(HOT) is None
    assert stage.objection(COLD._replace(lane=Lane.EMERGENCY)) is None
    switched(stage, False)
    assert stage.objection(COLD) is None


def test_a_share_of_its_window_is_what_a_backend_is_sent_and_what_runs_goes_on() -> None:
    stage = Stage(rules=[rule("window_share 0.5", scope=Scope.BACKEND)])
    assert stage.fits() == {"p0": 8, "p1": 8}
    running = [stage.leased() for _ in range(16)]
    switched(stage, True, "p0", Scope.BACKEND)
    assert (stage.backend("p0").window, stage.backend("p1").window) == (4, 8)
    assert stage.backend("p0").in_flight == 8
    ticket = stage.waiting()
    on_it = [lease for lease in running if lease.backend.id == "p0"]
    stage.finish(*on_it[:4])
    assert stage.router.pump(stage.now) == []
    stage.finish(on_it[4])
    [(granted, lease)] = stage.router.pump(stage.now)
    assert granted is ticket and isinstance(lease, Lease)
    stage.finish(lease, *(one for one in running if one.open))
    assert stage.fits() == {"p0": 4, "p1": 8}
    switched(stage, False, "p0", Scope.BACKEND)
    assert stage.fits() == {"p0": 8, "p1": 8}


def test_in_serial_mode_nobody_waits_for_a_batch() -> None:
    stage = Stage(pool("p", gathering=GATHERING), rules=[rule("serial", scope=Scope.POOL)])
    router = stage.router
    ticket = stage.waiting()
    assert router.pump(stage.now) == [] and router.look_at > stage.now
    assert router.cancel(ticket)
    switched(stage, True, "p", Scope.POOL)
    stage.finish(stage.leased())
    switched(stage, False, "p", Scope.POOL)
    stage.waiting()
    assert router.pump(stage.now) == []


def test_who_waits_for_a_batch_goes_once_nothing_is_gathered_any_more() -> None:
    stage = Stage(pool("p", gathering=GATHERING), rules=[rule("serial", scope=Scope.POOL)])
    ticket = stage.waiting()
    assert stage.router.pump(stage.now) == []
    switched(stage, True, "p", Scope.POOL)
    assert [granted for granted, _ in stage.router.pump(stage.now)] == [ticket]


def test_a_backend_that_is_held_gets_nothing_new_and_what_runs_there_goes_on() -> None:
    stage = Stage(rules=[rule("hold", scope=Scope.BACKEND)])
    running = [stage.leased() for _ in range(4)]
    assert {lease.backend.id for lease in running} == {"p0", "p1"}
    switched(stage, True, "p0", Scope.BACKEND)
    assert set(stage.fits()) == {"p1"}
    assert all(lease.open for lease in running) and stage.backend("p0").in_flight == 2
    switched(stage, True, "p1", Scope.BACKEND)
    assert stage.arrive() is Refusal.NO_BACKEND
    stage.finish(*running)
    switched(stage, False, "p0", Scope.BACKEND)
    assert set(stage.fits()) == {"p0"}


def test_fallback_pools_come_first_for_newcomers_and_for_who_waits_and_only_where_they_may() -> None:
    stage = Stage(
        pool("p", window=1),
        pool("q", window=1),
        pool("f", PoolTag.FALLBACK, window=1),
        rules=[rule("prefer_fallback")],
    )
    names = PoolName("p"), PoolName("q"), PoolName("f")
    assert stage.tag().pools == names
    held = [stage.leased() for _ in range(2)]
    held.append(stage.leased(HOT._replace(pools=(PoolName("f"),))))
    ticket = stage.waiting()
    switched(stage, True)
    assert stage.tag().pools == ("f", "p", "q")
    assert ticket.line.pools == ("f", "p", "q")
    assert stage.router.tagger.pools_of(HOT._replace(pools=names[:2]), stage.tag()) == names[:2]
    switched(stage, False)
    assert ticket.line.pools == names
    stage.finish(*held)


def test_a_fallback_pool_that_is_in_trouble_itself_is_not_preferred() -> None:
    stage = Stage(pool("p"), pool("f", PoolTag.FALLBACK), rules=[rule("prefer_fallback", scope=Scope.POOL)])
    switched(stage, True, "f", Scope.POOL)
    assert stage.tag().pools == ("p", "f")
    switched(stage, True, "p", Scope.POOL)
    assert stage.tag().pools == ("f", "p")


def test_standby_pools_get_nothing_until_they_are_activated_and_nothing_new_afterwards() -> None:
    stage = Stage(pool("p", window=2), pool("s", PoolTag.STANDBY, window=2), rules=[rule("activate_standby")])
    assert stage.fits() == {"p0": 2}
    on_p = [stage.leased(), stage.leased()]
    ticket = stage.waiting()
    switched(stage, True)
    [(granted, lease)] = stage.router.pump(stage.now)
    assert granted is ticket and isinstance(lease, Lease) and lease.backend.id == "s0"
    switched(stage, False)
    assert lease.open and stage.backend("s0").in_flight == 1
    stage.waiting()
    stage.finish(lease)
    assert stage.router.pump(stage.now) == [], "the slot on standby is nobody's any more"
    stage.finish(*on_p)


def test_requests_are_let_in_at_a_share_of_what_was_served_when_the_rule_took_hold() -> None:
    stage = Stage(pool("p", window=None), rules=[rule("limit_rate 0.5")])
    stage.router.forecast.served_per_second = 10.0
    switched(stage, True)
    assert [stage.objection() for _ in range(7)] == [None] * 5 + [Refusal.RATE_LIMITED] * 2
    assert stage.router.entrance.wait_seconds(stage.now) == pytest.approx(0.2)
    assert stage.objection(HOT._replace(lane=Lane.EMERGENCY)) is None
    stage.router.forecast.served_per_second = 1.0
    stage.beat(1.0)
    assert stage.objection() is None, "the rate is that of when it took hold"
    stage.now += 100.0
    assert [stage.objection() for _ in range(6)] == [None] * 5 + [Refusal.RATE_LIMITED]
    switched(stage, False)
    assert all(stage.objection() is None for _ in range(50))


def test_each_limit_begins_with_a_burst() -> None:
    stage = Stage(pool("p", window=None), rules=[rule("limit_rate 0.5")])
    stage.router.forecast.served_per_second = 10.0
    for _ in range(2):
        stage.told(Metric.SATURATION_RATIO, 0.9)
        stage.beat(0.0)
        assert [stage.objection() for _ in range(6)] == [None] * 5 + [Refusal.RATE_LIMITED]
        stage.beat(0.0)
        assert stage.objection() is Refusal.RATE_LIMITED, "not at each look"
        stage.told(Metric.SATURATION_RATIO, 0.1)
        stage.beat(0.0)


def test_a_cold_path_that_the_configuration_closes_is_not_opened_by_a_rule() -> None:
    core = replace(Rules(), affinity=AffinityRules(paths=PathRules(cold_open=False)))
    stage = Stage(rules=[rule("close_cold_path")], core=core)
    for is_on in (True, False):
        switched(stage, is_on)
        assert stage.objection(COLD) is Refusal.COLD_PATH_CLOSED
    stage.core = Rules()
    stage.configure([])
    assert stage.objection(COLD) is None


def test_who_is_refused_for_its_lane_or_path_takes_nothing_of_the_rate() -> None:
    stage = Stage(
        pool("p", window=None), rules=[rule("limit_rate 1", "refuse_below standard", "close_cold_path")]
    )
    stage.router.forecast.served_per_second = 2.0
    switched(stage, True)
    for _ in range(9):
        assert stage.objection(HOT._replace(lane=Lane.BATCH)) is Refusal.LANE_REFUSED
        assert stage.objection(COLD) is Refusal.COLD_PATH_CLOSED
    assert [stage.objection() for _ in range(3)] == [None, None, Refusal.RATE_LIMITED]


def test_an_answer_of_a_clamped_lane_ends_at_the_tokens_and_no_other_does() -> None:
    stage = Stage(rules=[rule("clamp_max_tokens batch 100"), rule("clamp_max_tokens batch 50", name="s")])
    clamps = stage.router.clamps
    stage.told(Metric.SATURATION_RATIO, 0.9)
    stage.beat()
    assert [clamps.limit(lane, "m", "default") for lane in LANES] == [None, None, None, 50] and clamps.is_on
    stage.told(Metric.SATURATION_RATIO, 0.1)
    stage.beat()
    assert clamps.limit(Lane.BATCH, "m", "default") is None and not clamps.is_on


def learn_answers(stage: Stage, tokens: int, count: int = 200) -> None:
    intent = Intent(lane=Lane.BATCH, size=TextSize(token_ids=10))
    for _ in range(count):
        lease = stage.router.arrive("m", stage.now, intent)
        assert isinstance(lease, Lease)
        lease.verdict, lease.usage = Verdict.GOOD, (10, tokens, 0)
        stage.router.finish(lease, stage.now)


def test_a_learnt_clamp_is_the_90th_percentile_of_when_it_is_first_needed_and_no_less_however_short_answers_become() -> (
    None
):
    stage = Stage(rules=[rule("clamp_max_tokens batch p90")])
    switched(stage, True)
    limit: Callable[[], int | None] = lambda: stage.router.clamps.limit(Lane.BATCH, "m", "default")  # noqa: E731
    assert limit() is None, "of what nothing was learnt nothing is cut"
    learn_answers(stage, 500, 40)
    first = limit()
    assert first is not None and 400 <= first <= 700
    learn_answers(stage, 20, 3000)
    stage.beat()
    assert limit() == first
    assert stage.router.clamps.limit(Lane.STANDARD, "m", "default") is None
    switched(stage, False)
    assert limit() is None
    switched(stage, True)
    again = limit()
    assert again is not None and again < 100, "another hold learns anew"


def test_learnt_clamps_that_are_kept_are_bounded() -> None:
    stage = Stage(rules=[rule("clamp_max_tokens batch p90")])
    switched(stage, True)
    learn_answers(stage, 50)
    clamps = stage.router.clamps

    def ask(count: int) -> int:
        assert all(clamps.limit(Lane.BATCH, "m", str(number)) is not None for number in range(count))
        return len([key for key in kept_by(clamps) if isinstance(key, tuple) and key[:1] == ("m",)])

    assert ask(MAX_KEPT) >= MAX_KEPT
    assert ask(3 * MAX_KEPT) <= MAX_KEPT


def test_of_a_number_and_a_learnt_length_the_smaller_counts() -> None:
    stage = Stage(rules=[rule("clamp_max_tokens batch p90", "clamp_max_tokens batch 40")])
    switched(stage, True)
    assert stage.router.clamps.limit(Lane.BATCH, "m", "default") == 40
    learn_answers(stage, 10)
    limit = stage.router.clamps.limit(Lane.BATCH, "m", "default")
    assert limit is not None and 10 <= limit < 40


@pytest.mark.parametrize(("bound", "let_in"), [("standard", 3), ("interactive", 2), ("emergency", 1)])
def test_lanes_below_the_bound_are_refused(bound: str, let_in: int) -> None:
    stage = Stage(rules=[rule(f"refuse_below {bound}")])
    switched(stage, True)
    refused = [stage.objection(HOT._replace(lane=lane)) for lane in LANES]
    assert refused == [None] * let_in + [Refusal.LANE_REFUSED] * (4 - let_in)
    assert [stage.objection(COLD._replace(lane=lane)) for lane in LANES] == refused, "whatever their path"
    switched(stage, False)
    assert [stage.objection(HOT._replace(lane=lane)) for lane in LANES] == [None] * 4


def test_nobody_comes_in_through_the_batch_lane_while_it_is_refused() -> None:
    stage = engine()
    stage.router.entrance.use(Effects(refuses_below=Lane.STANDARD))
    later = Intent(tenant="a", target_seconds=TARGET, relegate=True)
    stage.run(5.0, {"a": 2 * PER_SECOND}, {"a": later})
    assert stage.refused and stage.router.counts.relegated == 0


def test_without_retries_a_failure_stays_where_it_is_and_an_emergencys_does_not() -> None:
    stage = Stage(rules=[rule("no_retries")])
    moved = stage.leased()
    assert stage.router.move(moved, Verdict.FAULT, False, True, stage.now)
    switched(stage, True)
    stays, urgent = stage.leased(), stage.leased(HOT._replace(lane=Lane.EMERGENCY))
    assert not stage.router.move(stays, Verdict.FAULT, False, True, stage.now)
    assert stage.router.move(urgent, Verdict.FAULT, False, True, stage.now)
    switched(stage, False)
    assert stage.router.move(stays, Verdict.FAULT, False, True, stage.now)
    stage.finish(moved, stays, urgent)


def test_without_lending_nobody_borrows_of_the_reserve() -> None:
    core = replace(Rules(), reserve=ReserveRules(4, 0.5, lending_seconds=10.0))
    stage = Stage(pool("p"), rules=[rule("no_lending")], core=core)
    for _ in range(20):
        stage.router.forecast.served(PoolName("p"), stage.tag(), 0.1, stage.now)
    assert stage.fits() == {"p0": 6}
    switched(stage, True)
    assert stage.fits() == {"p0": 4}
    switched(stage, False)
    assert stage.fits() == {"p0": 6}


def test_batch_requests_hold_no_more_than_their_share_and_all_others_have_the_rest() -> None:
    stage = Stage(pool("p", window=10), rules=[rule("batch_share 0.6")])
    assert stage.fits(BATCH) == {"p0": 10}
    switched(stage, True)
    assert stage.fits(BATCH) == {"p0": 6} and stage.fits() == {"p0": 10}
    held = [stage.leased(BATCH) for _ in range(6)]
    tickets = [stage.waiting(BATCH) for _ in range(2)]
    others: list[Lease] = []
    stage.now += 3600.0
    for _ in range(20):  # the batch lane starves, and its turn has come
        if len(others) == 4:
            stage.finish(others.pop())
        ticket = stage.waiting()
        [(granted, lease)] = stage.router.pump(stage.now)
        assert granted is ticket and isinstance(lease, Lease), (
            "whoever waits for the share is in nobody's way"
        )
        others.append(lease)
    stage.finish(*others)
    assert stage.router.pump(stage.now) == [], "free slots are not the batch lane's"
    stage.finish(held.pop())
    [(granted, lease)] = stage.router.pump(stage.now)
    assert granted is tickets[0] and isinstance(lease, Lease)
    held.append(lease)
    switched(stage, False)
    [(granted, lease)] = stage.router.pump(stage.now)
    assert granted is tickets[1] and isinstance(lease, Lease)
    stage.finish(lease, *held)
    assert stage.fits(BATCH) == {"p0": 10}


def test_a_share_for_batch_requests_is_that_of_its_pool_and_one_slot_at_least_and_nothing_without_windows() -> (
    None
):
    stage = Stage(
        pool("p", backends=2, window=5),
        pool("q", window=5),
        rules=[rule("batch_share 0.5", scope=Scope.POOL)],
    )
    switched(stage, True, "p", Scope.POOL)
    assert sum(stage.fits(BATCH._replace(pools=(PoolName("p"),))).values()) == 5
    assert stage.fits(BATCH._replace(pools=(PoolName("q"),))) == {"q0": 5}
    stage = Stage(pool("p", window=1), rules=[rule("batch_share 0.1")])
    switched(stage, True)
    assert stage.fits(BATCH) == {"p0": 1}
    stage = Stage(pool("p", window=None), rules=[rule("batch_share 0.1")])
    switched(stage, True)
    assert all(stage.leased(BATCH) for _ in range(20))


def test_what_batch_requests_hold_of_a_backend_that_is_out_does_not_count_until_it_is_back() -> None:
    stage = Stage(pool("p", backends=2, window=10), rules=[rule("batch_share 0.5")])
    fleet = stage.router.fleet
    switched(stage, True)
    held = [stage.leased(BATCH) for _ in range(10)]
    stage.router.cancel(stage.waiting(BATCH))
    there = stage.backend("p0")
    assert there.in_flight == 5
    fleet.hold(there, Hold.OPERATOR)
    stage.router.cancel(stage.waiting(BATCH))
    stage.finish(next(lease for lease in held if lease.backend is not there))
    held.append(stage.leased(BATCH))
    stage.finish(*(lease for lease in held if lease.backend is there))
    stage.router.cancel(stage.waiting(BATCH))
    fleet.release(there, Hold.OPERATOR)
    assert stage.fits(BATCH) == {"p0": 5}
    stage.finish(*(lease for lease in held if lease.open))
    assert sum(stage.fits(BATCH).values()) == 10


def test_where_requests_are_gathered_who_waits_for_the_batch_lanes_share_holds_up_nobody() -> None:
    gathering = GatheringRules(20, 20, 0.1, False)
    stage = Stage(pool("p", gathering=gathering, window=10), rules=[rule("batch_share 0.4")])
    switched(stage, True)
    tickets = [stage.waiting(BATCH) for _ in range(7)]
    tickets.append(stage.waiting())
    stage.now += 1.0
    granted = [ticket for ticket, lease in stage.router.pump(stage.now) if isinstance(lease, Lease)]
    assert [ticket.tag.lane for ticket in granted].count(Lane.BATCH) == 4
    assert set(granted) == {*tickets[:4], tickets[7]}
    stage.now += 3600.0
    for _ in range(20):  # the batch lane starves, and its turn has come
        ticket = stage.waiting()
        stage.now += 1.0
        [(last, lease)] = stage.router.pump(stage.now)
        assert last is ticket and isinstance(lease, Lease)
        stage.finish(lease)
    stage.waiting()
    assert stage.router.pump(stage.now) == [], "it is held back to be gathered"
    assert stage.router.look_at > stage.now


def test_batch_requests_that_count_as_cold_are_cold_whatever_they_are_and_no_others() -> None:
    stage = Stage(rules=[rule("batch_cold", "close_cold_path")])
    assert stage.leased(BATCH).tag.path is CachePath.HOT
    switched(stage, True)
    assert stage.objection(BATCH) is Refusal.COLD_PATH_CLOSED
    assert [stage.tag(HOT._replace(lane=lane)).path for lane in LANES] == [CachePath.HOT] * 3 + [
        CachePath.COLD
    ]
    switched(stage, False)
    assert stage.leased(BATCH).tag.path is CachePath.HOT


@pytest.mark.parametrize("sheds", [False, True])
def test_while_it_sheds_what_is_over_its_share_no_burst_is_absorbed_and_a_light_flow_loses_nothing(
    sheds: bool,
) -> None:
    stage = engine()
    stage.router.admission.overload.absorbs_bursts = not sheds
    intents = {name: Intent(tenant=name, target_seconds=10.0) for name in ("heavy", "light")}
    stage.run(10.0, {"heavy": 1.9 * PER_SECOND, "light": 0.1 * PER_SECOND}, intents)
    assert (stage.lost("heavy") > 0.1) is sheds
    assert stage.lost("light") == 0.0


def test_what_is_served_is_not_shed_though_no_burst_is_absorbed() -> None:
    stage = engine()
    stage.router.admission.overload.absorbs_bursts = False
    stage.run(10.0, {"a": PER_SECOND})
    assert not stage.refused
