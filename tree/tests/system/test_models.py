"""Model names: the list that clients get, what a name or an alias leads to, and what an unknown one gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.settings import ProbeSettings
from tests import client
from tests.backend import Backend, Request, Script, json_script
from tests.emulator.running import until
from tests.gateway_process import free_port
from tests.running import CHAT, JSON, Running, running

CARD = {
    "id": "org/large",
    "object": "model",
    "created": 1700000000,
    "owned_by": "vllm",
    "root": "/models/large",
    "parent": None,
    "max_model_len": 4096,
    "permission": [{"id": "modelperm-1", "allow_sampling": True, "group": None}],
    "unheard_of": {"deep": [1.5, "\u4fe1\u7528\u5361", 9007199254740993]},
}
SMALL = {"id": "small", "object": "model", "owned_by": "sglang", "max_model_len": 512}
OFTEN = ProbeSettings(interval_seconds=0.05)


def serving(*cards: dict[str, Any], script: Any = None) -> Backend:
    backend = Backend(script)
    backend.probes["/v1/models"] = json_script({"object": "list", "data": list(cards)})
    return backend


async def listed(gateway: Running) -> dict[str, dict[str, Any]]:
    answer = await gateway.get("/v1/models")
    assert answer.status == 200
    content = json.loads(answer.body)
    assert content["object"] == "list"
    cards = {card["id"]: card for card in content["data"]}
    assert len(cards) == len(content["data"]), "each name once"
    return cards


def not_found(answer: client.Answer, *, param: str | None) -> bool:
    error = json.loads(answer.body)["error"]
    assert error.keys() == {"message", "type", "param", "code"} and error["message"]
    return (answer.status, error["code"], error["type"], error["param"]) == (404, 404, "NotFoundError", param)


async def test_the_list_is_the_union_with_every_field_as_its_engine_sent_it() -> None:
    async with serving(CARD) as one, serving(SMALL, CARD) as two, running(one, two) as gateway:
        assert await listed(gateway) == {"org/large": CARD, "small": SMALL}


async def test_a_dead_backend_is_left_out_of_the_list_and_does_not_fail_it() -> None:
    async with serving(CARD) as one, serving(SMALL) as two:
        nobody = f"http://127.0.0.1:{free_port()}"
        async with running(one, two, nobody, probes=OFTEN) as gateway:
            assert (await listed(gateway)).keys() == {"org/large", "small"}
            await one.stop()
            await until(lambda: gateway.present()[0] is False)
            assert (await listed(gateway)).keys() == {"small"}
            await two.stop()
            await until(lambda: not any(gateway.present()))
            answer = await gateway.get("/v1/models")
            assert (answer.status, answer.value(b"x-headrace-reason")) == (503, b"no_backend")
            await one.start()
            await until(lambda: any(gateway.present()))
            assert (await listed(gateway)).keys() == {"org/large"}


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"data":7}', b'{"data":[7,{},{"id":1},{"id":"small"}]}'])
async def test_a_list_that_an_engine_botched_neither_fails_the_page_nor_takes_its_backend_out(
    data: bytes,
) -> None:
    async with serving(CARD) as one, Backend() as two:
        two.probes["/v1/models"] = Script(headers=[(b"content-type", b"application/json")], chunks=[data])
        async with running(one, two, probed=False) as gateway:
            await until(
                lambda: gateway.metric("headrace_backend_up") == 2 and bool(gateway.gateway.model_cards())
            )
            names = (await listed(gateway)).keys()
            assert "org/large" in names and names <= {"org/large", "small"}
            assert gateway.present() == [True, True]


async def test_one_model_is_shown_by_its_name_whatever_its_spelling() -> None:
    aliases = {"nick name": "org/large"}
    async with serving(CARD, SMALL) as backend, running(backend, aliases=aliases) as gateway:
        for target, card in {
            "/v1/models/small": SMALL,
            "/v1/models/org/large": CARD,
            "/v1/models/org%2Flarge": CARD,
            "/v1/models/nick%20name": CARD | {"id": "nick name"},
        }.items():
            answer = await gateway.get(target)
            assert (answer.status, json.loads(answer.body)) == (200, card), target
        for target in ("/v1/models/none", "/v1/models/SMALL", "/v1/models/org", "/v1/models/small/"):
            assert not_found(await gateway.get(target), param="model"), target
        # Names that no engine has, nor any router of paths may take for something else.
        for target in (
            "/v1/models/",
            "/v1/models/a%0d%0ab",
            "/v1/models/%0a",
            "/v1/models/%ff",
            "/v1/models/..%2f",
        ):
            answer = await gateway.get(target)
            assert answer.status == 404 and answer.value(b"x-headrace-reason"), target
            assert not_found(answer, param=json.loads(answer.body)["error"]["param"])
        assert backend.exchanges == []


async def test_a_model_goes_to_the_backends_that_serve_it_and_an_unknown_one_nowhere() -> None:
    async with serving(CARD) as one, serving(SMALL) as two, running(one, two) as gateway:
        for number in range(1, 6):
            assert (await gateway.post({"model": "org/large"})).status == 200
            assert (await gateway.post({"model": "small"}, "/v1/embeddings")).status == 200
            assert (len(one.exchanges), len(two.exchanges)) == (number, number)
        for body in (
            {"model": "none"},
            {"model": "none", "stream": True},
            {"model": "SMALL"},
            {"model": "\u2028"},
        ):
            answer = await gateway.post(body)
            assert not_found(answer, param="model")
            assert answer.value(b"x-headrace-reason") == b"unknown_model"
        form = client.request("POST", "/v1/audio/transcriptions", [FORM], form_with(b"none"))
        assert not_found(await gateway.send(form), param="model")
        assert len(one.exchanges) + len(two.exchanges) == 10
        # A request that names none, or names it in a way that only the engine can judge, is the engine's to answer.
        for whatever in ({}, {"model": None}, {"model": 7}, {"model": ""}):
            assert (await gateway.post(whatever)).status == 200


async def test_a_backend_that_does_not_tell_its_models_is_sent_any() -> None:
    async with Backend() as quiet:
        quiet.probes["/v1/models"] = json_script({"error": {}}, status=404)
        async with running(quiet, probed=False) as gateway:
            assert (await gateway.post({"model": "whatever"})).status == 200
            assert quiet.exchanges[0].request.json() == {"model": "whatever"}


async def test_an_alias_is_listed_only_with_its_model_and_leads_to_it() -> None:
    aliases = {"nick": "small", "lost": "gone"}
    async with serving(CARD) as one, serving(SMALL) as two, running(one, two, aliases=aliases) as gateway:
        assert await listed(gateway) == {"org/large": CARD, "small": SMALL, "nick": SMALL | {"id": "nick"}}
        assert (await gateway.post({"model": "nick"})).status == 200
        assert two.exchanges[0].request.json() == {"model": "small"}
        assert not_found(await gateway.post({"model": "lost"}), param="model")
        assert (len(one.exchanges), len(two.exchanges)) == (0, 1)


JSON_ROUTES = [
    CHAT,
    "/v1/completions",
    "/v1/chat/completions/batch",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/classify",
    "/v1/score",
    "/v1/rerank",
    "/v2/embed",
    "/v2/rerank",
    "/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
    "/v1/tokenize",
    "/generate",
    "/invocations",
    "/api/chat",
    "/v1/something/new",
]
FORM = (b"Content-Type", b"multipart/form-data; boundary=edge")


def form_with(model: bytes) -> bytes:
    audio = (
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\nRIFF nick\r\n\x00'
    )
    field = b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n' % model
    language = b'--edge\r\nContent-Disposition: form-data; name="language"\r\n\r\nnick\r\n'
    return audio + b"\r\n" + field + language + b"--edge--\r\n"


async def test_an_alias_is_replaced_on_every_route_and_not_a_byte_beside_it() -> None:
    body = b'{ "a":1e400,"model" : "nick","b":"nick", "a":9007199254740993 ,"messages":[{"model":"nick"}] }'
    expected = body.replace(b'"model" : "nick"', b'"model" : "small"')

    def echo(request: Request) -> Script:
        return Script(chunks=[request.body])

    async with serving(SMALL, script=echo) as backend, running(backend, aliases={"nick": "small"}) as gateway:
        for target in JSON_ROUTES:
            answer = await gateway.post(body, target)
            assert (answer.status, answer.body) == (200, expected), target
        for target in ("/v1/audio/transcriptions", "/v1/audio/translations"):
            for chunk_bytes in (0, 7):
                raw = client.request("POST", target, [FORM], form_with(b"nick"), chunk_bytes=chunk_bytes)
                answer = await gateway.send(raw)
                assert (answer.status, answer.body) == (200, form_with(b"small")), target
        put = client.request("PUT", "/v1/rerank", [JSON], body)
        assert (await gateway.send(put)).body == expected
        for exchange in backend.exchanges:
            assert exchange.request.value(b"content-length") == b"%d" % len(exchange.request.body)
