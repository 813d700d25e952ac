"""Prompts of any shape and size are counted without a net, without an error, and without anybody else waiting for it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import BusinessTypeSettings, MatchSettings
from tests import client
from tests.backend import Backend, Gate, Request, Script, sse_script
from tests.field.official import official
from tests.gateway_process import GatewayProcess
from tests.running import CHAT, post_request, running
from tests.system.crowd import route

BUSINESS = (
    BusinessTypeSettings(name="cards", match=MatchSettings(keywords=("credit card",), regex=(r"card \d+",))),
)
EVENT = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'


def asking(content: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()


LARGE = {
    "1 MB": "word 12, " * 110_000,
    "10 MB": "word 12, " * 1_100_000,
    "one word of 5 MB": "w" * 5_000_000,
    "2 MB of spaces": " " * 2_000_000,
    "emoji": "\U0001f600" * 500_000,
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE.keys())
async def test_b149_a_long_prompt_is_counted_in_no_time_that_others_would_notice(text: str) -> None:
    """Processor time of the whole process, the clients and engine of the test included: a tokenizer would need seconds for the larger ones."""
    raw = post_request(asking(text))
    async with Backend() as backend, running(backend, window=4, business_types=BUSINESS) as gateway:
        before = time.process_time()
        answer = await gateway.send(raw)
        spent = time.process_time() - before
        assert answer.status == 200 and len(backend.exchanges[0].request.body) > 500_000
        assert spent < 0.5 + 0.25 * len(raw) / 1e6


NO_NET = """
import os, sys
def watch(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect"):
        where = arguments[0] if event != "socket.connect" else arguments[1]
        with open(os.environ["WATCHED"], "a") as file:
            print(event, where, file=file)
sys.addaudithook(watch)
open(os.environ["WATCHED"], "a").close()
"""


async def test_b150_the_gateway_starts_and_serves_without_asking_anybody_on_a_net(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_NET)
    watched = tmp_path / "asked"
    paths = [str(tmp_path), *[path for path in sys.path if path]]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))
    monkeypatch.setenv("WATCHED", str(watched))
    async with Backend() as proxy, Backend() as backend:
        # The event loop's own connections raise no audit event; what fetches from a net would go by the proxy.
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with GatewayProcess("--backend", backend.url) as gateway:
            answer = await client.send(gateway.port, post_request(asking("hello " * 1000)))
            assert answer.status == 200
        assert proxy.accepted == 0
    asked = watched.read_text().splitlines()
    assert [line for line in asked if "127.0.0.1" not in line and "localhost" not in line] == []


MEDIA = {
    "image": {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}},
    "sound": {"type": "input_audio", "input_audio": {"data": "A" * 200_000, "format": "wav"}},
    "file": {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 1_000_000}},
}
RESPONSES_MEDIA = {
    "image": {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 1_000_000},
    "sound": MEDIA["sound"],
    "file": {"type": "input_file", "file_data": "data:application/pdf;base64," + "A" * 1_000_000},
}


@pytest.mark.parametrize("kind", MEDIA)
async def test_b152_what_is_inside_of_an_image_a_sound_or_a_file_is_no_text(kind: str) -> None:
    async with Backend() as backend, running(backend, window=4) as gateway:
        text = {"type": "text", "text": "what is it?"}
        chat = asking([text, MEDIA[kind]])
        said = {"role": "user", "content": [{**text, "type": "input_text"}, RESPONSES_MEDIA[kind]]}
        for body, target in (
            (chat, CHAT),
            (json.dumps({"model": "m", "input": [said]}).encode(), "/v1/responses"),
        ):
            answer = await gateway.post(body, target)
            assert route(answer)["length"] != "long", (target, route(answer))
        assert gateway.metric("headrace_requests_by_length_total", length="long") == 0


ODD_CONTENT: list[Any] = [
    [{"type": "image"}],
    [{"type": "video_url", "video_url": {"url": "https://a.example/v.mp4"}}],
    [{"type": "input_file", "file_id": "f"}],
    [{"type": "refusal", "refusal": "no"}],
    [{"type": "zz", "zz": [1, None]}],
    [{"no": "type"}],
    [{"type": ["list"]}, 7, None, [["nested"]]],
    None,
    7,
    True,
    {"a": 1},
    [[[[[["deep"]]]]]],
]


async def test_b153_no_content_makes_counting_fail() -> None:
    async with Backend() as backend, running(backend, window=4, business_types=BUSINESS) as gateway:
        for content in ODD_CONTENT:
            for target in (CHAT, "/v1/responses", "/v1/messages"):
                message = {"role": "user", "content": content}
                body = {"model": "m", "messages": [message], "input": [message]}
                assert route(await gateway.post(body, target))["length"]
        for prompt in ([1, 2, 3], [[1], [2]], "x", ["x", "y"], [None], 7, None):
            assert route(await gateway.post({"model": "m", "prompt": prompt}, "/v1/completions"))["length"]
        assert gateway.metric("headrace_requests_by_length_total") == len(ODD_CONTENT) * 3 + 7
        assert gateway.metric("headrace_refusals_total") == 0


async def test_b155_prompts_of_any_length_are_told_their_type_and_answered() -> None:
    async with Backend() as backend, running(backend, business_types=BUSINESS, window=64) as gateway:
        tokens = (1, 511, 512, 513, 4000, 32_000, 200_000)
        for count in tokens:
            body = asking("my credit card " + "word " * count)
            answers = await asyncio.gather(*[gateway.post(body) for _ in range(20 if count < 50_000 else 3)])
            assert {route(answer)["business"] for answer in answers} == {"cards"}


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(said).encode()


def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}, **more}]}


async def test_b156_calls_that_come_interleaved_stay_apart() -> None:
    wanted = [json.dumps({"city": f"c{index}", "n": [index, None]}) for index in range(3)]
    begun = [
        chunk(
            {
                "tool_calls": [
                    {
                        "index": index,
                        "id": f"call_{index}",
                        "type": "function",
                        "function": {"name": "f", "arguments": ""},
                    }
                ]
            }
        )
        for index in range(3)
    ]
    parts = [
        chunk(piece(index, wanted[index][at : at + 4]))
        for at in range(0, max(map(len, wanted)), 4)
        for index in range(3)
        if at < len(wanted[index])
    ]
    script = sse_script(*begun, *parts, chunk({}, "tool_calls"), b"[DONE]")
    async with (
        Backend(lambda _: script) as backend,
        running(backend) as gateway,
        official(gateway) as api,
    ):
        stream = await api.chat.completions.create(model="m", messages=[], stream=True)
        calls: dict[int, str] = {}
        async for one in stream:
            for call in one.choices[0].delta.tool_calls or ():
                assert call.function is not None
                calls[call.index] = calls.get(call.index, "") + (call.function.arguments or "")
        assert [json.loads(calls[index]) for index in range(3)] == [json.loads(one) for one in wanted]


@pytest.mark.parametrize("more", [{}, {"id": None}], ids=["absent", "null"])
async def test_b158_pieces_without_an_id_come_when_they_are_sent(more: dict[str, Any]) -> None:
    gates, end = [Gate() for _ in range(50)], Gate()
    pieces: list[bytes | Gate] = [chunk(piece(0, "", id="call_0"))]
    for number, gate in enumerate(gates):
        pieces += [gate, chunk(piece(0, f"{number}", **more))]
    async with (
        Backend(lambda _: sse_script(*pieces, end, chunk({}, "tool_calls"), b"[DONE]")) as backend,
        running(backend) as gateway,
        await gateway.begin({"model": "m", "stream": True}) as connection,
    ):
        body = connection.pieces(await connection.read_head())
        assert b'"id": "call_0"' in await anext(body)
        for number, gate in enumerate(gates):
            gate.set()
            assert await anext(body) == b"data: " + chunk(piece(0, f"{number}", **more)) + b"\n\n"
        end.set()
        assert b"[DONE]" in b"".join([one async for one in body])


ODD_EVENTS = [
    b'{"choices":[]}',
    b'{"object":"x"}',
    b'{"choices":[{"index":0,"delta":null}]}',
    b'{"choices":[{"index":0,"delta":{}}],"usage":null}',
    b'{"choices":[{"index":0,"delta":{"tool_calls":[]}}]}',
    b'{"choices":[{"index":0,"delta":{"tool_calls":[null,7,{}]}}]}',
    b'{"choices":{"a":1}}',
    b'{"choices":[7,null]}',
    b'{"usage":{"prompt_tokens":null,"completion_tokens":"x"}}',
    b'{"usage":[]}',
    b"[]",
    b'"text"',
    b"null",
    b"",
]


@pytest.mark.parametrize("where", ["start", "middle", "end"])
async def test_b159_events_of_odd_shapes_pass_and_upset_nobody(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    headers = [(b"X-Headrace-Session", b"s"), (b"X-Headrace-History", b"server")]
    said = [b""]

    def script(_: Request) -> Script:
        events = [EVENT, chunk({}, "stop")]
        events.insert({"start": 0, "middle": 1, "end": 2}[where], said[0])
        return sse_script(*events, b"[DONE]")

    async with Backend(script) as backend, running(backend) as gateway:
        for said[0] in ODD_EVENTS:
            for more in ([], headers):
                body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
                answer = await gateway.post(body, headers=more)
                assert answer.complete and answer.body.endswith(b"data: [DONE]\n\n"), said[0]
                assert b"data: " + said[0] + b"\n\n" in answer.body or said[0].startswith(b'{"usage"')
    assert not [record for record in caplog.records if record.exc_info]
