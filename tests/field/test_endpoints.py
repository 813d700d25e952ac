"""Field cases of embeddings, completions, responses and audio: what an endpoint is sent and answers passes as it is."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests import client
from tests.backend import Backend, Gate, Request, Script, json_script, sse_script
from tests.captures import ENGINES, FIXTURES, split_answer
from tests.gateway_process import GatewayProcess
from tests.running import JSON, running

VECTOR = [0.125, -1.5, 3.0]


def embed(request: Request) -> Script:
    asked = request.json()
    count = (
        1 if isinstance(asked["input"], str) or isinstance(asked["input"][0], int) else len(asked["input"])
    )
    packed = base64.b64encode(struct.pack("<3f", *VECTOR)).decode()
    vector = packed if asked.get("encoding_format") == "base64" else VECTOR
    data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(count)]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    return json_script({"object": "list", "model": "m", "data": data, "usage": usage})


@pytest.mark.parametrize("given", ["text", ["one", "two"], [1, 2, 3], [[1, 2], [3]]])
@pytest.mark.parametrize("form", [None, "float", "base64"])
async def test_b164_the_encoding_format_reaches_the_engine_as_sent_and_its_vectors_come_back(
    given: Any, form: Any
) -> None:
    fields: dict[str, Any] = {} if form is None else {"encoding_format": form}
    async with Backend(embed) as backend, running(backend) as gateway:
        answers = []
        for url in (backend.url, gateway.url):
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-none", max_retries=0) as api:
                answers.append(await api.embeddings.create(model="m", input=given, **fields))
        direct, through = [exchange.request.body for exchange in backend.exchanges]
        assert through == direct
        assert answers[1] == answers[0]
        if form != "base64":
            assert answers[1].data[0].embedding == VECTOR


async def test_b164_an_absent_encoding_format_stays_absent() -> None:
    async with Backend(embed) as backend, running(backend) as gateway:
        sent = b'{"model":"m", "input":"x"}'
        answer = await gateway.post(sent, "/v1/embeddings")
        assert backend.exchanges[0].request.body == sent
        assert json.loads(answer.body)["data"][0]["embedding"] == VECTOR


FORM = (b"Content-Type", b"multipart/form-data; boundary=edge")


def form(*parts: tuple[str, bytes]) -> bytes:
    head = '--edge\r\nContent-Disposition: form-data; name="{}"\r\n\r\n'
    return b"".join(head.format(name).encode() + value + b"\r\n" for name, value in parts) + b"--edge--\r\n"


def peak_kib(pid: int) -> int:
    """The most memory that the process ever held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


async def test_b165_audio_arrives_whole_and_soon_with_the_model_behind_it() -> None:
    async with (
        Backend(lambda _: json_script({"text": "x"})) as backend,
        GatewayProcess("--backend", backend.url) as gateway,
    ):
        before = peak_kib(gateway.pid)
        for size in (800_000, 25_000_000):
            audio = random.Random(size).randbytes(size)
            body = form(("file", audio), ("language", b"en"), ("model", b"m"))
            raw = client.request("POST", "/v1/audio/transcriptions", [FORM], body)
            answer = await client.send(gateway.port, raw)
            assert (answer.status, json.loads(answer.body)) == (200, {"text": "x"})
            got = backend.exchanges.pop().request
            assert hashlib.sha256(got.body).digest() == hashlib.sha256(body).digest()
        # The whole has to be there before it is known where it goes: as it came, in one piece, and on its way out, but no more.
        assert peak_kib(gateway.pid) - before < 3 * 25_000


async def test_b167_every_field_of_a_form_is_forwarded_and_its_events_come_one_by_one() -> None:
    gates = [Gate(), Gate()]
    events = [b'{"type":"transcript.text.delta","delta":"%d"}' % number for number in range(3)]

    def script(_: Request) -> Script:
        return sse_script(events[0], gates[0], events[1], gates[1], events[2])

    fields = [
        ("file", bytes(range(256)) * 4),
        ("stream", b"true"),
        ("timestamp_granularities[]", b"word"),
        ("timestamp_granularities[]", b"segment"),
        ("language", b"de"),
        ("zz_unknown", b"7"),
        ("model", b"m"),
    ]
    async with Backend(script) as backend, running(backend) as gateway, await gateway.connect() as connection:
        raw = client.request("POST", "/v1/audio/transcriptions", [FORM], form(*fields))
        await connection.send(raw)
        head = await connection.read_head()
        assert (head.value(b"content-type") or b"").startswith(b"text/event-stream")
        pieces = connection.pieces(head)
        for number, event in enumerate(events):
            assert await anext(pieces) == b"data: " + event + b"\n\n"
            if number < len(gates):
                gates[number].set()
        assert [piece async for piece in pieces] == []
        assert backend.exchanges[0].request.body == form(*fields)
        assert backend.exchanges[0].request.value(b"content-type") == FORM[1]


NOT_FORWARDED_BELOW_V1 = {
    ("get", "/v1/models"),  # answered here: the union of all backends' models
    ("get", "/v1/models/model"),  # the same of one
    ("get", "/v1/loads"),  # of the engine's operator
    ("post", "/v1/load_lora_adapter"),  # control
    ("post", "/v1/unload_lora_adapter"),  # control
    ("post", "/v1/chat/completions/render"),  # internals
    ("post", "/v1/completions/render"),  # internals
    ("post", "/v1/chat/completions/derender"),  # internals
    ("post", "/v1/completions/derender"),  # internals
}


@pytest.mark.parametrize("engine", ENGINES)
async def test_b168_every_route_that_an_engine_lists_below_v1_is_forwarded_or_known_as_not(
    engine: str,
) -> None:
    _, body = split_answer((FIXTURES / engine / "get-openapi.http").read_bytes())
    listed = {
        (method, path.replace("{", "").replace("}", "").replace(":path", ""))
        for path, methods in json.loads(body)["paths"].items()
        for method in methods
        if path.startswith("/v1/")
    }
    assert len(listed) >= 10
    async with Backend() as backend, running(backend) as gateway:
        missing = set()
        for method, path in sorted(listed):
            content, headers = (None, []) if method == "get" else (b"{}", [JSON])
            if "audio" in path:
                content, headers = form(("model", b"m")), [FORM]
            before = len(backend.exchanges)
            answer = await gateway.send(client.request(method.upper(), path, headers, content))
            if len(backend.exchanges) == before:
                assert answer.status in (200, 404), (method, path)
                missing.add((method, path))
        assert missing <= NOT_FORWARDED_BELOW_V1


FORMS_WITHOUT_INPUT = {
    "/v1/embeddings": {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    },
    "/v1/score": {"model": "m", "text_1": "a", "text_2": ["b", "c"]},
    "/score": {"model": "m", "queries": "a", "documents": ["b"]},
    "/v1/rerank": {"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1},
    "/v2/rerank": {"query": "q", "documents": []},
    "/v2/embed": {"model": "m", "texts": ["a"], "input_type": "query", "embedding_types": ["float"]},
    "/pooling": {"model": "m", "data": {"x": 1}, "task": "plugin"},
    "/v1/classify": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "/tokenize": {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False},
    "/detokenize": {"model": "m", "tokens": [1, 2, 3]},
    "/v1/completions": {"model": "m", "prompt_embeds": "AAAA", "max_tokens": 1},
    "/v1/responses": {"model": "m", "previous_response_id": None, "prompt": {"id": "p"}},
    "/invocations": {"messages": [{"role": "user", "content": "x"}]},
}


@pytest.mark.parametrize("target", FORMS_WITHOUT_INPUT)
async def test_b170_forms_without_an_input_pass_unchanged(target: str) -> None:
    sent = json.dumps(FORMS_WITHOUT_INPUT[target]).encode()
    answered = b'{"whatever": [1.50]}'
    async with (
        Backend(lambda _: Script(headers=[JSON], chunks=[answered])) as one,
        Backend(lambda _: Script(headers=[JSON], chunks=[answered])) as two,
        running(one, two, window=4) as gateway,
    ):
        answer = await gateway.post(sent, target)
        assert (answer.status, answer.body) == (200, answered)
        [exchange] = one.exchanges + two.exchanges
        assert (exchange.request.body, exchange.request.target) == (sent, target)
