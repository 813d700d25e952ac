"""From `Settings` to where requests are sent for their cache's sake, and which of them are hot: `affinity` and `paths`."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.affinity_settings import AffinitySettings, PathSettings
from gateway.paths import Kind
from gateway.settings import BackendSettings, PoolSettings, Settings, WindowSettings
from gateway.tagging import Tagging
from policies.terms import CachePath, Refusal
from routing.decision import Intent, Lease
from routing.router import Router
from tests.gateway.core_stage import ends_well, leased, queued, router_of
from tests.routing.prompts import BLOCK_CHARS, of


def core(backends: int = 4, window: int | None = None, **sections: Any) -> Router:
    pool = PoolSettings(
        name="p",
        window=None if window is None else WindowSettings(max=window),
        backends=tuple(BackendSettings(url=f"http://b{number}") for number in range(backends)),
    )
    return router_of(Settings(pools=(pool,), **sections))


def depth_after(router: Router, seconds: float, intent: Intent, first: Intent | None = None) -> int:
    """How much of a prompt is known so long after it was sent last."""
    ends_well(router, leased(router, 0.0, first or intent), 0.0)
    lease = leased(router, seconds, intent)
    ends_well(router, lease, seconds)
    return lease.known_depth


@pytest.mark.parametrize("enabled", [True, False])
def test_enabled_looks_into_prompts_and_sends_equal_beginnings_to_one_backend(enabled: bool) -> None:
    section = AffinitySettings(enabled=enabled)
    assert depth_after(core(affinity=section), 1.0, of("system")) == (BLOCK_CHARS if enabled else 0)
    assert has_key(affinity=section) is enabled


def has_key(backends: int = 2, window: int | None = None, **sections: Any) -> bool:
    """Whether a prompt is looked into."""
    pool = PoolSettings(
        name="p",
        window=None if window is None else WindowSettings(max=window),
        backends=tuple(BackendSettings(url=f"http://b{number}") for number in range(backends)),
    )
    tagging = Tagging(Settings(pools=(pool,), **sections))
    body = {"messages": [{"role": "user", "content": "x" * 500}]}
    intent = tagging.intent(tagging.client(()), Kind.CHAT, "/v1/chat/completions", "", body)
    return intent.key is not None


def test_behind_one_backend_without_a_window_no_prompt_is_looked_into() -> None:
    assert not has_key(backends=1)
    assert has_key(backends=1, window=4)
    assert has_key(backends=2)


@pytest.mark.parametrize("most", [64, 1024])
def test_max_prefixes_is_how_many_are_remembered(most: int) -> None:
    router = core(affinity=AffinitySettings(max_prefixes=most))
    for number in range(4000):
        ends_well(router, leased(router, 0.0, of(f"{number}")), 0.0)
    table = router.placement.table
    assert table.hot.capacity + table.cold.capacity == most
    assert most / 4 < len(table.hot) + table.cold.used <= most


@pytest.mark.parametrize(("bound", "most"), [(1.0, 14), (2.0, 21)])
def test_load_bound_times_its_share_is_what_a_backend_gets_for_its_cache(bound: float, most: int) -> None:
    router = core(affinity=AffinitySettings(load_bound=bound))
    leases = [leased(router, 0.0, of("system")) for _ in range(40)]
    held = [lease.backend.in_flight for lease in leases]
    assert most - 2 <= max(held) <= most


def known_for(router: Router, gap_seconds: float, after_seconds: float) -> bool:
    """Whether a hot prefix is still known, where sessions have such gaps."""
    for turn in range(200):
        ends_well(router, leased(router, turn * gap_seconds, of("a", session="s")), turn * gap_seconds)
    now = 200 * gap_seconds
    ends_well(router, leased(router, now, of("a", session="s")), now)
    key = of("a").key
    assert key is not None
    table, first = router.placement.table, key.prefix.hashes[0]
    assert table.is_hot(first, now)
    return bool(table.homes(first, now + after_seconds))


@pytest.mark.parametrize("seconds", [30.0, 60.0])
def test_min_ttl_seconds_is_how_long_a_prefix_is_remembered_at_least(seconds: float) -> None:
    section = AffinitySettings(min_ttl_seconds=seconds)
    assert known_for(core(affinity=section), 1.0, seconds - 1)
    assert not known_for(core(affinity=section), 1.0, seconds + 1)


@pytest.mark.parametrize("seconds", [100.0, 200.0])
def test_max_ttl_seconds_is_how_long_at_most(seconds: float) -> None:
    sections: dict[str, Any] = {
        "affinity": AffinitySettings(max_ttl_seconds=seconds),
        "paths": PathSettings(window_seconds=80_000),
    }
    assert known_for(core(**sections), 300.0, seconds - 1)
    assert not known_for(core(**sections), 300.0, seconds + 1)


def test_between_them_it_is_twice_the_mean_gap_of_sessions() -> None:
    assert known_for(core(paths=PathSettings(window_seconds=80_000)), 60.0, 119.0)
    assert not known_for(core(paths=PathSettings(window_seconds=80_000)), 60.0, 121.0)


@pytest.mark.parametrize("hits", [2, 5])
def test_reuse_cache_min_hits_make_a_prefix_hot(hits: int) -> None:
    router = core(paths=PathSettings(reuse_cache_min_hits=hits))
    paths = [leased(router, 0.0, of("system")).tag.path for _ in range(hits)]
    assert paths == [CachePath.COLD] * (hits - 1) + [CachePath.HOT]


@pytest.mark.parametrize(("window", "path"), [(10.0, CachePath.COLD), (1000.0, CachePath.HOT)])
def test_window_seconds_is_how_long_a_hit_counts(window: float, path: CachePath) -> None:
    router = core(paths=PathSettings(window_seconds=window))
    leases = [leased(router, 20.0 * number, of("system")) for number in range(8)]
    assert leases[-1].tag.path is path


def hot_slots(**paths: Any) -> int:
    """Of ten slots, while both paths wait."""
    router = core(1, window=10, paths=PathSettings(**paths))
    running = [leased(router, 0.0, Intent(path=CachePath.COLD)) for _ in range(10)]
    for _ in range(30):
        queued(router, 0.0, Intent(path=CachePath.HOT))
        queued(router, 0.0, Intent(path=CachePath.COLD))
    for _ in range(20):
        ends_well(router, running.pop(0), 0.0)
        running += [grant for _, grant in router.pump(0.0) if isinstance(grant, Lease)]
    return sum(lease.tag.path is CachePath.HOT for lease in running)


@pytest.mark.parametrize(("hot", "slots"), [(0.7, 7), (0.4, 4)])
def test_hot_cache_preallocation_is_the_share_of_hot_requests_while_both_wait(hot: float, slots: int) -> None:
    share = {"hot_cache_preallocation": hot, "cache_low_freq_ratio": 1 - hot, "follow_traffic": False}
    assert hot_slots(**share) == slots


def test_cache_low_freq_ratio_is_the_share_of_cold_ones() -> None:
    # Where the shares do not add up, who is below its share is served first.
    share = {"hot_cache_preallocation": 1.0, "follow_traffic": False}
    assert hot_slots(cache_low_freq_ratio=0.2, **share) == 8
    assert hot_slots(cache_low_freq_ratio=0.4, **share) == 6


@pytest.mark.parametrize(("follows", "hot"), [(True, 0.9), (False, 0.7)])
def test_follow_traffic_moves_the_shares_with_what_arrives(follows: bool, hot: float) -> None:
    router = core(paths=PathSettings(follow_traffic=follows))
    for _ in range(1000):
        ends_well(router, leased(router, 0.0, Intent(path=CachePath.HOT)), 0.0)
    assert router.placement.paths.shares()[0] == pytest.approx(hot, abs=0.01)


@pytest.mark.parametrize("is_open", [True, False])
def test_cold_open_false_refuses_cold_requests(is_open: bool) -> None:
    router = core(paths=PathSettings(cold_open=is_open))
    decision = router.arrive("", 0.0, Intent())
    assert isinstance(decision, Lease) if is_open else decision is Refusal.COLD_PATH_CLOSED
    assert isinstance(router.arrive("", 0.0, Intent(path=CachePath.HOT)), Lease)
