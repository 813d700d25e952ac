"""The official openai client, synchronous and asynchronous, takes the emulated engine for a real one."""

from __future__ import annotations

import asyncio
import json

import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError, OpenAI
from openai.types.chat import (
    ChatCompletionMessageParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionToolParam,
)

from gateway.emulator.server import EmulatedServer
from tests.emulator.running import engine

MODEL = "emulated"
USER: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What flows here?"}]
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "set_gate",
            "description": "Open or close a gate",
            "parameters": {
                "type": "object",
                "properties": {
                    "gate": {"type": "string", "enum": ["north", "south"]},
                    "open": {"type": "boolean"},
                    "level": {"$ref": "#/$defs/level"},
                    "note": {"type": "string"},
                },
                "required": ["gate", "open", "level"],
                "$defs": {"level": {"type": "integer", "minimum": 3}},
            },
        },
    }
]
NAMED: ChatCompletionToolChoiceOptionParam = {"type": "function", "function": {"name": "set_gate"}}
EXPECTED_ARGUMENTS = {"gate": "north", "open": True, "level": 3}


def asynchronous(server: EmulatedServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


async def test_plain_and_streamed_answers_are_the_same_text_and_usage() -> None:
    async with engine() as server, asynchronous(server) as client:
        plain = await client.chat.completions.create(model=MODEL, messages=USER, max_tokens=12)
        stream = await client.chat.completions.create(
            model=MODEL, messages=USER, max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == plain.choices[0].message.content
    assert chunks[-1].choices == []
    assert plain.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens == 12
    assert chunks[-1].usage.prompt_tokens == plain.usage.prompt_tokens


async def test_the_cache_shows_in_usage() -> None:
    async with engine() as server, asynchronous(server) as client:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "one long question " * 50}]
        cached, tokens = [], 0
        for _ in range(2):
            answer = await client.chat.completions.create(model=MODEL, messages=messages)
            assert answer.usage is not None
            assert answer.usage.prompt_tokens_details is not None
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
            tokens = answer.usage.prompt_tokens
    assert cached == [0, tokens // 16 * 16]


@pytest.mark.parametrize("choice", ["required", "auto", NAMED])
async def test_the_tool_flow_runs_to_its_end(choice: ChatCompletionToolChoiceOptionParam) -> None:
    async with engine() as server, asynchronous(server) as client:
        asked = await client.chat.completions.create(
            model=MODEL,
            messages=USER,
            tools=TOOLS,
            tool_choice=choice,
        )
        message = asked.choices[0].message
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        assert call.type == "function"
        assert json.loads(call.function.arguments) == EXPECTED_ARGUMENTS
        assert asked.choices[0].finish_reason == ("stop" if choice == NAMED else "tool_calls")
        told: list[ChatCompletionMessageParam] = [
            *USER,
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.function.name, "arguments": call.function.arguments},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": call.id, "content": "done"},
        ]
        ended = await client.chat.completions.create(model=MODEL, messages=told, tools=TOOLS)
    assert ended.choices[0].message.tool_calls is None
    assert ended.choices[0].message.content


async def test_a_streamed_tool_call_is_put_together_by_the_clients_own_helper() -> None:
    async with (
        engine() as server,
        asynchronous(server) as client,
        client.chat.completions.stream(
            model=MODEL, messages=USER, tools=TOOLS, tool_choice="required"
        ) as stream,
    ):
        completion = await stream.get_final_completion()
    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert json.loads(calls[0].function.arguments) == EXPECTED_ARGUMENTS
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_a_tool_call_that_is_cut_short_is_text() -> None:
    async with engine() as server, asynchronous(server) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=USER, tools=TOOLS, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls is None


async def test_a_stop_string_ends_the_text_before_itself_plain_and_streamed() -> None:
    async with engine() as server, asynchronous(server) as client:
        whole = (await client.chat.completions.create(model=MODEL, messages=USER)).choices[0].message.content
        assert whole is not None
        stop = whole[len(whole) // 2 :][:3]
        cut = await client.chat.completions.create(model=MODEL, messages=USER, stop=[stop, "never there"])
        stream = await client.chat.completions.create(model=MODEL, messages=USER, stop=stop, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == whole[: whole.index(stop)] == streamed


async def test_several_choices_differ_and_are_all_counted() -> None:
    async with engine() as server, asynchronous(server) as client:
        answer = await client.chat.completions.create(
            model=MODEL, messages=USER, n=3, max_completion_tokens=6
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 18
        assert len({choice.message.content for choice in answer.choices}) == 3
        stream = await client.completions.create(
            model=MODEL, prompt=["one", "two"], n=2, max_tokens=4, stream=True
        )
        events = [chunk.choices[0].model_dump() async for chunk in stream]
        ends = [event["index"] for event in events if event["finish_reason"]]
    assert sorted(ends) == [0, 1, 2, 3]


async def test_embeddings_and_transcriptions_and_models() -> None:
    async with engine() as server, asynchronous(server) as client:
        vectors = await client.embeddings.create(model=MODEL, input=["one", "two", "one"], dimensions=5)
        plain = await client.embeddings.create(
            model=MODEL, input="one", dimensions=5, encoding_format="float"
        )
        heard = await client.audio.transcriptions.create(model=MODEL, file=("a.wav", b"x" * 1234))
        models = [model.id async for model in client.models.list()]
    one, two, again = (item.embedding for item in vectors.data)
    assert one == again != two
    assert plain.data[0].embedding == pytest.approx(one, rel=1e-6)
    assert vectors.usage.prompt_tokens == 3
    assert "1234" in heard.text
    assert models == [MODEL]


async def test_errors_have_the_clients_own_types() -> None:
    async with engine() as server, asynchronous(server) as client:
        with pytest.raises(NotFoundError, match="does not exist"):
            await client.chat.completions.create(model="nope", messages=USER)
        server.faults.error = True
        with pytest.raises(APIStatusError) as failed:
            await client.chat.completions.create(model=MODEL, messages=USER)
    assert failed.value.status_code == 500


async def test_the_synchronous_client_gets_plain_streamed_and_tool_answers() -> None:
    def converse(url: str) -> tuple[str | None, str, str]:
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            plain = client.chat.completions.create(model=MODEL, messages=USER).choices[0].message.content
            stream = client.chat.completions.create(model=MODEL, messages=USER, stream=True)
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            asked = client.chat.completions.create(
                model=MODEL, messages=USER, tools=TOOLS, tool_choice="required"
            )
            calls = asked.choices[0].message.tool_calls or []
            return plain, streamed, "".join(call.function.name for call in calls if call.type == "function")

    async with engine() as server:
        plain, streamed, called = await asyncio.to_thread(converse, server.url)
    assert plain == streamed
    assert called == "set_gate"
