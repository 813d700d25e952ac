"""The judge of "drop-in": the official openai client, sync and async, in front of the gateway and two emulated engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam

from tests.backend import Backend, Request, Script, json_script
from tests.emulator.running import engine
from tests.running import Running, running

MODEL = "emulated"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "how much is the fee?"}]
TOOLS: list[ChatCompletionToolUnionParam] = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string"}},
                "required": ["word"],
            },
        },
    }
]


@asynccontextmanager
async def fleet() -> AsyncIterator[Running]:
    async with engine() as one, engine() as two, running(one, two) as gateway:
        yield gateway


def official(gateway: Running, retries: int = 0) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-none", max_retries=retries)


async def test_a_plain_chat_comes_back_with_usage_and_finish_reason() -> None:
    async with fleet() as gateway, official(gateway) as api:
        answer = await api.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=7)
        assert answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage is not None and answer.usage.completion_tokens == 7


async def test_a_streamed_chat_has_no_usage_event_unless_it_was_asked_for() -> None:
    async with fleet() as gateway, official(gateway) as api:
        stream = await api.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=5, stream=True)
        plain = [chunk async for chunk in stream]
        stream = await api.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
        asked = [chunk async for chunk in stream]
        assert all(chunk.choices and chunk.usage is None for chunk in plain)
        assert plain[-1].choices[0].finish_reason == "length"
        assert asked[-1].choices == [] and asked[-1].usage is not None
        assert asked[-1].usage.completion_tokens == 5
        await asyncio.sleep(0)
        assert gateway.metric("headrace_tokens_total", kind="completion") == 10


async def test_tools_come_plain_and_in_pieces() -> None:
    async with fleet() as gateway, official(gateway) as api:
        plain = await api.chat.completions.create(
            model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice="required"
        )
        assert plain.choices[0].finish_reason == "tool_calls"
        calls = plain.choices[0].message.tool_calls
        assert calls and calls[0].type == "function" and calls[0].function.name == "look_up"
        stream = await api.chat.completions.create(
            model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice="required", stream=True
        )
        pieces = [
            call
            async for chunk in stream
            for choice in chunk.choices
            for call in choice.delta.tool_calls or ()
        ]
        assert pieces[0].function is not None and pieces[0].function.name == "look_up"
        assert len(pieces) > 1


async def test_completions_embeddings_and_models_answer() -> None:
    async with fleet() as gateway, official(gateway) as api:
        text = await api.completions.create(model=MODEL, prompt="once", max_tokens=3)
        assert text.choices[0].text
        base64 = await api.embeddings.create(model=MODEL, input="a")  # the client asks for base64 by itself
        floats = await api.embeddings.create(model=MODEL, input="a", encoding_format="float")
        assert base64.data[0].embedding == pytest.approx(floats.data[0].embedding, abs=1e-6)
        assert [card.id async for card in api.models.list()] == [MODEL]
        assert (await api.models.retrieve(MODEL)).id == MODEL


async def test_raw_headers_tell_the_request_and_its_route() -> None:
    async with fleet() as gateway, official(gateway) as api:
        raw = await api.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, extra_headers={"x-request-id": "mine-1"}
        )
        assert raw.headers["x-request-id"] == "mine-1"
        route = dict(part.split("=") for part in raw.headers["x-headrace-route"].split(";"))
        assert route["pool"] == "default" and route["backend"].startswith("127.0.0.1:")
        assert route["attempts"] == "1" and route["lane"] == "standard"
        made = await api.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
        assert made.headers["x-request-id"] not in ("", "mine-1")


async def test_errors_of_engine_and_gateway_raise_the_clients_own_exceptions() -> None:
    async with fleet() as gateway, official(gateway) as api:
        with pytest.raises(openai.NotFoundError, match="no-such-model"):
            await api.chat.completions.create(model="no-such-model", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError):
            await api.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=-1)
        with pytest.raises(openai.BadRequestError):
            await api.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=-1, stream=True)
        with pytest.raises(openai.NotFoundError):
            await api.post("/no-such-path", cast_to=object, body={})


async def test_an_error_event_inside_a_stream_raises() -> None:
    async with engine() as only, running(only) as gateway, official(gateway) as api:
        only.faults.error_event = 3
        stream = await api.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
        await stream.close()


async def test_a_cut_stream_raises_instead_of_ending_short() -> None:
    async with engine() as only, running(only) as gateway, official(gateway) as api:
        only.faults.cut = 3
        stream = await api.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
        await stream.close()
        assert gateway.metric("headrace_cut_answers_total") == 1


async def test_the_client_tries_again_on_503() -> None:
    async with running("http://127.0.0.1:9", probed=False) as gateway, official(gateway) as api:
        with pytest.raises(openai.InternalServerError) as caught:
            await api.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert caught.value.status_code in (502, 503)

    def once_full(_: Request) -> Script:
        if len(backend.exchanges) == 1:
            return Script(status=503, headers=[(b"retry-after-ms", b"1")])
        return json_script(
            {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
        )

    async with Backend(once_full) as backend, running(backend) as gateway, official(gateway, 1) as api:
        answer = await api.chat.completions.create(model="m", messages=MESSAGES)
        assert answer.id == "x"
        assert len(backend.exchanges) == 2


async def test_the_synchronous_client_works_the_same() -> None:
    def talk(base_url: str) -> tuple[str | None, str, list[str]]:
        with OpenAI(base_url=base_url, api_key="sk-none", max_retries=0) as api:
            plain = api.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4)
            with api.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=4, stream=True
            ) as stream:
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            with pytest.raises(openai.NotFoundError):
                api.embeddings.create(model="other", input="a")
            return plain.choices[0].message.content, text, [card.id for card in api.models.list()]

    async with fleet() as gateway:
        content, text, models = await asyncio.to_thread(talk, f"{gateway.url}/v1")
        assert content and text
        assert models == [MODEL]
