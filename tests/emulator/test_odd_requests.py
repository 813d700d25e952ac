"""Requests that an engine refuses or answers in an unusual form, and bytes that are no requests."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.emulator.settings import EngineSettings
from tests import client
from tests.emulator.running import JSON, chat, chat_request, decoded, engine, post, until

EMBEDDINGS = "/v1/embeddings"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
FORM = b"multipart/form-data; boundary=x"


async def refusal(path: str, body: dict[str, Any]) -> tuple[int, str | None]:
    async with engine() as server:
        answer = await post(server, path, body)
        return answer.status, decoded(answer)["error"]["param"]


async def test_an_embedding_of_nothing_or_of_no_dimensions_is_refused() -> None:
    assert await refusal(EMBEDDINGS, {}) == (400, "body.input")
    assert await refusal(EMBEDDINGS, {"input": []}) == (400, "body.input")
    assert await refusal(EMBEDDINGS, {"input": "a", "dimensions": -1}) == (400, "dimensions")


async def test_embeddings_beyond_the_bound_of_the_queue_are_a_503() -> None:
    async with engine(EngineSettings(time_scale=0, max_num_queued_reqs=1)) as server:
        assert (await post(server, EMBEDDINGS, {"input": ["a", "b"]})).status == 503
        assert (await post(server, EMBEDDINGS, {"input": "a"})).status == 200


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (FORM, b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n'),
        (b"application/json", b"{}"),
        (b"multipart/form-data", b""),
    ],
)
async def test_a_transcription_without_a_file_is_refused(content_type: bytes, body: bytes) -> None:
    async with engine(EngineSettings(time_scale=0, model="m")) as server:
        sent = client.request("POST", TRANSCRIPTIONS, [(b"Content-Type", content_type)], body)
        answer = await client.send(server.port, sent)
        assert (answer.status, decoded(answer)["error"]["param"]) == (400, "body.file")


FILE = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nsound\r\n--x--\r\n'


@pytest.mark.parametrize(
    "request_",
    [
        client.request("POST", EMBEDDINGS, [JSON], b'{"input":"a"}'),
        client.request("POST", TRANSCRIPTIONS, [(b"Content-Type", FORM)], FILE),
    ],
    ids=["embeddings", "transcriptions"],
)
async def test_a_reset_hits_every_kind_of_request(request_: bytes) -> None:
    async with engine() as server:
        assert (await client.send(server.port, request_)).status == 200
        server.faults.reset = 0
        async with await client.connect(server.port) as connection:
            await connection.send(request_)
            assert await connection.read_until_closed() == b""
            assert connection.reset_by_peer


async def test_a_prompt_is_tokenized_as_a_chat_is() -> None:
    async with engine() as server:
        prompt = decoded(
            await post(server, "/tokenize", {"prompt": "two words", "return_token_strs": "true"})
        )
        assert "".join(prompt["token_strs"]) == "two words"
        assert prompt["count"] == len(prompt["tokens"]) > 0
        chat_ = decoded(await post(server, "/tokenize", {"messages": [{"role": "user", "content": "two"}]}))
        assert chat_["token_strs"] is None and chat_["count"] > 0


async def test_a_message_that_is_no_object_is_refused_and_a_part_may_be_a_string() -> None:
    async with engine() as server:
        answer = await post(server, "/v1/chat/completions", {"messages": ["hello"]})
        assert answer.status == 400
        assert decoded(answer)["error"]["param"].startswith("body.messages.0")
        counts = []
        for content in ("abc def", ["abc", " def"], [{"type": "text", "text": "abc def"}]):
            body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
            usage = decoded(await post(server, "/v1/chat/completions", body))["usage"]
            counts.append(usage["prompt_tokens"])
        assert len(set(counts)) == 1


async def test_a_stop_string_that_does_not_come_ends_nothing() -> None:
    async with engine() as server:
        [choice] = decoded(await chat(server, max_tokens=5, stop=["\u0000 never said"]))["choices"]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("length", None)


async def test_tools_that_may_not_be_called_are_not_called() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    async with engine() as server:
        for choice, calls in (("none", False), ("auto", True)):
            answer = decoded(await chat(server, max_tokens=9, tools=tools, tool_choice=choice))
            assert bool(answer["choices"][0]["message"].get("tool_calls")) is calls


async def test_an_answer_in_json_without_a_schema_is_an_object() -> None:
    async with engine() as server:
        answer = decoded(await chat(server, response_format={"type": "json_object"}))
        assert isinstance(orjson.loads(answer["choices"][0]["message"]["content"]), dict)
        plain = decoded(await chat(server, response_format={"type": "text"}, max_tokens=3))
        assert plain["usage"]["completion_tokens"] == 3


async def test_bytes_that_are_no_request_get_a_400_and_the_connection_s_end() -> None:
    async with engine() as server, await client.connect(server.port) as connection:
        await connection.send(b"what?\r\n\r\n")
        answer = await connection.read_until_closed()
        assert answer.startswith(b"HTTP/1.1 400 ") and b"connection: close" in answer.lower()


async def test_bytes_that_are_no_request_behind_one_under_way_end_both() -> None:
    async with engine(EngineSettings(base_ms=1e9)) as server, await client.connect(server.port) as connection:
        await connection.send(chat_request())
        await until(lambda: server.engine.load == 1)
        await connection.send(b"what?\r\n\r\n")
        assert await connection.read_until_closed() == b""
        await until(lambda: server.engine.load == 0)


async def test_a_connection_that_asks_for_another_protocol_is_closed() -> None:
    async with engine() as server, await client.connect(server.port) as connection:
        upgrade = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
        await connection.send(client.request("GET", "/v1/realtime", upgrade))
        assert (await connection.read_until_closed()).startswith(b"HTTP/1.1 404 ")


async def test_a_listener_that_listens_already_stays_as_it_is() -> None:
    async with engine() as server:
        port = server.port
        await server.listen()
        assert (server.port, (await chat(server)).status) == (port, 200)


async def test_a_refusal_without_an_end_takes_the_place_of_one_that_had_one() -> None:
    async with engine() as server, engine() as later:
        server.refuse(0.001)
        server.refuse()
        later.refuse(0.002)  # timers of one loop go off in their order
        await until(lambda: later.accepting)
        assert not server.accepting
