"""From the settings of pools and placement to where the decision core sends a request, how many, and in which company."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from gateway.settings import (
    BackendSettings,
    BatchingSettings,
    PlacementSettings,
    PoolSettings,
    PromptTokensSettings,
    ServerSettings,
    Settings,
    WindowSettings,
)
from policies.dialects import Dialect, EngineReport
from policies.lengths import TextSize
from policies.pool_choice import PoolRole
from policies.terms import Lane, PoolName, Refusal, Verdict
from routing.decision import Intent, Lease, Ticket
from routing.router import Router
from tests.backend import Backend, Framing, Gate, Request, Script, json_script, sse_script
from tests.emulator.running import until
from tests.gateway.core_stage import at_once, ends_well, learn_service, leased, queued, router_of
from tests.running import running_with
from tests.script import JSON, SSE

DEFAULT = PlacementSettings()


def pool(name: str, *, window: int | None = None, backends: int = 1, **fields: Any) -> PoolSettings:
    return PoolSettings(
        name=name,
        window=None if window is None else WindowSettings(max=window),
        backends=tuple(BackendSettings(url=f"http://{name}{number}") for number in range(backends)),
        **fields,
    )


def core(*pools: PoolSettings, placement: PlacementSettings = DEFAULT) -> Router:
    return router_of(Settings(pools=pools, placement=placement))


def to(name: str) -> Intent:
    return Intent(pools=(PoolName(name),))


# --- which pool ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("takes", "places"),
    [
        (PromptTokensSettings(), "aaa"),
        (PromptTokensSettings(min=600), "baa"),
        (PromptTokensSettings(min=601), "bba"),
        (PromptTokensSettings(max=600), "aab"),
        (PromptTokensSettings(max=599), "abb"),
        (PromptTokensSettings(min=600, max=600), "bab"),
    ],
)
def test_prompt_tokens_say_which_prompts_a_pool_takes(takes: PromptTokensSettings, places: str) -> None:
    router = core(pool("a", prompt_tokens=takes), pool("b"))
    sizes = [TextSize(token_ids=tokens) for tokens in (100, 600, 9000)]
    found = [leased(router, 0.0, Intent(size=size)).backend.pool for size in sizes]
    assert "".join(found) == places


def test_a_prompt_that_no_pool_takes_is_refused() -> None:
    long = Intent(size=TextSize(token_ids=101))
    assert (
        core(pool("a", prompt_tokens=PromptTokensSettings(max=100))).arrive("", 0.0, long) is Refusal.NO_POOL
    )
    leased(core(pool("a", prompt_tokens=PromptTokensSettings(max=101))), 0.0, long)


@pytest.mark.parametrize("low_latency", ["a", "b"])
def test_interactive_requests_go_to_the_pool_of_the_role_low_latency_and_the_others_elsewhere(
    low_latency: str,
) -> None:
    pools = [
        pool(name, role=PoolRole.LOW_LATENCY if name == low_latency else PoolRole.HIGH_BATCH) for name in "ab"
    ]
    router = core(*pools)
    assert leased(router, 0.0, Intent(lane=Lane.INTERACTIVE)).backend.pool == low_latency
    assert leased(router).backend.pool != low_latency


@pytest.mark.parametrize("spill", [True, False])
def test_a_request_leaves_a_full_pool_only_where_spill_is_on(spill: bool) -> None:
    router = core(pool("home", window=1), pool("away", window=4), placement=PlacementSettings(spill=spill))
    assert leased(router).backend.pool == "home"
    if spill:
        assert leased(router).backend.pool == "away"
    else:
        queued(router)
        assert router.pump(0.0) == []


@pytest.mark.parametrize(("ratio", "place"), [(0.3, "home"), (0.5, "away")])
def test_spill_ratio_is_the_share_of_the_preferred_pools_time_within_which_another_one_is_taken(
    ratio: float, place: str
) -> None:
    router = core(pool("home"), pool("away"), placement=PlacementSettings(spill_ratio=ratio))
    learn_service(router, 1.0, to("home"))
    learn_service(router, 0.4, to("away"))
    assert leased(router).backend.pool == place


@pytest.mark.parametrize(("seconds", "place"), [(4, "home"), (6, "away")])
def test_hysteresis_seconds_are_how_long_a_flow_that_spilled_stays(seconds: float, place: str) -> None:
    router = core(
        pool("home", window=2),
        pool("away", window=8),
        placement=PlacementSettings(hysteresis_seconds=seconds),
    )
    at_home, _, spilled = (leased(router) for _ in range(3))
    assert (at_home.backend.pool, spilled.backend.pool) == ("home", "away")
    router.finish(at_home, 1.0)
    assert leased(router, 5.0).backend.pool == place


# --- how many -----------------------------------------------------------------------------------------------------------------


def adaptive(window: WindowSettings) -> Router:
    return core(PoolSettings(name="p", window=window, backends=(BackendSettings(url="http://b"),)))


@pytest.mark.parametrize(
    ("window", "begins_at"),
    [
        (WindowSettings(max=10), 10),
        (WindowSettings(max=10, min=2), 6),
        (WindowSettings(max=10, min=2, start=3), 3),
        (WindowSettings(max=10, min=2, start=9), 9),
    ],
)
def test_a_window_that_moves_begins_at_start_or_in_the_middle_and_any_other_is_max(
    window: WindowSettings, begins_at: int
) -> None:
    assert at_once(adaptive(window)) == begins_at


@pytest.mark.parametrize(
    ("window", "ends_at"),
    [
        (WindowSettings(max=10, min=2), 2),
        (WindowSettings(max=10, min=4), 4),
        (WindowSettings(max=10), 10),
    ],
)
def test_min_is_how_far_a_window_moves_down_and_without_it_it_does_not_move(
    window: WindowSettings, ends_at: int
) -> None:
    router = adaptive(window)
    for second in range(0, 600, 10):
        lease = leased(router, second)
        lease.verdict = Verdict.BACKPRESSURE
        router.finish(lease, second)
    assert at_once(router) == ends_at


@pytest.mark.parametrize("told", [None, 200])
def test_without_max_a_window_is_automatic(told: int | None) -> None:
    router = adaptive(WindowSettings())
    [backend] = router.fleet
    router.engines.reported(backend.id, EngineReport(max_num_seqs=told), 0.0)
    assert at_once(router) == (64 if told is None else told)


@pytest.mark.parametrize(
    ("window", "begins_at", "least"),
    [
        (WindowSettings(min=100), 200, 100),
        (WindowSettings(start=70), 70, 50),
        (WindowSettings(min=3, start=5), 5, 3),
    ],
)
def test_min_and_start_hold_in_a_window_that_is_otherwise_automatic(
    window: WindowSettings, begins_at: int, least: int
) -> None:
    router = adaptive(window)
    [backend] = router.fleet
    router.engines.reported(backend.id, EngineReport(max_num_seqs=200), 0.0)
    assert backend.window == begins_at
    for second in range(0, 600, 10):
        router.fleet.pushed_back(backend, float(second))
    assert backend.window == least


def of(tokens: int) -> Intent:
    return Intent(size=TextSize(token_ids=tokens), max_tokens=100)


@pytest.mark.parametrize(
    ("window", "told", "count"),
    [
        (WindowSettings(max=20, max_tokens=1000), None, 5),
        (WindowSettings(max=20, max_tokens=2000), None, 10),
        (WindowSettings(max=20, max_tokens=1000), 10_000, 5),
        (WindowSettings(max=20), 1000, 20),
        (WindowSettings(), 1000, 4),
        (WindowSettings(), None, 64),
        (WindowSettings(max_tokens=2000), 1000, 10),
    ],
)
def test_max_tokens_bound_what_runs_on_a_backend_and_in_an_automatic_window_what_its_engine_says(
    window: WindowSettings, told: int | None, count: int
) -> None:
    router = adaptive(window)
    [backend] = router.fleet
    router.engines.reported(backend.id, EngineReport(token_capacity=told), 0.0)
    assert at_once(router, of(100)) == count


@pytest.mark.parametrize(("limit", "count"), [(250, 2), (500, 5), (None, 20)])
def test_max_prefill_tokens_bound_the_prompts_whose_answer_has_not_begun(
    limit: int | None, count: int
) -> None:
    assert at_once(adaptive(WindowSettings(max=20, max_prefill_tokens=limit)), of(100)) == count


@pytest.mark.parametrize(
    ("window", "count"),
    [
        (WindowSettings(), 5),
        (WindowSettings(prefill_seconds=2), 10),
        (WindowSettings(prefill_seconds=2, max_prefill_tokens=4000), 2),
        (WindowSettings(prefill_seconds=2, max=20), 20),
        (WindowSettings(prefill_seconds=2, max=20, min=2, start=20), 20),
    ],
)
def test_prefill_seconds_of_what_an_engine_prefills_are_sent_to_it_in_an_automatic_window(
    window: WindowSettings, count: int
) -> None:
    router, prompt = adaptive(window), of(2000)._replace(streamed=True)
    for second in range(30):
        ends_well(router, leased(router, second, prompt), second, 0.2)
    assert at_once(router, prompt) == count


def test_a_pool_without_a_window_has_no_limits_whatever_its_engine_says() -> None:
    router = core(pool("p"))
    [backend] = router.fleet
    router.engines.reported(backend.id, EngineReport(max_num_seqs=2, token_capacity=300), 0.0)
    assert at_once(router, of(100)) == 1000


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_prompt_that_waits_for_anothers_prefill_is_sent_when_that_ones_answer_begins(
    streamed: bool,
) -> None:
    """Of one that is not streamed that is its end."""
    begin, end = Gate(), Gate()

    def script(request: Request) -> Script:
        first, last = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', b"data: [DONE]\n\n"
        if json.loads(request.body)["n"] == 2:
            return json_script({})
        chunks: list[bytes | Gate] = [begin, first, end, last] if streamed else [begin, end, b"{}"]
        return Script(headers=[SSE if streamed else JSON], chunks=chunks, framing=Framing.CHUNKED)

    def chat(number: int) -> dict[str, Any]:
        text = {"role": "user", "content": "word " * 100}
        return {"model": "m", "n": number, "messages": [text], "stream": streamed and number == 1}

    async with Backend(script) as engine:
        window = WindowSettings(max=8, max_prefill_tokens=150)
        one = PoolSettings(name="p", window=window, backends=(BackendSettings(url=engine.url),))
        async with running_with(Settings(pools=(one,), server=ServerSettings(port=0))) as gateway:
            async with await gateway.begin(chat(1)):
                await engine.until(lambda: len(engine.exchanges) == 1)
                second = await gateway.begin(chat(2))
                await until(lambda: gateway.gateway.router.waiting == 1)
                begin.set()
                if not streamed:
                    end.set()
                await engine.until(lambda: len(engine.exchanges) == 2)
                end.set()
                second.close()
            await until(gateway.is_quiet)
            [backend] = gateway.gateway.router.fleet
            assert backend.room is not None
            assert (backend.room.reserved, backend.room.backlog) == (0, 0)


async def test_streamed_answers_measure_how_fast_their_engine_prefills() -> None:
    event = b'{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}'
    async with Backend(lambda _: sse_script(event, b"[DONE]")) as engine:
        one = PoolSettings(name="p", window=WindowSettings(), backends=(BackendSettings(url=engine.url),))
        async with running_with(Settings(pools=(one,), server=ServerSettings(port=0))) as gateway:
            [backend] = gateway.gateway.router.fleet
            assert backend.room is not None
            for streamed, is_known in ((False, False), (True, True)):
                chat = {
                    "model": "m",
                    "messages": [{"role": "user", "content": "word " * 3000}],
                    "stream": streamed,
                }
                for _ in range(30):
                    assert (await gateway.post(chat)).status == 200
                await until(gateway.is_quiet)
                assert (backend.room.state()["prefill_tokens_per_second"] is not None) is is_known
            assert backend.room.backlog == 0


# --- batches ------------------------------------------------------------------------------------------------------------------


def waiting_for_a_batch(batching: BatchingSettings | None, arrivals: int, backends: int = 1) -> Router:
    router = core(pool("p", window=64, backends=backends, batching=batching))
    for _ in range(arrivals):
        queued(router)
    return router


def places(grants: Iterable[tuple[Ticket, Lease | Refusal]]) -> list[str]:
    return [grant.backend.id for _, grant in grants if isinstance(grant, Lease)]


def test_without_batching_nothing_is_gathered() -> None:
    leased(core(pool("p", window=64)))
    assert waiting_for_a_batch(BatchingSettings(dynamic_scaling=False), 1).pump(0.0) == []


@pytest.mark.parametrize("least", [2, 5])
def test_min_of_a_batch_is_how_many_are_waited_for(least: int) -> None:
    batching = BatchingSettings(min=least, dynamic_scaling=False)
    assert waiting_for_a_batch(batching, least - 1).pump(0.0) == []
    assert len(waiting_for_a_batch(batching, least).pump(0.0)) == least


@pytest.mark.parametrize("most", [3, 6])
def test_max_of_a_batch_is_how_many_go_to_one_backend_together(most: int) -> None:
    router = waiting_for_a_batch(BatchingSettings(min=2, max=most), 6, backends=2)
    found = places(router.pump(0.0))
    assert len(found) == 6
    assert [len(set(found[:3])), len(set(found[3:])), len(set(found))] == [1, 1, 6 // most]


@pytest.mark.parametrize("gather_ms", [50, 200])
def test_gather_ms_are_the_longest_wait_for_a_batch(gather_ms: float) -> None:
    router = waiting_for_a_batch(BatchingSettings(gather_ms=gather_ms, dynamic_scaling=False), 1)
    assert router.pump(0.0) == []
    assert router.look_at == gather_ms / 1000
    assert router.pump(0.9 * gather_ms / 1000) == []
    assert len(router.pump(gather_ms / 1000)) == 1


@pytest.mark.parametrize("dynamic", [True, False])
def test_with_dynamic_scaling_nobody_waits_for_more_than_are_to_be_expected(dynamic: bool) -> None:
    router = waiting_for_a_batch(BatchingSettings(dynamic_scaling=dynamic), 1)
    assert len(router.pump(0.0)) == int(dynamic)


# --- what the engine is told --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "said"), [(True, [1, 2, 3]), (False, [None, None, None])])
async def test_engine_priority_writes_the_lane_into_the_body(wanted: bool, said: list[int | None]) -> None:
    async with Backend() as engine:
        one = PoolSettings(name="p", engine_priority=wanted, backends=(BackendSettings(url=engine.url),))
        async with running_with(Settings(pools=(one,), server=ServerSettings(port=0))) as gateway:
            [backend] = gateway.gateway.router.fleet
            await until(lambda: backend.dialect is Dialect.VLLM)
            for lane in (b"interactive", b"standard", b"batch"):
                answer = await gateway.post({"model": "m"}, headers=[(b"x-headrace-lane", lane)])
                assert answer.status == 200
        bodies = [json.loads(exchange.request.body) for exchange in engine.exchanges]
        assert [body.get("priority") for body in bodies] == said
