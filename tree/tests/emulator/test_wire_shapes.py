"""The emulated engine's answers have the keys, statuses and errors that a real vLLM 0.32.0 was seen to
give."""

from __future__ import annotations

import orjson
import pytest

from gateway.emulator.settings import EngineSettings
from tests import client
from tests.emulator.captures import Exchange, captured, events, shape
from tests.emulator.running import CHAT, chat, engine, get, post

CAPTURED_ENGINE = EngineSettings(time_scale=0, model="tiny", max_model_len=8192)


async def replay(exchange: Exchange) -> client.Answer:
    async with engine(CAPTURED_ENGINE) as server:
        request = client.request(exchange.method, exchange.path, exchange.headers, exchange.request)
        return await client.send(server.port, request)


@pytest.mark.parametrize(
    "name",
    [
        *("chat", "chat-max-completion-tokens", "chat-unknown-field", "chat-request-id", "chat-tool-named"),
        *(
            "err-no-model",
            "err-empty-model",
            "err-bad-role",
            "chat-json-schema",
            "text",
            "text-n2",
            "text-batch",
        ),
        *("text-token-prompt", "get-v1-models", "get-version", "get-load", "chat-n2"),
    ],
)
async def test_a_plain_answer_has_the_captured_keys_in_their_order(name: str) -> None:
    exchange = captured(name)
    answer = await replay(exchange)
    assert answer.status == exchange.status == 200
    assert shape(orjson.loads(answer.body)) == shape(orjson.loads(exchange.answer))
    assert answer.value(b"server") == b"headrace-emulator"


@pytest.mark.parametrize(
    "name",
    [
        "stream",
        "stream-usage",
        "stream-usage-continuous",
        "stream-continuous-only",
        "text-stream",
        "text-stream-usage",
    ],
)
async def test_a_stream_has_the_captured_events_one_by_one(name: str) -> None:
    exchange = captured(name)
    answer = await replay(exchange)
    assert answer.complete
    assert answer.value(b"content-type") == b"text/event-stream; charset=utf-8"
    if "usage-continuous" in name:
        # Usage in every event is not emulated; the last two events are.
        assert shape(events(answer.body)[-2:]) == shape(events(exchange.answer)[-2:])
    else:
        assert shape(events(answer.body)) == shape(events(exchange.answer))
    assert len(answer.chunk_sizes) - 1 == len(events(answer.body)), "one HTTP chunk holds one event"


@pytest.mark.parametrize(
    "name", ["stream-n2", "text-stream-batch", "stream-tool-named", "stream-tool-required"]
)
async def test_a_stream_of_several_choices_or_a_tool_call_has_only_captured_kinds_of_events(
    name: str,
) -> None:
    exchange = captured(name)
    answer = await replay(exchange)
    ours = {repr(shape(event)) for event in events(answer.body)}
    theirs = {repr(shape(event)) for event in events(exchange.answer)}
    assert ours == theirs


@pytest.mark.parametrize(
    "name",
    [
        *("err-unknown-model", "err-unknown-model-stream", "err-text-unknown-model", "err-malformed-json"),
        *("err-no-messages", "err-empty-messages", "err-max-tokens-zero", "err-max-tokens-negative"),
        *("err-max-tokens-negative-stream", "err-max-tokens-string", "err-max-tokens-over-context"),
        *("err-unknown-path", "err-unknown-path-post", "err-method-get-chat", "err-method-delete-models"),
        *("err-priority-type", "err-n-zero", "err-n-greedy", "err-text-no-prompt", "err-text-empty-prompt"),
        *(
            "err-empty-body",
            "err-body-array",
            "err-body-null",
            "err-content-type-text",
            "err-content-type-none",
        ),
        *(
            "err-content-type-form",
            "err-tool-choice-no-tools",
            "err-tool-choice-unknown",
            "err-temperature-negative",
        ),
        *("err-stream-options-no-stream", "err-stream-type", "err-top-p", "get-v1-models-one", "v1-tokenize"),
    ],
)
async def test_an_error_is_the_captured_one_word_for_word(name: str) -> None:
    exchange = captured(name)
    answer = await replay(exchange)
    assert answer.status == exchange.status
    assert orjson.loads(answer.body) == orjson.loads(exchange.answer)


async def test_a_body_that_is_not_utf8_gets_the_captured_error() -> None:
    async with engine() as server:
        headers = [(b"content-type", b"application/json")]
        answer = await client.send(server.port, client.request("POST", CHAT, headers, b'{"model":"\xff"}'))
    assert answer.status == 400
    assert answer.body == captured("err-not-utf8").answer


async def test_a_prompt_beyond_the_context_gets_the_captured_error() -> None:
    async with engine(CAPTURED_ENGINE) as server:
        answer = await chat(server, "word " * 8192)
    assert answer.status == 400
    assert orjson.loads(answer.body) == orjson.loads(captured("err-prompt-too-long").answer)


async def test_a_wrong_method_names_the_right_ones() -> None:
    async with engine() as server:
        assert (await get(server, CHAT)).value(b"allow") == b"POST"


async def test_health_and_ping_are_empty_and_version_tells_an_emulation() -> None:
    async with engine() as server:
        assert [(await get(server, path)).body for path in ("/health", "/ping")] == [b"", b""]
        assert orjson.loads((await get(server, "/version")).body)["version"].endswith("+headrace-emulator")


async def test_tokenize_counts_what_usage_counts() -> None:
    async with engine() as server:
        messages = [{"role": "user", "content": "水利 and words"}]
        counted = orjson.loads((await post(server, "/tokenize", {"messages": messages})).body)
        used = orjson.loads((await post(server, CHAT, {"messages": messages})).body)["usage"]
    assert counted["count"] == used["prompt_tokens"] == len(counted["tokens"])
    assert shape({**counted, "tokens": None}) == shape(
        {**orjson.loads(captured("tokenize-chat").answer), "tokens": None}
    )


async def test_detokenize_answers_words() -> None:
    async with engine() as server:
        answer = orjson.loads((await post(server, "/detokenize", {"tokens": [1, 2, 3]})).body)
    assert list(answer) == ["prompt"]
    assert answer["prompt"]


async def test_a_request_id_of_header_or_body_becomes_the_answers_id() -> None:
    async with engine() as server:
        by_body = orjson.loads((await chat(server, request_id="from-body")).body)
        header = [(b"x-request-id", b'odd "one"'), (b"content-type", b"application/json")]
        body = b'{"prompt":"x","request_id":"ignored"}'
        by_header = await client.send(server.port, client.request("POST", "/v1/completions", header, body))
    assert by_body["id"] == "chatcmpl-from-body"
    assert orjson.loads(by_header.body)["id"] == 'cmpl-odd "one"'


async def test_a_transcription_tells_how_many_bytes_the_file_had() -> None:
    sound = bytes(range(256)) * 4 + b"\r\n--not the boundary"
    parts = (
        b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nemulated\r\n'
        b'--edge\r\nContent-Disposition: form-data; filename="a.wav"; name="file"\r\nContent-Type: audio/wav\r\n\r\n'
    )
    header = [(b"content-type", b"multipart/form-data; boundary=edge")]
    async with engine() as server:
        path = "/v1/audio/transcriptions"
        body = parts + sound + b"\r\n--edge--\r\n"
        answer = await client.send(server.port, client.request("POST", path, header, body, chunk_bytes=100))
        without = await client.send(server.port, client.request("POST", path, header, b"--edge--\r\n"))
    assert str(len(sound)) in orjson.loads(answer.body)["text"]
    assert without.status == 400


async def test_with_keys_only_v1_is_guarded() -> None:
    async with engine(EngineSettings(time_scale=0, api_keys=("sk-one", "sk-two"))) as server:
        assert (await get(server, "/metrics")).status == 200
        refused = await get(server, "/v1/models")
        assert (refused.status, refused.body) == (401, b'{"error":"Unauthorized"}')
        allowed = client.request("GET", "/v1/models", [(b"authorization", b"Bearer sk-two")])
        assert (await client.send(server.port, allowed)).status == 200


async def test_an_answer_or_a_vector_whose_length_is_not_asked_for_has_the_engines_default() -> None:
    async with engine(EngineSettings(time_scale=0, default_max_tokens=7, embedding_dimensions=3)) as server:
        answer = orjson.loads((await chat(server)).body)
        vectors = orjson.loads((await post(server, "/v1/embeddings", {"input": "one"})).body)
    assert answer["usage"]["completion_tokens"] == 7
    assert len(vectors["data"][0]["embedding"]) == 3


async def test_media_in_a_message_costs_its_tokens_and_names_its_own_prefix() -> None:
    def image(name: str) -> list[dict[str, object]]:
        parts = [{"type": "image_url", "image_url": {"url": name}}, {"type": "text", "text": "what is it"}]
        return [{"role": "user", "content": parts}]

    async with engine() as server:
        usages = [
            orjson.loads((await post(server, CHAT, {"messages": image(name)})).body)["usage"]
            for name in ("a", "b", "a")
        ]
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert all(usage["prompt_tokens"] > 256 for usage in usages)
    assert cached[:2] == [0, 0]
    assert cached[2] >= 256
