"""The other faces of the official client: blocking calls, its stream helper, many questions at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.engine.engines import ENGINES, MODEL, Engine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(120, func_only=True),
    pytest.mark.parametrize("engine", ENGINES, indirect=True),
]

# What the engine runs at once, so that every question is in its batch.
AT_ONCE = 8


def asked(content: str) -> dict[str, Any]:
    prompt = [{"role": "user", "content": content}]
    return {"model": MODEL, "messages": prompt, "temperature": 0, "max_tokens": 24}


def test_the_blocking_client_reads_the_same_answer_and_the_same_stream(engine: Engine, gateway: str) -> None:
    said = []
    for url in (engine.url, gateway):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="EMPTY", max_retries=0, timeout=60) as client:
            plain = client.chat.completions.create(**asked("Blocking."))
            with client.chat.completions.create(stream=True, **asked("Blocking.")) as events:
                streamed = [event.choices[0].delta.content or "" for event in events]
        said += [plain.choices[0].message.content, "".join(streamed)]

    assert said[0]
    assert said == said[:1] * 4


async def test_the_stream_helper_builds_the_same_message(
    engine: Engine, gateway: str, openai_client: Callable[[str], openai.AsyncOpenAI]
) -> None:
    # Stopped by a word: the helper refuses an answer that was cut off at its length.
    question = asked("Helper.") | {"stop": ["e"], "max_tokens": 400}
    said = []
    for url in (engine.url, gateway):
        async with openai_client(url).chat.completions.stream(**question) as stream:
            whole = await stream.get_final_completion()
        said.append((whole.choices[0].message.content, whole.choices[0].finish_reason))

    assert said[0][0]
    assert said[1] == said[0]


async def test_answers_asked_for_at_once_go_each_to_its_asker(
    engine: Engine, gateway: str, openai_client: Callable[[str], openai.AsyncOpenAI]
) -> None:
    direct, proxied = openai_client(engine.url), openai_client(gateway)
    questions = [f"Question {number}: what is {number} times {number}?" for number in range(AT_ONCE)]
    expected = [await _said(direct, question) for question in questions]

    said = await asyncio.gather(*(_said(proxied, question) for question in questions))

    assert len(set(expected)) == AT_ONCE
    assert said == expected


async def _said(client: openai.AsyncOpenAI, question: str) -> str:
    async with await client.chat.completions.create(stream=True, **asked(question)) as stream:
        return "".join([event.choices[0].delta.content or "" async for event in stream])
