"""Each number about affinity and paths counts what it says, over a real router in virtual time; and what `/admin/affinity` shows of it."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from gateway.affinity_page import affinity_state
from policies.dialects import EngineReport
from policies.heat import HeatRules
from policies.terms import BackendId, CachePath, PoolName, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease
from routing.placement import AffinityRules
from routing.rules import Rules
from tests.gateway.metrics_stage import Stage
from tests.routing.prompts import key_of, of

P = PoolName("p")
RULES = Rules(affinity=AffinityRules(max_prefixes=1000, heat=HeatRules(min_hits=2)))


def stage(backends: Sequence[str] = ("a", "b")) -> Stage:
    return Stage([BackendPlan(BackendId(name), P, 8) for name in backends], RULES)


def served(on: Stage, intent: Intent, cached: int = 0) -> BackendId:
    lease = on.runs(intent)
    lease.verdict, lease.service_seconds = Verdict.GOOD, 0.1
    lease.usage = (round(lease.tag.prompt_tokens), 10, cached)
    on.router.finish(lease, on.now)
    return lease.backend.id


async def test_placements_are_counted_by_what_decided() -> None:
    one = stage()
    nothing = {"session": 0.0, "prefix": 0.0, "rendezvous": 0.0, "load": 0.0}
    assert one.series("placements_total", "by") == nothing
    served(one, of("a", session="s"))
    served(one, of("a", session="s"))
    served(one, of("a"))
    assert one.series("placements_total", "by") == {**nothing, "rendezvous": 1, "session": 1, "prefix": 1}
    home = served(one, of("b"))
    [other] = {"a", "b"} - {home}
    for name, count in ((home, 8), (other, 1)):
        for _ in range(count):
            one.runs(Intent(backend=BackendId(name)))
    assert one.runs(of("b")).backend.id == other
    assert one.value("placements_total", by="rendezvous") == 3


async def test_predictions_and_what_engines_found_are_counted_by_backend() -> None:
    one = stage()
    home = served(one, of("a"))
    served(one, of("a"), cached=800)
    served(one, of("a"), cached=900)
    assert one.series("predicted_cached_tokens_total", "backend") == {home: pytest.approx(2000)}
    assert one.series("found_cached_tokens_total", "backend") == {home: 1700}
    assert one.series("cache_trust_ratio", "backend") == {home: 1}
    for _ in range(100):
        served(one, of("a"), cached=100)
    assert one.value("cache_trust_ratio", backend=home) < 0.5


async def test_restarts_are_counted_by_backend() -> None:
    one = stage()
    for started_at in (100.0, 200.0, 200.0, 900.0):
        one.router.engines.reported(BackendId("a"), EngineReport(0, 0, started_at=started_at), 0.0)
    assert one.series("cache_restarts_total", "backend") == {"a": 2, "b": 0}


async def test_the_table_is_shown_with_what_it_may_hold() -> None:
    one = stage()
    for _ in range(2):
        served(one, of("a", "b", session="s"))
    served(one, of("c", "d", "e", session="t"))
    assert one.series("affinity_prefixes", "part") == {"hot": 2, "cold": 3}
    held = one.series("affinity_prefixes_max", "part")
    assert held["hot"] + held["cold"] == 1000 and held["hot"] == pytest.approx(700, abs=1)
    assert one.value("affinity_sessions") == 2
    assert one.value("affinity_lifetime_seconds") == 30


async def test_shares_and_traffic_of_the_paths_are_shown() -> None:
    one = stage()
    assert one.series("path_share_ratio", "path") == pytest.approx({"hot": 0.7, "cold": 0.3})
    assert one.value("hot_traffic_ratio") == pytest.approx(0.7)
    for _ in range(2000):
        one.router.placement.paths.arrived(CachePath.COLD, 1.0)
    assert one.series("path_share_ratio", "path") == pytest.approx({"hot": 0.5, "cold": 0.5})
    assert one.value("hot_traffic_ratio") == pytest.approx(0, abs=1e-6)


async def test_what_runs_is_shown_by_path() -> None:
    one = stage()
    leases = [one.runs(Intent(path=CachePath.HOT)) for _ in range(3)]
    one.runs(Intent())
    assert one.value("path_in_flight", pool="p", path="hot") == 3
    assert one.value("path_in_flight", pool="p", path="cold") == 1
    for lease in leases:
        one.router.finish(lease, 0.0)
    assert one.value("path_in_flight", pool="p", path="hot") == 0


async def test_the_page_shows_hashes_and_names_and_no_text() -> None:
    one = stage()
    secret = "the prompt itself"
    leases: list[Lease] = []
    for number in range(6):
        one.now = float(number)
        leases.append(one.runs(of(secret, f"question {number}", session=secret)))
    state = affinity_state(one.router, 8.0)
    text = orjson.dumps(state).decode()
    assert secret not in text and "question" not in text
    first = key_of(secret).prefix.hashes[0]
    top = state["top_prefixes"][0]
    assert (top["hash"], top["uses"], top["idle_seconds"]) == (f"{first:016x}", 5, 3.0)
    assert set(top["backends"]) == {lease.backend.id for lease in leases}
    assert state["sessions"]["remembered"] == 1 and state["sessions"]["mean_gap_seconds"] == 1.0
    assert (state["enabled"], state["max_prefixes"], state["paths"]["cold_open"]) == (True, 1000, True)
    assert state["hot"]["prefixes"] <= state["hot"]["capacity"]
    assert {one["id"] for one in state["backends"]} == {lease.backend.id for lease in leases}
