"""Names of models and the engines' other routes: what is listed can be called, and what an engine understands reaches it as it was sent."""

from __future__ import annotations

import base64
import json
import os
import struct
from hashlib import sha256
from typing import Any

import pytest

from gateway.session_settings import SessionSettings
from gateway.settings import (
    AnonymousSettings,
    BusinessTypeSettings,
    MatchSettings,
    ProbeSettings,
    ServerSettings,
    TenantSettings,
)
from tests.backend import Backend, Request, Script, json_script
from tests.emulator.running import until
from tests.field.official import official
from tests.running import Running, one_pool, post_request, running
from tests.system.crowd import route

OFTEN = ProbeSettings(interval_seconds=0.05)
SESSIONS = 1000


async def test_b161_each_name_that_can_be_called_is_listed_once_and_each_that_is_listed_can_be_called() -> (
    None
):
    def strict(request: Request) -> Script:
        known = request.json()["model"] in ("org/model", "lora-1")
        return json_script({}, status=200 if known else 404)

    models = ["org/model", "lora-1"]
    aliases = {"fast": "org/model", "tuned": "lora-1", "lost": "nothing"}
    async with (
        Backend(strict, models=models) as one,
        Backend(strict, models=models[:1]) as two,
        Backend(strict, models=["only-there"]) as gone,
        running(one, two, gone, aliases=aliases, probes=OFTEN) as gateway,
    ):
        await gone.stop()
        await until(lambda: gateway.present() == [True, True, False])
        listed = [card["id"] for card in json.loads((await gateway.get("/v1/models")).body)["data"]]
        assert len(listed) == len(set(listed))
        names = {*models, *aliases, "only-there", "never"}
        callable_names = {name for name in names if (await gateway.post({"model": name})).status == 200}
        assert set(listed) == callable_names == {"org/model", "lora-1", "fast", "tuned"}


VECTOR = [0.25, -1.5, 3.0]
PACKED = base64.b64encode(struct.pack("<3f", *VECTOR)).decode()


async def test_b164_the_form_of_an_embedding_is_the_clients_and_the_engines_matter() -> None:
    def script(request: Request) -> Script:
        packed = request.json().get("encoding_format") == "base64"
        data = [{"object": "embedding", "index": 0, "embedding": PACKED if packed else VECTOR}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return json_script({"object": "list", "data": data, "model": "m", "usage": usage})

    async with Backend(script) as backend, running(backend) as gateway, official(gateway) as api:
        inputs: list[Any] = ["text", ["one", "two"], [1, 2, 3], [[1, 2], [3]]]
        for given in inputs:
            for form in (None, "float", "base64"):
                more: dict[str, Any] = {} if form is None else {"encoding_format": form}
                got = await api.embeddings.create(model="m", input=given, **more)
                sent = backend.exchanges.pop().request.json()
                assert sent["input"] == given
                assert sent["encoding_format"] == (form or "base64"), "the client's own default"
                vector: Any = got.data[0].embedding
                assert vector == (PACKED if form == "base64" else VECTOR)
        answer = await gateway.post({"model": "m", "input": "x"}, "/v1/embeddings")
        assert "encoding_format" not in backend.exchanges.pop().request.json()
        assert json.loads(answer.body)["data"][0]["embedding"] == VECTOR


FORMS: dict[str, list[dict[str, Any]]] = {
    "/v1/embeddings": [{"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": True}],
    "/v1/score": [{"text_1": "x", "text_2": ["y"]}, {"queries": "x", "items": ["y"]}],
    "/v1/rerank": [{"query": "x", "documents": ["y", {"text": "z"}], "top_n": 1}],
    "/v2/rerank": [{"query": "x", "documents": ["y"]}],
    "/tokenize": [{"prompt": "x"}, {"messages": [], "return_token_strs": True}],
    "/detokenize": [{"tokens": [1, 2]}],
    "/pooling": [{"input": "x"}, {"messages": []}, {"data": "image", "truncate_prompt_tokens": -1}],
    "/classify": [{"input": ["x"]}, {"messages": []}],
    "/generate": [{"text": "x", "sampling_params": {}}, {"input_ids": [1, 2]}],
}


async def test_b170_an_engines_own_forms_reach_it_unchanged() -> None:
    async with Backend() as backend, running(backend, window=4) as gateway:
        for target, forms in FORMS.items():
            for form in forms:
                body = json.dumps({"model": "m", **form}).encode()
                assert (await gateway.post(body, target)).status == 200, target
                got = backend.exchanges.pop().request
                assert (got.target, got.body) == (target, body)


FEATURES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "cors": {"server": ServerSettings(port=0, cors_origins=("*",))},
    "keys": {"tenants": (TenantSettings(name="bank", key_sha256=(sha256(b"bank-key").hexdigest(),)),)},
    "business types": {
        "business_types": (BusinessTypeSettings(name="b", match=MatchSettings(keywords=("x",))),)
    },
    "history": {"sessions": SessionSettings(max_turns=2)},
    "a window": {"window": 2},
}


@pytest.mark.parametrize("sections", FEATURES.values(), ids=FEATURES.keys())
async def test_b173_no_feature_opens_something_for_each_call(sections: dict[str, Any]) -> None:
    headers = [
        (b"Authorization", b"Bearer bank-key"),
        (b"X-Headrace-Session", b"s"),
        (b"X-Headrace-History", b"server"),
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    answer = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "y"}, "finish_reason": "stop"}]
    }
    async with Backend(lambda _: json_script(answer)) as backend, running(backend, **sections) as gateway:

        async def calls(count: int) -> None:
            for _ in range(count):
                assert (await gateway.post(body, headers=headers)).status == 200
            await until(lambda: not gateway.server.connections)

        await calls(5)
        opened, descriptors = backend.accepted, len(os.listdir("/proc/self/fd"))
        await calls(200)
        assert backend.accepted == opened, "one connection served them all"
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


async def test_b104_few_sessions_move_with_a_backend_that_comes_or_goes_and_none_at_a_restart() -> None:
    async def homes(gateway: Running) -> dict[str, str]:
        found = {}
        async with await gateway.connect() as connection:
            for number in range(SESSIONS):
                name = (b"X-Headrace-Session", b"session-%d" % number)
                await connection.send(post_request({"model": "m"}, headers=[name]))
                found[name[1].decode()] = route(await connection.read_answer())["backend"]
        return found

    async def of_a_new_one(*backends: Backend) -> dict[str, str]:
        """It knows of no session."""
        async with running(*backends) as gateway:
            return await homes(gateway)

    def moved(before: dict[str, str], after: dict[str, str]) -> set[str]:
        return {name for name in before if before[name] != after[name]}

    async with Backend() as a, Backend() as b, Backend() as c, Backend() as d:
        async with running(a, b, c) as gateway:
            three = await homes(gateway)
            gateway.gateway.configure(one_pool([a, b, c, d]))
            await until(gateway.is_probed)
            with_a_fourth = await homes(gateway)
            assert len(moved(three, with_a_fourth)) <= 0.3 * SESSIONS
            gateway.gateway.configure(one_pool([a, b, c]))
            fewer = await homes(gateway)
            assert moved(with_a_fourth, fewer) <= {
                name for name, home in with_a_fourth.items() if home == d.url.removeprefix("http://")
            }
            gateway.gateway.configure(one_pool([b, c]))
            assert moved(fewer, await homes(gateway)) == {
                name for name, home in fewer.items() if home == a.url.removeprefix("http://")
            }
        assert moved(three, await of_a_new_one(a, b, c)) == set()
        four = await of_a_new_one(a, b, c, d)
        assert 0.1 * SESSIONS <= len(moved(three, four)) <= 0.3 * SESSIONS
        assert {four[name] for name in moved(three, four)} == {d.url.removeprefix("http://")}


async def test_b105_one_session_is_one_under_all_its_names_and_another_under_no_spelling() -> None:
    async with Backend() as a, Backend() as b, Backend() as c, running(a, b, c) as gateway:

        def by_session() -> float:
            return gateway.metric("headrace_placements_total", by="session")

        async def home(*headers: tuple[bytes, bytes], **fields: str) -> str:
            return route(await gateway.post({"model": "m", **fields}, headers=headers))["backend"]

        first = await home((b"X-Headrace-Session", b"abc"))
        assert by_session() == 0
        for _ in range(5):
            assert await home((b"X-Headrace-Session", b"abc")) == first
            assert await home((b"x-session-id", b" abc ")) == first, (
                "blanks around a header's value are not part of it"
            )
            assert await home(session_id="abc") == first
            assert await home(prompt_cache_key="abc") == first
        assert by_session() == 20
        for other in (b"ABC", b"abc%20", b"%61bc", b"abc="):
            await home((b"X-Headrace-Session", other))
        assert by_session() == 20, "each was new"


async def test_b140_a_key_of_the_gateway_leaves_it_nowhere_it_may_be_sent() -> None:
    tenants = (TenantSettings(name="bank", key_sha256=(sha256(b"gateway-key").hexdigest(),)),)
    closed = AnonymousSettings(allow=False)
    taken = [
        (b"Authorization", b"Bearer gateway-key"),
        (b"api-key", b"gateway-key"),
        (b"x-api-key", b"gateway-key"),
    ]
    async with (
        Backend(record_probes=True) as backend,
        running(backend, tenants=tenants, anonymous=closed) as gateway,
    ):
        for target in (*FORMS, "/v1/chat/completions", "/v1/responses", "/v1/something/new"):
            for header in taken:
                assert (await gateway.post({"model": "m"}, target, [header])).status == 200
            for target_of_it, headers in (
                (target, [(b"Cookie", b"key=gateway-key")]),
                (f"{target}?key=gateway-key&api_key=gateway-key", []),
            ):
                assert (await gateway.post({"model": "m"}, target_of_it, headers)).status == 401
        assert backend.exchanges
        for exchange in backend.exchanges:
            assert b"gateway-key" not in exchange.request.raw_head + exchange.request.body
