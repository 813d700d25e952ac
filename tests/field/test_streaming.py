"""Streams: every event reaches the client whole, in its order, when it was sent, and nothing is made of it here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from tests import client
from tests.backend import Backend, Framing, Gate, Request, Script, sse_script
from tests.emulator.running import chat_body, engine
from tests.field.official import CLIENTS, Heard
from tests.running import CHAT, JSON, Running, running
from tests.script import SSE, read_apart
from tests.system.test_bytes import counted_reads

STREAM = b'{"model":"m","stream":true}'
ASKING = b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'

clients = pytest.mark.parametrize("hears", CLIENTS.values(), ids=CLIENTS.keys())
Hears = Callable[[Running, int], Awaitable[list[Heard]]]


def chunk(delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": None, **fields}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def raw_stream(*pieces: bytes | Gate) -> Script:
    return Script(headers=[SSE], chunks=pieces, framing=Framing.CHUNKED)


def events(body: bytes) -> list[bytes]:
    """As a strict reader sees them: lines end with LF, CR or CR LF and nothing else."""
    unified = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return [event for event in unified.split(b"\n\n") if event]


def data_of(body: bytes) -> list[Any]:
    said = [event.removeprefix(b"data: ") for event in events(body)]
    return [json.loads(one) for one in said if one != b"[DONE]"]


def saying(deltas: Iterable[dict[str, Any]], **last: Any) -> list[bytes]:
    told = [json.dumps(chunk(delta)).encode() for delta in deltas]
    return [*told, json.dumps(chunk({}, finish_reason="stop", **last)).encode(), b"[DONE]"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
async def test_b002_an_event_cut_over_two_reads_is_one_event_wherever_it_is_cut(
    end: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted_reads(monkeypatch)
    said = [b'{"choices":[{"index":0,"delta":{"content":"a"}}]}', USAGE, b"[DONE]"]
    whole = b"".join(b"data: " + one + end + end for one in said)
    at = [0]

    def script(_: Request) -> Script:
        gate = read_apart()
        return raw_stream(whole[: at[0]], gate, whole[at[0] :])

    async with Backend(script) as backend, running(backend) as gateway, await gateway.connect() as connection:
        for at[0] in range(1, len(whole)):
            await connection.send(client.request("POST", CHAT, [JSON], ASKING))
            answer = await connection.read_answer()
            assert (answer.body, answer.complete) == (whole, True), at
            assert gateway.metric("headrace_tokens_total", kind="completion") == 2 * at[0]
        assert gateway.metric("headrace_cut_answers_total") == 0
        assert reads[0] == 2 * (len(whole) - 1), "the pieces came apart"
    assert "pars" not in caplog.text


async def test_b003_only_lf_and_cr_end_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d"
    said = json.dumps(chunk({"content": text}), ensure_ascii=False).encode()
    last = b'{"choices":[{"index":0,"delta":{"content":"\xe2\x80\xa8"},"finish_reason":"stop"}]}'
    stream = b"".join(b"data: " + one + b"\n\n" for one in (said, last, USAGE, b"[DONE]"))
    async with Backend(lambda _: raw_stream(stream)) as backend, running(backend) as gateway:
        answer = await gateway.post(ASKING)
        assert (answer.body, answer.complete) == (stream, True)
        assert data_of(answer.body)[0]["choices"][0]["delta"]["content"] == text
        assert gateway.metric("headrace_tokens_total", kind="completion") == 2
        assert gateway.metric("headrace_cut_answers_total") == 0
        assert gateway.metric("headrace_requests_total", status="2xx") == 1


@clients
async def test_b005_comments_of_an_engine_stay_comments(hears: Hears) -> None:
    one, last, done = (b"data: " + said + b"\n\n" for said in saying([{"content": "a"}]))
    stream = b": PROCESSING\n\n" + one + b":\n" + b":ping\n\n" + last + b":\n\n: bye\n\n" + done
    async with Backend(lambda _: raw_stream(stream)) as backend, running(backend) as gateway:
        answer = await gateway.post(STREAM)
        assert answer.body == stream and answer.complete
        assert not any(line.startswith(b"data: :") for line in answer.body.splitlines())
        [heard] = await hears(gateway, 1)
        assert heard.error is None
        assert [one["choices"][0]["delta"].get("content") for one in heard.chunks] == ["a", None]
        assert gateway.metric("headrace_cut_answers_total") == 0


@clients
async def test_b006_nothing_is_put_into_a_stream_while_it_is_silent(hears: Hears) -> None:
    ids = b"".join(
        b"id: 7\ndata: " + said + b"\n\n" for said in saying([{"content": word} for word in "abc"])
    )
    half = ids.find(b"id: 7", 10)

    def script(_: Request) -> Script:
        before, inside = Gate(), Gate()
        loop = asyncio.get_running_loop()
        loop.call_later(1.2, before.set)  # whoever puts something in each second has done so by then
        loop.call_later(2.4, inside.set)
        return raw_stream(before, ids[:half], inside, ids[half:])

    async with Backend(script) as backend, running(backend) as gateway:
        answer, [heard] = await asyncio.gather(gateway.post(STREAM), hears(gateway, 1))
        assert answer.body == ids
        assert heard.error is None and len(heard.chunks) == 4


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"], ids=["nothing", "lf", "crlf"])
async def test_b008_a_last_event_without_its_blank_line_reaches_the_client_and_is_read(end: bytes) -> None:
    first = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":%b}' % (
        b'{"prompt_tokens":3,"completion_tokens":2}'
    )
    async with Backend(lambda _: raw_stream(first, last + end)) as backend, running(backend) as gateway:
        for body in (STREAM, ASKING):
            answer = await gateway.post(body)
            assert (answer.body, answer.complete) == (first + last + end, True)
        assert gateway.metric("headrace_cut_answers_total") == 0, "its finish was noticed"
        assert gateway.metric("headrace_tokens_total", kind="completion") == 4


async def test_b009_usage_comes_as_the_engine_sends_it() -> None:
    def masked(body: bytes) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in one.items() if key not in ("id", "created", "system_fingerprint")}
            for one in data_of(body)
        ]

    raw = chat_body(
        model="emulated", stream=True, max_tokens=4, seed=1, stream_options={"include_usage": True}
    )
    async with engine() as only, running(only) as gateway:
        direct = await client.send(only.port, client.request("POST", CHAT, [JSON], raw))
        answer = await gateway.post(raw)
        assert masked(direct.body) == masked(answer.body)
        usage = masked(answer.body)[-1]
        assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 4
        assert events(answer.body)[-1] == b"data: [DONE]"
        assert [one for one in masked(answer.body) if one.get("usage")] == [usage], "one, and the last"


async def test_b011_every_key_of_every_chunk_is_kept_null_or_not() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": []}]}
    chunks = [
        chunk({"role": "assistant", "content": "", "refusal": None}, logprobs=None),
        chunk({"content": "a"}, logprobs=logprobs, stop_reason=None),
        chunk({}, finish_reason="stop", logprobs=None, stop_reason=None) | {"usage": None},
    ]
    said = [json.dumps(one).encode() for one in chunks]
    async with (
        Backend(lambda _: sse_script(*said, USAGE, b"[DONE]")) as backend,
        running(backend) as gateway,
    ):
        answer = await gateway.post(b'{"model":"m","stream":true,"logprobs":true,"top_logprobs":1}')
        assert data_of(answer.body) == chunks


async def test_b012_chunks_of_a_vendors_fields_alone_pass() -> None:
    deltas: list[dict[str, Any]] = [
        {"reasoning": "r"},
        {"reasoning_content": "c"},
        {"zz": [1, None]},
        {"token_ids": [1, 2]},
    ]
    said = saying(deltas)
    async with Backend(lambda _: sse_script(*said)) as backend, running(backend) as gateway:
        answer = await gateway.post(STREAM)
        assert [one["choices"][0]["delta"] for one in data_of(answer.body)] == [*deltas, {}]


async def test_b014_a_client_that_takes_gzip_gets_each_event_when_it_is_sent_and_uncompressed() -> None:
    gates, end = [Gate() for _ in range(10)], Gate()
    said = b'{"choices":[{"index":0,"delta":{"content":"x"}}]}'
    held: list[bytes | Gate] = [part for gate in gates for part in (gate, said)]
    async with (
        Backend(lambda _: sse_script(*held, end, b"[DONE]")) as backend,
        running(backend) as gateway,
        await gateway.begin(STREAM, headers=[(b"Accept-Encoding", b"gzip, br")]) as connection,
    ):
        head = await connection.read_head()
        assert head.value(b"content-encoding") is None
        pieces = connection.pieces(head)
        for gate in gates:
            gate.set()
            assert await anext(pieces) == b"data: " + said + b"\n\n"
        end.set()
        assert [piece async for piece in pieces] == [b"data: [DONE]\n\n"]


def typed(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


LONG = "x" * 40_000
OTHER_ENDS = {
    "responses": ("/v1/responses", typed("response.output_text.delta", delta="a"), typed("response.completed", response={"status": "completed"})),
    "responses, SGLang's long one": ("/v1/responses", typed("response.created"), typed("response.completed", response={"text": LONG})),
    "responses, vLLM's long one": (
        "/v1/responses",
        typed("response.created"),
        b'event: response.completed\ndata: {"response":{"text":"%b"},"type":"response.completed"}\n\n' % LONG.encode(),
    ),
    "messages": ("/v1/messages", typed("content_block_delta", delta={"text": "a"}), typed("message_stop")),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER_ENDS)
@pytest.mark.parametrize("ends", [True, False], ids=["said so", "silently"])
async def test_b015_a_stream_of_another_api_is_whole_only_where_its_engine_says_so(
    case: str, ends: bool
) -> None:
    target, first, last = OTHER_ENDS[case]
    chunks = [first, *((last[at : at + 5000] for at in range(0, len(last), 5000)) if ends else ())]
    script = Script(headers=[SSE], chunks=chunks, framing=Framing.CHUNKED)
    async with Backend(lambda _: script) as backend, running(backend) as gateway:
        answer = await gateway.post({"model": "m", "stream": True, "input": "x", "messages": []}, target)
        assert answer.status == 200 and answer.complete is ends
        if ends:
            assert answer.body == first + last
            assert gateway.metric("headrace_cut_answers_total") in (None, 0)
            return
        assert answer.body.startswith(first + b"event: error\ndata: ")
        told = json.loads(answer.body.removeprefix(first).partition(b"data: ")[2])
        assert told["type"] == "error"
        assert "without finishing" in (
            told["message"] if target == "/v1/responses" else told["error"]["message"]
        )
        assert (
            sum(
                gateway.metric("headrace_cut_answers_total", backend=one.id) or 0
                for one in gateway.gateway.router.fleet
            )
            == 1
        )
