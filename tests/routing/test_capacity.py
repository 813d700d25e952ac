"""How much a backend may hold: what the configuration, the engine and its first requests say of it."""

from __future__ import annotations

import pytest

from policies.absence import AbsenceRules
from policies.automatic_window import HIGHEST, START, AutomaticWindow
from policies.capacity_tokens import TokenRules
from policies.dialects import Dialect, EngineFlags, EngineReport
from policies.lengths import TextSize
from policies.terms import BackendId, PoolName
from policies.windows import WindowRules
from routing.backend import Backend, BackendPlan
from routing.capacity import FRESH_SECONDS, QUEUE_SECONDS, WARM_UP_SAMPLES
from routing.decision import Intent, Lease, Ticket
from routing.router import Router
from routing.rules import Rules
from tests.gateway.core_stage import at_once, ends_well, leased

B = BackendId("b")
MOVING = WindowRules(start=8, min=4, max=32)


def plan(
    adaptive: WindowRules | None = None,
    automatic: AutomaticWindow | None = None,
    tokens: TokenRules | None = None,
) -> BackendPlan:
    return BackendPlan(B, PoolName("p"), 8, adaptive, automatic, tokens)


def router_of(plan: BackendPlan) -> tuple[Router, Backend]:
    rules = Rules(absence=AbsenceRules())
    router = Router(rules)
    router.configure([plan], rules)
    backend = router.fleet.get(B)
    assert backend is not None
    return router, backend


def samples_of(backend: Backend) -> int:
    assert backend.control is not None
    return backend.control.samples


def serve(router: Router, count: int, now: float = 0.0) -> None:
    for _ in range(count):
        ends_well(router, leased(router, now), now, 0.1)


# --- warm-up ------------------------------------------------------------------------------------------------------------------


def test_the_first_requests_of_a_new_backend_are_no_samples() -> None:
    router, backend = router_of(plan(MOVING))
    serve(router, WARM_UP_SAMPLES)
    assert samples_of(backend) == 0
    serve(router, 2)
    assert samples_of(backend) == 2


@pytest.mark.parametrize("how", ["it was unreachable", "it is another engine", "its trial ended well"])
def test_the_first_requests_of_a_backend_that_came_back_are_no_samples(how: str) -> None:
    router, backend = router_of(plan(MOVING))
    serve(router, WARM_UP_SAMPLES + 1)
    known = samples_of(backend)
    if how == "it is another engine":
        router.engines.is_dialect(B, Dialect.VLLM, EngineFlags("2"))
    else:
        router.unreachable(backend, 1.0)
    if how == "it was unreachable":
        router.engines.probed(B, True, False, 2.0)
    elif how == "its trial ended well":
        serve(router, 1, 3600.0)
        assert backend.is_present()
    serve(router, WARM_UP_SAMPLES, 3600.0)
    assert samples_of(backend) == known
    serve(router, 1, 3600.0)
    assert samples_of(backend) != known or known == 1


def test_a_probe_that_finds_a_backend_well_again_and_again_begins_no_warm_up() -> None:
    router, backend = router_of(plan(MOVING))
    for _ in range(WARM_UP_SAMPLES + 2):
        router.engines.probed(B, True, False, 0.0)
        serve(router, 1)
    assert samples_of(backend) == 2


def test_slow_first_requests_do_not_shrink_a_window() -> None:
    router, backend = router_of(plan(MOVING))
    for seconds in (40.0, 30.0, 20.0):
        ends_well(router, leased(router, 0.0), 0.0, seconds)
    for step in range(200):
        ends_well(router, leased(router, step / 10), step / 10, 0.1)
    assert backend.window == 8


# --- what the engine says -----------------------------------------------------------------------------------------------------


def test_an_automatic_window_begins_at_the_start_value_until_the_engine_tells_its_size() -> None:
    router, backend = router_of(plan(automatic=AutomaticWindow()))
    assert at_once(router) == START
    router.engines.reported(B, EngineReport(max_num_seqs=200), 0.0)
    assert (backend.window, backend.adaptive) == (200, WindowRules(200, 50, 250))
    assert len(router.pump(0.0)) == 1, "the one that found the window full"


def test_an_automatic_window_stays_where_it_is_while_the_engine_says_the_same_or_nothing() -> None:
    router, backend = router_of(plan(automatic=AutomaticWindow()))
    router.engines.reported(B, EngineReport(max_num_seqs=200), 0.0)
    router.fleet.pushed_back(backend, 1.0)
    assert backend.window == 180
    for report in (EngineReport(max_num_seqs=200), EngineReport(), EngineReport(max_num_seqs=0)):
        router.engines.reported(B, report, 2.0)
        assert backend.window == 180
    router.configure([plan(automatic=AutomaticWindow())], router.rules)
    assert backend.window == 180
    router.engines.reported(B, EngineReport(max_num_seqs=100), 3.0)
    assert backend.window == 100


def test_a_window_that_is_configured_does_not_follow_the_engines_size() -> None:
    router, backend = router_of(plan(MOVING))
    router.engines.reported(B, EngineReport(max_num_seqs=200), 0.0)
    assert backend.window == 8
    router.configure([plan()], router.rules)
    assert (backend.window, backend.adaptive) == (8, None)


def test_a_backend_of_unknown_size_may_grow_to_the_highest_window() -> None:
    _, backend = router_of(plan(automatic=AutomaticWindow()))
    assert backend.adaptive is not None and backend.adaptive.max == HIGHEST


def test_tokens_have_no_limit_until_the_engine_says_what_its_kv_cache_holds() -> None:
    router, backend = router_of(plan(tokens=TokenRules()))
    before = leased(router)
    assert backend.room is None and before.room is None
    router.engines.reported(B, EngineReport(token_capacity=1000), 0.0)
    room = backend.room
    assert room is not None and room.max_tokens == 900
    router.engines.reported(B, EngineReport(), 1.0)
    assert backend.room is room and room.max_tokens == 900
    router.engines.reported(B, EngineReport(token_capacity=2000), 2.0)
    assert backend.room is room and room.max_tokens == 1800
    router.finish(before, 3.0)
    assert room.reserved == 0, "it was not counted when it came"


def test_without_rules_for_tokens_the_engines_size_limits_nothing() -> None:
    router, backend = router_of(plan())
    router.engines.reported(B, EngineReport(token_capacity=1000), 0.0)
    assert backend.room is None


def test_a_configuration_that_changes_under_running_requests_leaves_no_tokens_behind() -> None:
    router, backend = router_of(plan(tokens=TokenRules(100, 100)))
    room = backend.room
    assert room is not None
    leases: list[Lease] = [leased(router)]
    router.configure([plan()], router.rules)
    leases.append(leased(router))
    router.configure([plan(tokens=TokenRules(50))], router.rules)
    other = backend.room
    assert other is not None
    leases.append(leased(router))
    for lease in leases:
        router.finish(lease, 1.0)
    assert [(one.reserved, one.backlog) for one in (room, other)] == [(0, 0), (0, 0)]


# --- what its first bytes say -------------------------------------------------------------------------------------------------

MEASURED = plan(automatic=AutomaticWindow(), tokens=TokenRules(prefill_seconds=1.0))


def streamed(tokens: int) -> Intent:
    return Intent(size=TextSize(token_ids=tokens), streamed=True)


def measured_by(intent: Intent, usage: tuple[int, int, int] | None = None) -> float | None:
    router, backend = router_of(MEASURED)
    for second in range(30):
        lease = leased(router, second, intent)
        lease.usage = usage
        ends_well(router, lease, second, 0.5)
    assert backend.room is not None and backend.room.backlog == 0
    return backend.room.prefill_tokens_per_second


def test_a_prefill_is_measured_by_long_streamed_prompts_that_no_cache_held() -> None:
    assert measured_by(streamed(5000)) == pytest.approx(10_000)
    assert measured_by(streamed(5000), (5000, 10, 0)) == pytest.approx(10_000)
    assert measured_by(streamed(5000), (5000, 10, 4000)) is None
    assert measured_by(streamed(500)) is None
    assert measured_by(streamed(5000)._replace(streamed=False)) is None


def test_seconds_count_from_when_the_first_of_what_is_ahead_was_begun() -> None:
    """Two prompts a step apart: what the second one waited for had been computed for a quarter of a second when it came."""
    router, backend = router_of(MEASURED)
    for round in range(0, 300, 10):
        first = leased(router, round, streamed(4000))
        second = leased(router, round + 0.25, streamed(4000))
        router.produced(first, 1, round + 0.5)
        router.produced(second, 1, round + 1.0)
        ends_well(router, first, round + 3.0, 0.5)
        ends_well(router, second, round + 3.0, 0.75)
    assert backend.room is not None
    assert backend.room.prefill_tokens_per_second == pytest.approx(8000)


def test_an_answer_that_is_not_streamed_waits_for_the_prompts_of_others_but_adds_none() -> None:
    router, backend = router_of(MEASURED)
    for second in range(30):
        ends_well(router, leased(router, second, streamed(5000)), second, 0.5)
    room, plain = backend.room, streamed(5000)._replace(streamed=False)
    assert room is not None and room.max_prefill_tokens == 10_000
    assert len([leased(router, 40.0, plain) for _ in range(10)]) == 10
    assert room.backlog == 0
    leased(router, 40.0, streamed(8000))
    assert isinstance(router.arrive("", 40.0, plain), Ticket)


# --- what the engine mentions on its answers ----------------------------------------------------------------------------------


def test_a_mention_leaves_what_it_does_not_tell_as_it_was_and_a_report_does_not() -> None:
    router, backend = router_of(plan(automatic=AutomaticWindow(), tokens=TokenRules()))
    router.engines.reported(B, EngineReport(5, 7, 0.4, 200, 1000, 11, 12, 13), 0.0)
    router.fleet.mentioned(backend, EngineReport(waiting=0, kv_usage=0.6), 1.0)
    assert backend.report == EngineReport(0, 7, 0.6, 200, 1000, 11, 12, 13)
    router.fleet.mentioned(backend, EngineReport(kv_usage=0.7), 2.0)
    assert backend.report == EngineReport(0, 7, 0.7, 200, 1000, 11, 12, 13)
    assert backend.window == 200 and backend.room is not None and backend.room.max_tokens == 900
    router.engines.reported(B, EngineReport(waiting=1), 3.0)
    assert backend.report == EngineReport(waiting=1)
    assert backend.window == 200 and backend.room.max_tokens == 900


def test_a_mention_is_all_that_is_known_where_no_report_was_read() -> None:
    router, backend = router_of(plan(MOVING))
    router.fleet.mentioned(backend, EngineReport(waiting=2), 0.0)
    assert backend.report == EngineReport(waiting=2)


def test_a_mention_of_nothing_is_none() -> None:
    router, backend = router_of(plan(MOVING))
    router.fleet.mentioned(backend, EngineReport(), 0.0)
    assert backend.report is None
    assert backend.asks_load(0.0), "nothing has been told"


def test_an_engine_is_asked_once_in_a_while_whatever_becomes_of_the_answer() -> None:
    _, backend = router_of(plan(MOVING))
    times = [step / 64 for step in range(256)]
    assert len([now for now in times if backend.asks_load(now)]) == 4.0 / FRESH_SECONDS


@pytest.mark.parametrize("is_mention", [True, False])
def test_an_engine_that_has_just_told_its_load_is_not_asked(is_mention: bool) -> None:
    router, backend = router_of(plan(MOVING))
    told = EngineReport(waiting=0)
    for now in (0.0, 10.0):
        if is_mention:
            router.fleet.mentioned(backend, told, now)
        else:
            router.engines.reported(B, told, now)
        assert not backend.asks_load(now)
        assert not backend.asks_load(now + FRESH_SECONDS - 1 / 64)
        assert backend.asks_load(now + FRESH_SECONDS)


def test_sizes_alone_are_no_load_and_leave_an_engine_to_be_asked() -> None:
    router, backend = router_of(plan(MOVING))
    router.engines.reported(B, EngineReport(max_num_seqs=8, token_capacity=1000), 0.0)
    assert backend.asks_load(0.0)


@pytest.mark.parametrize("rules", [None, WindowRules(8, 8, 8)])
def test_an_engine_whose_window_cannot_move_is_not_asked(rules: WindowRules | None) -> None:
    _, backend = router_of(plan(rules, tokens=TokenRules()))
    assert not backend.asks_load(0.0)


def test_a_mention_that_comes_with_another_is_not_heard() -> None:
    router, backend = router_of(plan(MOVING))
    router.fleet.mentioned(backend, EngineReport(kv_usage=0.5), 0.0)
    router.fleet.mentioned(backend, EngineReport(kv_usage=0.95), FRESH_SECONDS - 1 / 64)
    assert backend.report == EngineReport(kv_usage=0.5)
    router.fleet.mentioned(backend, EngineReport(kv_usage=0.95), FRESH_SECONDS)
    assert backend.report == EngineReport(kv_usage=0.95)


def test_a_full_cache_is_heard_of_at_once_and_its_end_too() -> None:
    router, backend = router_of(plan(MOVING))
    held: list[bool] = []
    for now, usage in ((0.0, 0.5), (0.25, 0.95), (0.5, 0.5)):
        router.fleet.mentioned(backend, EngineReport(waiting=0, kv_usage=usage), now)
        assert backend.control is not None
        held.append(backend.control.control.kv_full_until > now)
    assert held == [False, True, False]


def test_a_queue_that_is_mentioned_often_shrinks_a_window_no_faster_than_reports_do() -> None:
    """Three reports in a row, a second apart, take half of the queue off: so many mentions take it off once in three seconds as well."""
    router, backend = router_of(plan(MOVING))
    windows: list[int | None] = []
    for step in range(24):
        router.fleet.mentioned(backend, EngineReport(waiting=2), step * FRESH_SECONDS)
        windows.append(backend.window)
    steps_to_third = round(2 * QUEUE_SECONDS / FRESH_SECONDS)
    steps_to_sixth = round(5 * QUEUE_SECONDS / FRESH_SECONDS)
    assert windows == [
        8 if step < steps_to_third else 7 if step < steps_to_sixth else 6 for step in range(24)
    ]
    pool = router.fleet.pools[PoolName("p")]
    assert pool.capacity == 6, "the pool is told"


def test_a_report_of_the_queue_counts_whatever_was_mentioned_before() -> None:
    router, backend = router_of(plan(MOVING))
    for now in (0.0, 1.0, 2.0):
        router.fleet.mentioned(backend, EngineReport(waiting=0), now - 0.5)
        router.engines.reported(B, EngineReport(waiting=2), now)
    assert backend.window == 7, "the mentions of no queue came too soon after a report to end the run"


def test_a_mention_of_an_engine_that_was_retired_is_nobodys() -> None:
    router, backend = router_of(plan(MOVING))
    router.configure([], router.rules)
    router.configure([plan(MOVING)], router.rules)
    router.fleet.mentioned(backend, EngineReport(waiting=2), 0.0)
    anew = router.fleet.get(B)
    assert anew is not None and anew is not backend and anew.report is None


def test_a_window_whose_bounds_are_one_stays_and_keeps_no_samples() -> None:
    router, backend = router_of(plan(WindowRules(start=8, min=8, max=8)))
    serve(router, 100)
    assert (backend.window, samples_of(backend)) == (8, 0)
