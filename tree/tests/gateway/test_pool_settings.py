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
from policies.dialects import Dialect
from policies.lengths import TextSize
from policies.pool_choice import PoolRole
from policies.terms import Lane, PoolName, Refusal, Verdict
from routing.decision import Intent, Lease, Ticket
from routing.router import Router
from tests.backend import Backend
from tests.emulator.running import until
from tests.gateway.core_stage import at_once, learn_service, leased, queued, router_of
from tests.running import running_with

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
