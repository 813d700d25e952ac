"""Bodies pass byte for byte, both ways; the two documented rewrites (alias, asked-for usage) change nothing else."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random

import pytest

from gateway.events import EventReader
from tests import client
from tests.backend import Backend, Ending, Framing, Gate, Request, Script, json_script, sse_script
from tests.framing import encode_chunk
from tests.running import CHAT, JSON, running
from tests.script import SSE, read_apart

ASKED = b'"stream_options":{"include_usage":true}'

REQUEST_BODIES = [
    b'{"model":"m","zz_unknown":{"a":[1,null]},"chat_template_kwargs":{},"cache_salt":"s","priority":-3}',
    b'{"model":"m","guided_json":{"type":"object","b":1,"a":2},"structured_outputs":{"regex":"a+"},"top_k":7,"min_p":0.10,"extra_body":{}}',
    b'{ "z" : 1 ,\r\n\t"model":"m", "a" : 2 , "b":{"d":1,"c":2}}  \n',
    b'{"model":"m","n":123456789012345678901234567890,"t":1.0,"e":1E400,"minus":-0.0,"f":0.10000000000000000555}',
    b'{"model":"x","model":"m","seed":1,"seed":2}',
    '{"model":"m","messages":[{"role":"user","content":"a\u2028b\u2029c\u0085d \U0001f600 信用卡"}]}'.encode(),
    b'{"model":"m","messages":[{"role":"user","content":"\\ud800 lone, \\u0000 nul, \\/ slash"}]}',
    b'{"model":"m","temperature":NaN,"top_p":Infinity,"low":-Infinity}',
    b'\xef\xbb\xbf{"model":"m","temperature":NaN}',
    b'{"model":"m","tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function"}}',
    b'{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[]}]}',
    b'{"model":"m","prompt":[[1,2],[3]],"stop":"x","max_tokens":1.0}',
    b'{"model":"m","prompt":"x","stream":false,"stream_options":null}',
    b'{"mod\\u0065l":"m"}',
    b'{"model":7,"messages":"nonsense"}',
    b"{}",
]


async def test_a_request_body_reaches_the_engine_as_it_was_sent() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for body in REQUEST_BODIES:
            for target in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/new/thing"):
                answer = await gateway.post(body, target)
                assert answer.status == 200, (body, answer.body)
                got = backend.exchanges.pop().request
                assert (got.body, got.target) == (body, target)
                assert got.values(b"content-length") == [b"%d" % len(body)]


@pytest.mark.parametrize(
    ("sent", "arrived"),
    [
        (b'{"model":"m","stream":true}', b'{"model":"m","stream":true,' + ASKED + b"}"),
        (b'{"stream":true, "n":10000000000000000000000 }\n', None),
        (b'{"stream":true,"stream_options":{}}', b'{"stream":true,' + ASKED + b"}"),
        (
            b'{"stream_options":{"chunk":1,"include_usage":false},"stream":true,"z":"}"}',
            b'{"stream_options":{"chunk":1,"include_usage":true},"stream":true,"z":"}"}',
        ),
        (b'{"stream":true,"stream_options":null,"a":1}', b'{"stream":true,' + ASKED + b',"a":1}'),
        (
            b'{"stream":true,"messages":[{"content":"\\"stream_options\\":{}}"}]}',
            b'{"stream":true,"messages":[{"content":"\\"stream_options\\":{}}"}],' + ASKED + b"}",
        ),
        (b'{"stream":true,' + ASKED + b"}", b'{"stream":true,' + ASKED + b"}"),
        (
            b'{"stream":true,"stream_options":{"continuous_usage_stats":true}}',
            b'{"stream":true,"stream_options":{"continuous_usage_stats":true}}',
        ),
        (b'{"stream":true,"stream_options":"bad"}', b'{"stream":true,"stream_options":"bad"}'),
        (b'{"stream":1}', b'{"stream":1}'),
    ],
)
async def test_usage_is_asked_for_by_a_splice_that_leaves_all_other_bytes(
    sent: bytes, arrived: bytes | None
) -> None:
    async with Backend() as backend, running(backend) as gateway:
        await gateway.post(sent)
        got = backend.exchanges[0].request
        if arrived is not None:
            assert got.body == arrived
        else:
            assert got.body.replace(b"," + ASKED, b"") == sent
            assert got.json()["stream_options"] == {"include_usage": True}
        assert got.values(b"content-length") == [b"%d" % len(got.body)]


async def test_usage_is_not_asked_for_outside_of_chat_and_completions() -> None:
    async with Backend() as backend, running(backend) as gateway:
        for target in ("/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/new"):
            body = b'{"model":"m","stream":true}'
            await gateway.post(body, target)
            assert backend.exchanges.pop().request.body == body


def choice(index: int, finish: bytes = b"null", more: bytes = b"") -> bytes:
    return b'data: {"choices":[{"index":%d,"delta":{"content":"a"},"finish_reason":%b}]%b}\n\n' % (
        index,
        finish,
        more,
    )


STAMP = b',"system_fingerprint":"v1"'
USAGE_EVENT = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}%b}\n\n' % STAMP
STOPPED = b'"stop"'
DONE = b"data: [DONE]\n\n"


async def test_of_several_choices_each_ends_with_the_fingerprint_that_the_engine_ended_a_stream_with() -> (
    None
):
    begun, held = Gate(), Gate()
    scripts: dict[str, list[bytes | Gate]] = {
        "one": [choice(0, STOPPED), USAGE_EVENT, DONE],
        "two": [choice(0, STOPPED), choice(1, STOPPED), USAGE_EVENT, DONE],
        "cut": [choice(0), held],
    }

    def script(request: Request) -> Script:
        name = request.json()["user"]
        if name == "cut":
            begun.set()
        ending = Ending.RESET if name == "cut" else Ending.CLEAN
        return Script(headers=[SSE], chunks=scripts[name], framing=Framing.CHUNKED, ending=ending)

    async def ask(name: str) -> client.Answer:
        return await gateway.post({"model": "m", "stream": True, "user": name})

    async with Backend(script) as backend, running(backend) as gateway:
        stamped = [choice(0, STOPPED, STAMP), choice(1, STOPPED, STAMP)]
        assert (await ask("two")).body == choice(0, STOPPED) + stamped[1] + DONE
        assert (await ask("two")).body == b"".join(stamped) + DONE
        assert (await ask("one")).body == stamped[0] + DONE
    async with Backend(script) as backend, running(backend) as gateway:
        cut = asyncio.create_task(ask("cut"))
        await begun.wait()
        await ask("one")
        held.set()
        assert not (await cut).body.endswith(DONE)
        assert (await ask("two")).body == b"".join(stamped) + DONE, "a stream that began before is no news"


ANSWERS = [
    b'{"choices":[{"logprobs":{"a":-Infinity,"b":NaN,"c":1e400,"d":-0.0,"e":12345678901234567890}}],"x":1,"x":2}',
    b'{"text":"\\ud800","raw":"' + "\u2028".encode() + b'"}\n\n  ',
    gzip.compress(b'{"a":1}', mtime=0),
    bytes(range(256)) * 40,
    b"<html>teapot</html>",
    b"",
]


@pytest.mark.parametrize("framing", [Framing.LENGTH, Framing.CHUNKED, Framing.UNTIL_CLOSE])
async def test_an_answers_body_and_status_reach_the_client_as_they_were_sent(framing: Framing) -> None:
    sent: list[Script] = []

    def script(_: Request) -> Script:
        return sent[-1]

    async with Backend(script) as backend, running(backend) as gateway:
        for body in ANSWERS:
            for status in (200, 201, 400, 401, 404, 413, 418, 422, 429, 500, 503):
                for stream in (b"false", b"true"):
                    headers = [
                        (b"content-type", b"application/json"),
                        (b"Retry-After", b"7"),
                        (b"x-ratelimit-remaining-requests", b"0"),
                    ]
                    if body[:2] == b"\x1f\x8b":
                        headers.append((b"content-encoding", b"gzip"))
                    half = len(body) // 2
                    chunks = [body[:half], body[half:]]
                    sent.append(Script(status=status, headers=headers, chunks=chunks, framing=framing))
                    answer = await gateway.post(b'{"model":"m","stream":%b}' % stream)
                    assert (answer.status, answer.body, answer.complete) == (status, body, True)
                    for name, value in headers:
                        assert answer.value(name) == value
                    assert answer.value(b"x-headrace-reason") is None


STREAM = (
    'data: {"choices":[{"delta":{"content":"a\u2028b\u2029c\u0085d 信用卡"}}]}\n\n'
    ": PROCESSING\n\n:\n\n:ping\n\n"
    'id: 7\nevent: x\ndata: {"choices":[{"delta":{"reasoning":"r"},"finish_reason":null}]}\n\n'
    'data: {"choices":[{"delta":{"zz":1,"tool_calls":[{"index":0,"id":null}]}}]}\r\n\r\n'
    'data: {"choices":[],"x":"y"}\n\ndata: []\n\ndata: "text"\n\ndata: null\n\ndata: {"choices"\n\n'
    'data: {"choices":[{"delta":{},"logprobs":{"logprob":-Infinity},"finish_reason":"stop"}]}\n\n'
).encode()
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pieces of streams the gateway has looked at so far."""
    reads = [0]

    class Counting(EventReader):
        def feed(self, data: bytes) -> bytes:
            reads[0] += 1
            return super().feed(data)

    monkeypatch.setattr("gateway.relay.EventReader", Counting)
    return reads


async def test_a_stream_cut_anywhere_is_passed_whole_and_its_usage_kept_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = counted_reads(monkeypatch)
    whole = STREAM + USAGE + DONE
    at = [0]

    def script(request: Request) -> Script:
        gate = read_apart()
        chunks: list[bytes | Gate] = [whole[: at[0]], gate, whole[at[0] :]]
        return Script(headers=[SSE], chunks=chunks, framing=Framing.CHUNKED)

    async with Backend(script) as backend, running(backend) as gateway, await gateway.connect() as connection:
        for at[0] in range(len(whole) + 1):
            await connection.send(client.request("POST", CHAT, [JSON], b'{"stream":true}'))
            answer = await connection.read_answer()
            assert (answer.body, answer.complete) == (STREAM + DONE, True), at
        assert gateway.metric("headrace_tokens_total", kind="prompt") == 3 * at[0] + 3
        assert reads[0] >= 2 * at[0], "the pieces came apart"
        assert gateway.metric("headrace_cut_answers_total") == 0
        assert len({exchange.connection for exchange in backend.exchanges}) == 1


@pytest.mark.parametrize(
    "stream",
    [
        STREAM + USAGE + DONE,  # the client asked for usage itself
        b": warming up\n\n" + STREAM + DONE,
        STREAM.replace(b"\n", b"\r\n").replace(b"\r\r", b"\r") + DONE,
        STREAM.replace(b"\r\n", b"\n").replace(b"\n", b"\r") + b"data: [DONE]\r\r",
        b'data: {"choices":[{"delta":{"content":"' + b"x" * 2**20 + b'"}}]}\n\n' + DONE,
        STREAM.rstrip(b"\n"),  # a finish reason, but no blank line at the end
        STREAM + b"data: [DONE]",
        STREAM
        + b'data: {"usage":{"prompt_tokens":1,"completion_tokens":1},"choices":[{"finish_reason":"stop"}]}',
    ],
    ids=["usage", "comment-first", "crlf", "cr", "1-mib", "no-end", "bare-done", "late-usage"],
)
async def test_a_streams_bytes_are_the_engines(stream: bytes) -> None:
    def script(_: Request) -> Script:
        return Script(
            headers=[SSE],
            chunks=[stream[at : at + 1000] for at in range(0, len(stream), 1000)],
            framing=Framing.CHUNKED,
        )

    async with Backend(script) as backend, running(backend) as gateway:
        answer = await gateway.post(b'{"stream":true,' + ASKED + b"}")
        assert (answer.body, answer.complete) == (stream, True)
        assert b"data: :" not in answer.body
        assert gateway.metric("headrace_cut_answers_total") == 0


async def test_a_stream_with_a_length_comes_in_chunks_since_it_may_get_shorter_or_end_with_an_error() -> None:
    def script(_: Request) -> Script:
        return Script(headers=[SSE], chunks=[STREAM, USAGE, DONE])

    async with Backend(script) as backend, running(backend) as gateway:
        shorter = await gateway.post(b'{"stream":true}')
        assert (shorter.body, shorter.complete) == (STREAM + DONE, True)
        assert shorter.value(b"content-length") is None
        same = await gateway.post(b'{"stream":true,' + ASKED + b"}")
        assert (same.body, same.complete) == (STREAM + USAGE + DONE, True)
        assert same.value(b"content-length") is None


async def test_a_compressed_stream_passes_untouched_and_nothing_is_compressed_here() -> None:
    packed = gzip.compress(STREAM + DONE, mtime=0)

    def script(request: Request) -> Script:
        if request.value(b"x-packed"):
            headers = [SSE, (b"content-encoding", b"gzip")]
            return Script(headers=headers, chunks=[packed[:50], packed[50:]], framing=Framing.CHUNKED)
        return Script(headers=[SSE], chunks=[STREAM, DONE], framing=Framing.CHUNKED)

    async with Backend(script) as backend, running(backend) as gateway:
        accepts = (b"Accept-Encoding", b"gzip, br")
        answer = await gateway.post(b'{"stream":true}', headers=[accepts, (b"x-packed", b"1")])
        assert (answer.body, answer.value(b"content-encoding")) == (packed, b"gzip")
        answer = await gateway.post(b'{"stream":true}', headers=[accepts])
        assert (answer.body, answer.value(b"content-encoding")) == (STREAM + DONE, None)
        assert backend.exchanges[1].request.value(b"accept-encoding") == b"gzip, br"


async def test_an_answers_head_and_first_event_do_not_wait_for_what_follows() -> None:
    before, after = Gate(), Gate()

    def script(_: Request) -> Script:
        return sse_script(before, b'{"choices":[{"delta":{}}]}', after, b"[DONE]")

    async with (
        Backend(script) as backend,
        running(backend) as gateway,
        await gateway.begin(b'{"stream":true}') as connection,
    ):
        head = await connection.read_head()
        before.set()
        pieces = connection.pieces(head)
        assert await anext(pieces) == b'data: {"choices":[{"delta":{}}]}\n\n'
        after.set()
        assert [piece async for piece in pieces] == [DONE]


def form(parts: list[tuple[bytes, bytes]], audio: bytes, *, model_last: bool) -> bytes:
    file = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + audio + b"\r\n"
    fields = b"".join(
        b'--B\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % part for part in parts
    )
    return (file + fields if model_last else fields + file) + b"--B--\r\n"


@pytest.mark.parametrize("model_last", [True, False])
async def test_25_mb_of_audio_arrive_whole_with_every_form_field(model_last: bool) -> None:
    audio = random.Random(1).randbytes(25_000_000)
    fields = [
        (b"stream", b"true"),
        (b"timestamp_granularities[]", b"word"),
        (b"timestamp_granularities[]", b"segment"),
        (b"zz", "ü".encode()),
        (b"model", b"m"),
    ]
    body = form(fields, audio, model_last=model_last)
    content_type = (b"Content-Type", b"multipart/form-data; boundary=B")
    async with Backend(lambda _: sse_script(b"one", b"two")) as backend, running(backend) as gateway:
        raw = client.request("POST", "/v1/audio/transcriptions", [content_type], body)
        answer = await gateway.send(raw)
        assert answer.body == b"data: one\n\ndata: two\n\n"
        got = backend.exchanges[0].request
        assert hashlib.sha256(got.body).digest() == hashlib.sha256(body).digest()
        assert got.value(b"content-type") == content_type[1]
        wrong = form([(b"model", b"unknown")], b"x", model_last=model_last)
        assert (
            await gateway.send(client.request("POST", "/v1/audio/translations", [content_type], wrong))
        ).status == 404


async def test_a_chunked_request_body_arrives_complete_and_with_one_framing() -> None:
    json_body = json.dumps({"model": "m", "text": "é" * 3000}).encode()
    form_body = form([(b"model", b"m")], bytes(range(256)) * 8, model_last=True)
    async with Backend() as backend, running(backend) as gateway:
        for target, body in ((CHAT, json_body), ("/v1/audio/transcriptions", form_body)):
            answer = await gateway.send(client.request("POST", target, [JSON], body, chunk_bytes=7))
            assert answer.status == 200
            got = backend.exchanges.pop().request
            assert got.body == body
            assert got.values(b"content-length") == [b"%d" % len(body)]
            assert got.value(b"transfer-encoding") is None


async def test_trailers_of_either_side_are_dropped_and_the_body_stays_whole() -> None:
    raw_answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
        + encode_chunk(b"abc")
        + b"0\r\nx-sum: 1\r\n\r\n"
    )
    raw_request = client.request("POST", CHAT, [JSON, (b"Trailer", b"X-Sum")], b'{"a":1}', chunk_bytes=3)
    raw_request = raw_request.removesuffix(b"\r\n") + b"X-Sum: 1\r\n\r\n"
    async with (
        Backend(lambda _: Script(chunks=[raw_answer], framing=Framing.RAW)) as backend,
        running(backend) as gateway,
        await gateway.connect() as connection,
    ):
        for _ in range(2):
            await connection.send(raw_request)
            answer = await connection.read_answer()
            assert (answer.body, answer.complete, answer.value(b"x-sum")) == (b"abc", True, None)
        request = backend.exchanges[1].request
        assert (request.body, request.value(b"x-sum"), request.value(b"trailer")) == (b'{"a":1}', None, None)
        assert request.values(b"content-length") == [b"7"]


async def test_interim_answers_of_an_engine_are_skipped() -> None:
    def script(_: Request) -> Script:
        early = [b"HTTP/1.1 103 Early Hints\r\nlink: </a>", b"HTTP/1.1 102 Processing"]
        return Script(informational=early, chunks=[b"ok"], ending=Ending.CLEAN)

    async with Backend(script) as backend, running(backend) as gateway:
        for _ in range(2):
            answer = await gateway.post({})
            assert (answer.status, answer.body, answer.head.interim) == (200, b"ok", ())
            assert answer.value(b"link") is None


async def test_an_odd_answer_is_not_mistaken_for_another_one() -> None:
    """A second answer to one request must not become the next one's."""
    twice = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" * 2
    async with (
        Backend(lambda _: Script(chunks=[twice], framing=Framing.RAW)) as backend,
        running(backend) as gateway,
    ):
        for _ in range(3):
            assert (await gateway.post({})).body == b"ok"
        assert len({exchange.connection for exchange in backend.exchanges}) == 3


async def test_no_bookkeeping_of_the_gateway_enters_a_body() -> None:
    def strict(request: Request) -> Script:
        unknown = request.json().keys() - {"model", "messages"}
        return json_script(
            {"error": {"message": f"{unknown}"}} if unknown else {}, status=400 if unknown else 200
        )

    async with Backend(strict) as backend, running(backend, window=1) as gateway:
        headers = [(b"x-headrace-session", b"s"), (b"x-priority", b"emergency"), (b"x-request-id", b"r")]
        answer = await gateway.post({"model": "m", "messages": []}, headers=headers)
        assert (answer.status, answer.body) == (200, b"{}")


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_may_announce_the_length_it_stands_for(status: int) -> None:
    raw = b"HTTP/1.1 %d x\r\ncontent-length: 1234\r\n\r\n" % status
    async with (
        Backend(lambda _: Script(chunks=[raw], framing=Framing.RAW)) as backend,
        running(backend) as gateway,
        await gateway.connect() as connection,
    ):
        for _ in range(3):
            await connection.send(client.request("GET", "/v1/files/1"))
            answer = await connection.read_answer()
            assert (answer.status, answer.body, answer.complete) == (status, b"", True)
        assert len({exchange.connection for exchange in backend.exchanges}) == 1
