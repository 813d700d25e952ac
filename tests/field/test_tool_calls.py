"""Field cases of tool calls and odd events inside a stream: what the engine sends arrives, when it sends it."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.backend import Backend, Gate, Request, Script, sse_script
from tests.running import running

DONE = b"[DONE]"


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(chunk).encode()


def piece(index: int, arguments: str, name: str | None = None, **fields: Any) -> bytes:
    function: dict[str, Any] = {"arguments": arguments} | ({"name": name} if name else {})
    return event({"tool_calls": [{"index": index, "function": function, **fields}]})


async def test_b156_three_parallel_calls_keep_their_indexes_and_their_arguments() -> None:
    arguments = [json.dumps({"city": city, "unit": "C"}) for city in ("Bern", "\u6771\u4eac", "Oslo")]
    events = [piece(n, "", f"weather_{n}", id=f"call_{n}", type="function") for n in range(3)]
    longest = max(map(len, arguments))
    for at in range(0, longest, 5):
        events += [piece(n, text[at : at + 5]) for n, text in enumerate(arguments) if text[at:]]
    events.append(event({}, "tool_calls"))
    async with (
        Backend(lambda _: sse_script(*events, DONE)) as backend,
        running(backend) as gateway,
        AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-none", max_retries=0) as api,
    ):
        stream = await api.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        names: dict[int, str] = {}
        assembled: dict[int, str] = defaultdict(str)
        async for chunk in stream:
            for call in chunk.choices[0].delta.tool_calls or ():
                assert call.function is not None
                names[call.index] = call.function.name or names[call.index]
                assembled[call.index] += call.function.arguments or ""
        assert names == {n: f"weather_{n}" for n in range(3)}
        assert [json.loads(assembled[n]) for n in range(3)] == [json.loads(text) for text in arguments]


@pytest.mark.parametrize("fields", [{}, {"id": None}, {"id": None, "type": None}])
async def test_b158_pieces_of_arguments_without_an_id_pass_as_they_come(fields: dict[str, Any]) -> None:
    events = [
        piece(0, "", "f", id="call_1", type="function"),
        *[piece(0, f"{n},", **fields) for n in range(50)],
    ]
    gates = [Gate() for _ in events]
    end = Gate()

    def script(_: Request) -> Script:
        scripted: list[bytes | Gate] = []
        for one, gate in zip(events, gates, strict=True):
            scripted += [gate, one]
        return sse_script(*scripted, end, event({}, "tool_calls"), DONE)

    async with (
        Backend(script) as backend,
        running(backend) as gateway,
        await gateway.begin(b'{"stream":true}') as connection,
    ):
        gates[0].set()
        pieces = connection.pieces(await connection.read_head())
        for sent, gate in zip(events, [*gates[1:], end], strict=True):
            # The next is not sent before this one is here.
            assert await anext(pieces) == b"data: " + sent + b"\n\n"
            gate.set()
        assert b"".join([rest async for rest in pieces]).endswith(b"data: [DONE]\n\n")


ODD = [
    b'{"choices":[]}',
    b'{"id":"x"}',
    b'{"choices":[{"index":0,"delta":null}]}',
    b'{"choices":[{"index":0,"delta":{}}],"usage":null}',
    b'{"choices":[{"index":0,"delta":{"tool_calls":[]}}]}',
    b'{"choices":null}',
    b'{"choices":[null]}',
    b'{"choices":[7]}',
    b'{"choices":{"0":1}}',
    b'{"choices":[],"usage":7}',
    b'{"choices":[],"usage":[]}',
    b'{"choices":[],"usage":{"prompt_tokens":"many"}}',
    b"[]",
    b"[[]]",
    b'"text"',
    b"null",
    b"7",
    b"true",
    b"",
    b"{",
    b'{"error":null}',
]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("odd", ODD)
async def test_b159_an_odd_event_at_any_place_passes_and_nothing_is_logged(
    odd: bytes, asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    events = [odd, event({"content": "x"}), odd, event({}, "stop"), odd, DONE]
    body = {"stream": True, **({"stream_options": {"include_usage": True}} if asked else {})}
    async with Backend(lambda _: sse_script(*events)) as backend, running(backend) as gateway:
        answer = await gateway.post(body)
        assert (answer.status, answer.complete) == (200, True)
        assert answer.body == b"".join(b"data: " + one + b"\n\n" for one in events)
        assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
