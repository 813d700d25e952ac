"""What the page shows of backends and of their engines."""

from __future__ import annotations

from policies.automatic_window import AutomaticWindow
from policies.capacity_tokens import TokenRules
from policies.dialects import EngineReport
from policies.lengths import TextSize
from policies.terms import BackendId, PoolName, Verdict
from policies.windows import WindowRules
from routing.backend import BackendPlan
from routing.decision import Intent, Lease, Ticket
from tests.gateway.metrics_stage import Stage

SIZE = TextSize(letters=1000.0, spaces=200.0, messages=1)


async def test_a_backend_shows_whether_it_is_used_and_how_much() -> None:
    stage = Stage()
    leases = [stage.router.arrive("", 0.0) for _ in range(3)]
    assert all(isinstance(lease, Lease) for lease in leases)
    [a, b] = stage.router.fleet
    stage.router.unreachable(b, 0.0)
    assert isinstance(stage.router.arrive("", 0.0), Ticket)
    assert stage.value("backend_up", backend="a", pool="p") == 1
    assert stage.value("backend_up", backend="b", pool="q") == 0
    loads = [stage.value("backend_in_flight", backend=one.id, pool=one.pool) for one in (a, b)]
    assert loads == [a.in_flight, b.in_flight] == [1, 2]
    assert stage.value("upstream_connections", backend="a", state="idle") == 0
    assert ("headrace_upstream_connections_opened_total", frozenset({("backend", "b")})) in stage.samples()


async def test_a_window_is_shown_as_it_stands_and_not_where_there_is_none() -> None:
    rules = WindowRules(start=10, min=2, max=20)
    stage = Stage(
        [BackendPlan(BackendId("a"), PoolName("p"), 10, rules), BackendPlan(BackendId("b"), PoolName("p"))]
    )
    assert stage.series("backend_window", "backend") == {"a": 10}
    [a, _] = stage.router.fleet
    lease = stage.runs()
    while lease.backend is not a:
        lease = stage.runs()
    lease.verdict = Verdict.BACKPRESSURE
    stage.router.finish(lease, 100.0)
    assert stage.series("backend_window", "backend") == {"a": 9}


async def test_an_absence_is_counted_when_it_begins() -> None:
    stage = Stage()
    [a, _] = stage.router.fleet
    for now in (0.0, 0.1, 5.0):
        stage.router.unreachable(a, now)
    assert stage.series("backend_absences_total", "backend") == {"a": 1, "b": 0}
    stage.router.engines.probed(a.id, True, False, 6.0)
    stage.router.engines.probed(a.id, False, True, 7.0)
    assert stage.series("backend_absences_total", "backend") == {"a": 2, "b": 0}


async def test_an_engine_shows_what_it_tells_and_nothing_else() -> None:
    stage = Stage()
    [a, b] = stage.router.fleet
    assert not stage.series("engine_requests_running", "backend")
    stage.router.engines.reported(a.id, EngineReport(waiting=3, running=7, kv_usage=0.5), 0.0)
    stage.router.engines.reported(b.id, EngineReport(running=2), 0.0)
    assert stage.series("engine_requests_running", "backend") == {"a": 7, "b": 2}
    assert stage.series("engine_requests_waiting", "backend") == {"a": 3}
    assert stage.series("engine_kv_usage_ratio", "backend") == {"a": 0.5}
    stage.router.unreachable(a, 1.0)
    assert stage.series("engine_requests_running", "backend") == {"b": 2}, "what it said is not what is"


async def test_nothing_is_shown_of_tokens_where_they_have_no_limit() -> None:
    stage = Stage()
    stage.runs()
    for name in ("backend_reserved_tokens", "backend_prefill_tokens", "backend_max_tokens"):
        assert not stage.series(name, "backend")


async def test_the_tokens_that_requests_hold_are_shown_beside_their_limit() -> None:
    plans = [
        BackendPlan(BackendId("a"), PoolName("p"), 4, tokens=TokenRules(5000, 3000)),
        BackendPlan(BackendId("b"), PoolName("q"), 4, tokens=TokenRules(None, 3000)),
    ]
    stage = Stage(plans)
    leases = [stage.runs(Intent(size=SIZE, pools=(plan.pool,))) for plan in plans]
    prompts = {lease.backend.id: int(lease.tag.prompt_tokens) for lease in leases}
    reserved = {
        lease.backend.id: int(lease.tag.prompt_tokens) + int(lease.tag.output_tokens_p90) for lease in leases
    }
    assert prompts.keys() == {"a", "b"} and min(prompts.values()) > 0
    assert stage.series("backend_prefill_tokens", "backend") == prompts
    assert stage.series("backend_reserved_tokens", "backend") == reserved
    assert stage.series("backend_max_tokens", "backend") == {"a": 5000}
    assert stage.series("backend_max_prefill_tokens", "backend") == {"a": 3000, "b": 3000}
    assert not stage.series("backend_prefill_tokens_per_second", "backend")
    for lease in leases:
        stage.router.finish(lease, 0.0)
    assert stage.series("backend_reserved_tokens", "backend") == {"a": 0, "b": 0}


async def test_a_measured_prefill_is_shown_with_the_limit_that_follows_when_it_is_known() -> None:
    rules = TokenRules(prefill_seconds=0.5)
    stage = Stage([BackendPlan(BackendId("a"), PoolName("p"), automatic=AutomaticWindow(), tokens=rules)])
    names = ("backend_prefill_tokens_per_second", "backend_max_prefill_tokens")
    assert [stage.series(name, "backend") for name in names] == [{}, {}]
    for second in range(30):
        lease = stage.runs(Intent(size=TextSize(token_ids=5000), streamed=True))
        lease.verdict, lease.service_seconds = Verdict.GOOD, 0.5
        stage.router.finish(lease, float(second))
    assert [stage.series(name, "backend") for name in names] == [{"a": 10_000}, {"a": 5_000}]
    [backend] = stage.router.fleet
    assert backend.room is not None
    state = backend.room.state()
    assert (state["prefill_tokens_per_second"], state["max_prefill_tokens"]) == (10_000, 5_000)
