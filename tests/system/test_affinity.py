"""Where the gateway sends requests for their cache's sake, as clients and operators see it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.affinity_settings import PathSettings
from gateway.settings import AnonymousSettings, BackendSettings, PoolSettings, ServerSettings, Settings
from tests.backend import Backend, Request, Script, json_script
from tests.running import Running, running, running_with
from tests.system.crowd import route

SYSTEM = "You answer for the desk of loans, and for nobody else. " * 20


def chat(question: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return {"model": "m", "messages": messages, **fields}


def answer(request: Request) -> Script:
    cached = {"cached_tokens": 200}
    usage = {
        "prompt_tokens": 300,
        "total_tokens": 310,
        "completion_tokens": 10,
        "prompt_tokens_details": cached,
    }
    return json_script({"choices": [], "usage": usage})


@asynccontextmanager
async def four_backends(**sections: Any) -> AsyncIterator[Running]:
    async with Backend(answer) as a, Backend(answer) as b, Backend(answer) as c, Backend(answer) as d:
        backends = tuple(
            BackendSettings(url=one.url, name=name) for name, one in zip("abcd", (a, b, c, d), strict=True)
        )
        async with running_with(
            Settings(
                pools=(PoolSettings(name="p", backends=backends),), server=ServerSettings(port=0), **sections
            )
        ) as gateway:
            yield gateway


async def test_equal_beginnings_go_to_one_backend_and_the_route_says_what_was_known() -> None:
    async with four_backends() as gateway:
        routes = [route(await gateway.post(chat(f"question {number}"))) for number in range(6)]
        assert len({one["backend"] for one in routes}) == 1
        assert routes[0]["prefix_chars"] == routes[0]["cached_tokens"] == "0"
        assert all(int(one["prefix_chars"]) >= 0.8 * len(SYSTEM) for one in routes[1:])
        assert all(200 < int(one["cached_tokens"]) < 400 for one in routes[1:])
        assert [one["path"] for one in routes] == ["cold"] * 4 + ["hot"] * 2
        assert gateway.metric("headrace_path_requests_total", path="hot") == 2
        assert gateway.metric("headrace_path_requests_total", path="cold") == 4
        assert gateway.metric("headrace_path_tokens_total", path="hot", kind="prompt") == 600
        assert gateway.metric("headrace_path_tokens_total", path="hot", kind="cached") == 400
        assert gateway.metric("headrace_path_first_byte_seconds_count", path="hot") == 2
        assert gateway.metric("headrace_placements_total", by="prefix") == 5
        assert gateway.metric("headrace_found_cached_tokens_total") == 1000
        state = json.loads((await gateway.get("/admin/affinity")).body)
        assert state["placements"]["prefix"] == 5
        assert state["top_prefixes"][0]["backends"] == [routes[0]["backend"]]
        assert "loans" not in json.dumps(state)


async def test_a_session_stays_together_by_any_of_its_names() -> None:
    async with four_backends() as gateway:
        for headers, fields in (
            ([(b"x-headrace-session", b"one")], {}),
            ([], {"session_id": "two"}),
            ([], {"prompt_cache_key": "three"}),
        ):
            homes = set()
            for number in range(4):
                body = {"messages": [{"role": "user", "content": f"{number} " * 200}], **fields}
                homes.add(route(await gateway.post(body, headers=headers))["backend"])
            assert len(homes) == 1
        assert gateway.metric("headrace_placements_total", by="session") == 9
        assert gateway.metric("headrace_affinity_sessions") == 3


async def test_only_a_trusted_client_names_its_path() -> None:
    for trusted, path in ((True, "hot"), (False, "cold")):
        async with four_backends(anonymous=AnonymousSettings(trust_headers=trusted)) as gateway:
            named = await gateway.post(chat("q"), headers=[(b"x-headrace-path", b"hot")])
            assert route(named)["path"] == path


async def test_a_closed_cold_path_says_so_to_cold_requests_until_they_are_hot() -> None:
    async with four_backends(paths=PathSettings(cold_open=False, reuse_cache_min_hits=3)) as gateway:
        for _ in range(2):
            refused = await gateway.post(chat("q"))
            assert (refused.status, dict(refused.headers)[b"x-headrace-reason"]) == (503, b"cold_path_closed")
            assert dict(refused.headers)[b"retry-after"] == b"5"
            assert json.loads(refused.body)["error"]["message"].startswith("Only requests whose prompt")
        assert (await gateway.post(chat("q"))).status == 200
        assert gateway.metric("headrace_refusals_total", reason="cold_path_closed") == 2


async def test_behind_one_backend_a_closed_cold_path_opens_to_what_comes_often_as_well() -> None:
    paths = PathSettings(cold_open=False, reuse_cache_min_hits=2)
    async with Backend(lambda _: json_script({})) as backend, running(backend, paths=paths) as gateway:
        assert (await gateway.post(chat("q"))).status == 503
        assert (await gateway.post(chat("q"))).status == 200
