"""Hot and cold requests that want the same slots: neither squeezes the other out, and none is left empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.capacity_tokens import TokenRules
from policies.dialects import EngineReport
from policies.lengths import TextSize
from policies.path_split import PathRules
from policies.shedding import SheddingRules
from policies.terms import BackendId, CachePath, Lane, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease, Ticket
from routing.placement import AffinityRules
from routing.router import Router
from routing.rules import Rules

WINDOW = 10
HOT = Intent(path=CachePath.HOT)
COLD = Intent(path=CachePath.COLD)
STILL = PathRules(follow_traffic=False)


class Stage:
    """One backend; whatever waits gets a slot when one that runs ends."""

    def __init__(
        self, paths: PathRules = STILL, window: int = WINDOW, tokens: TokenRules | None = None
    ) -> None:
        rules = Rules(affinity=AffinityRules(paths=paths), shedding=SheddingRules(enabled=False))
        self.router = Router(rules)
        self.router.configure([BackendPlan(BackendId("b"), PoolName("p"), window, tokens=tokens)], rules)
        self.running: list[Lease] = []
        self.waiting: dict[int, Ticket] = {}
        self.now = 0.0

    def comes(self, intent: Intent) -> None:
        self.now += 0.01
        decision = self.router.arrive("", self.now, intent)
        if isinstance(decision, Ticket):
            self.waiting[decision.id] = decision
        else:
            assert isinstance(decision, Lease), decision
            self.running.append(decision)
        self.pump()

    def ends(self, place: int = 0) -> None:
        self.now += 0.01
        lease = self.running.pop(place)
        lease.verdict = Verdict.GOOD
        self.router.finish(lease, self.now)
        self.pump()

    def pump(self) -> None:
        for ticket, grant in self.router.pump(self.now):
            del self.waiting[ticket.id]
            assert isinstance(grant, Lease)
            self.running.append(grant)

    def held(self) -> Counter[CachePath]:
        return Counter(lease.tag.path for lease in self.running)


def contended(paths: PathRules, kinds: Sequence[Intent], steps: int = 100) -> Counter[CachePath]:
    """What runs after many steps in which each kind always waits; they come in this proportion."""
    stage = Stage(paths)
    wanted = {intent.path for intent in kinds}
    for step in range(steps):
        while len({ticket.tag.path for ticket in stage.waiting.values()}) < len(wanted):
            for intent in kinds:
                stage.comes(intent)
        stage.ends(step % WINDOW)
    assert len(stage.running) == WINDOW
    return stage.held()


def test_where_both_wait_hot_requests_hold_seven_slots_of_ten_and_cold_ones_three() -> None:
    assert contended(STILL, [HOT, COLD]) == {CachePath.HOT: 7, CachePath.COLD: 3}
    assert contended(STILL, [COLD, HOT, COLD, COLD]) == {CachePath.HOT: 7, CachePath.COLD: 3}


@pytest.mark.parametrize(("hot", "cold"), [(0.5, 0.5), (0.9, 0.1), (0.2, 0.8)])
def test_the_shares_are_those_of_the_configuration(hot: float, cold: float) -> None:
    rules = PathRules(hot_share=hot, cold_share=cold, follow_traffic=False)
    assert contended(rules, [HOT, COLD])[CachePath.HOT] == round(hot * WINDOW)


def test_either_path_takes_all_that_the_other_leaves() -> None:
    assert contended(STILL, [COLD]) == {CachePath.COLD: WINDOW}
    assert contended(STILL, [HOT]) == {CachePath.HOT: WINDOW}


def test_the_shares_move_with_the_traffic_where_they_may() -> None:
    stage = Stage(PathRules())
    for path, at_last in ((CachePath.COLD, (0.5, 0.5)), (CachePath.HOT, (0.9, 0.1))):
        for _ in range(2000):
            stage.router.placement.paths.arrived(path, 100.0)
        assert stage.router.placement.paths.shares() == pytest.approx(at_last)
    for _ in range(30):
        stage.comes(HOT)
        stage.comes(COLD)
    for step in range(20):
        stage.ends(step % WINDOW)
    assert stage.held()[CachePath.HOT] >= 8


def test_a_hot_request_that_comes_to_a_queue_of_cold_ones_has_the_next_slot() -> None:
    stage = Stage()
    for _ in range(WINDOW + 3):
        stage.comes(COLD)
    stage.comes(HOT)
    stage.ends()
    assert stage.held()[CachePath.HOT] == 1


def test_the_split_holds_within_a_lane_and_turns_no_lanes_round() -> None:
    stage = Stage()
    for _ in range(WINDOW):
        stage.comes(COLD)
    stage.comes(COLD._replace(lane=Lane.INTERACTIVE))
    stage.comes(HOT._replace(lane=Lane.BATCH))
    stage.ends()
    assert stage.running[-1].tag.lane is Lane.INTERACTIVE


def test_an_emergency_gives_way_to_nobody() -> None:
    stage = Stage()
    for _ in range(WINDOW):
        stage.comes(COLD)
    stage.comes(HOT)
    stage.comes(COLD._replace(lane=Lane.EMERGENCY))
    stage.ends()
    assert stage.running[-1].tag.lane is Lane.EMERGENCY


def test_requests_with_targets_are_split_as_well_while_they_have_time() -> None:
    cold, hot = COLD._replace(target_seconds=600.0), HOT._replace(target_seconds=600.0)
    assert contended(STILL, [hot, cold]) == {CachePath.HOT: 7, CachePath.COLD: 3}
    assert contended(STILL, [cold, hot, cold, cold]) == {CachePath.HOT: 7, CachePath.COLD: 3}


@pytest.mark.parametrize(("seconds", "goes_first"), [(0.35, CachePath.HOT), (0.65, CachePath.COLD)])
def test_a_request_whose_time_runs_out_keeps_its_turn(seconds: float, goes_first: CachePath) -> None:
    stage = Stage()
    for _ in range(WINDOW):
        stage.comes(COLD)
    stage.comes(COLD._replace(target_seconds=1.0))
    stage.comes(HOT._replace(target_seconds=2.0))
    stage.now += seconds
    stage.ends()
    assert stage.running[-1].tag.path is goes_first


def test_who_comes_while_the_other_path_waits_overtakes_nobody() -> None:
    stage = Stage(window=1)
    stage.comes(COLD)
    stage.comes(HOT._replace(target_seconds=60.0))
    lease = stage.running.pop()
    lease.verdict = Verdict.GOOD
    stage.router.finish(lease, stage.now)  # and the pump has yet to come
    assert isinstance(stage.router.arrive("", stage.now, COLD._replace(target_seconds=60.0)), Ticket)


@given(st.lists(st.sampled_from(["hot", "cold", "ends"]), max_size=120))
def test_no_slot_is_free_while_somebody_waits(events: list[str]) -> None:
    stage = Stage(window=3)
    for event in events:
        if event == "ends":
            if stage.running:
                stage.ends(len(stage.running) // 2)
        else:
            stage.comes(HOT if event == "hot" else COLD)
        assert len(stage.running) == 3 or not stage.waiting
        [pool] = stage.router.fleet.pools.values()
        assert pool.in_flight_hot == stage.held()[CachePath.HOT]
        assert pool.in_flight == len(stage.running)
    while stage.running:
        stage.ends()
    assert not stage.waiting


def test_what_a_backend_that_is_away_holds_does_not_count() -> None:
    stage = Stage()
    stage.comes(HOT)
    [backend], [pool] = stage.router.fleet, stage.router.fleet.pools.values()
    stage.router.unreachable(backend, stage.now)
    assert (pool.in_flight_hot, backend.in_flight_hot) == (0, 1)
    stage.router.engines.probed(BackendId("b"), True, False, stage.now)
    assert pool.in_flight_hot == 1
    stage.ends()
    assert (pool.in_flight_hot, backend.in_flight_hot) == (0, 0)


def test_a_closed_cold_path_refuses_cold_requests_but_emergencies() -> None:
    stage = Stage(PathRules(cold_open=False))
    assert stage.router.arrive("", 0.0, COLD) is Refusal.COLD_PATH_CLOSED
    assert stage.router.arrive("", 0.0, Intent()) is Refusal.COLD_PATH_CLOSED
    stage.comes(HOT)
    stage.comes(COLD._replace(lane=Lane.EMERGENCY))
    assert len(stage.running) == 2


def test_tokens_count_where_they_are_what_runs_out() -> None:
    """Few cold requests of long prompts hold most of the KV cache: they give way although they hold few slots."""
    paths = PathRules(hot_share=0.9, cold_share=0.3, follow_traffic=False)
    stage = Stage(paths, tokens=TokenRules(max_tokens=10_000))
    long = COLD._replace(size=TextSize(token_ids=2_000), max_tokens=1)
    short = HOT._replace(size=TextSize(token_ids=100), max_tokens=1)
    for _ in range(2):
        stage.comes(long)
    for _ in range(WINDOW - 2):
        stage.comes(short)
    [pool] = stage.router.fleet.pools.values()
    assert (pool.reserved, pool.reserved_hot) == (2 * 2001 + 8 * 101, 8 * 101)
    stage.comes(long)
    stage.comes(short)
    stage.ends(WINDOW - 1)
    assert stage.held()[CachePath.HOT] == WINDOW - 2, "cold holds 40 % of the tokens and 20 % of the slots"
    while stage.running:
        stage.ends()
    assert (pool.reserved, pool.reserved_hot) == (0, 0)


def test_the_pools_tokens_follow_what_its_engines_say_of_their_size() -> None:
    stage = Stage(tokens=TokenRules(by_engine=True))
    [pool] = stage.router.fleet.pools.values()
    stage.router.engines.reported(BackendId("b"), EngineReport(token_capacity=1000), 0.0)
    assert pool.max_tokens == pytest.approx(900)
    stage.router.engines.reported(BackendId("b"), EngineReport(token_capacity=2000), 1.0)
    assert pool.max_tokens == pytest.approx(1800)
