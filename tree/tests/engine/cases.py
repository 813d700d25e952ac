"""How the official client is asked for an answer that can be compared: one case, one call.

A case knows the status its engine is known to give: two equal refusals would prove nothing about
a case that was meant to work. Its prompt holds its name, so that no two cases share one.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import openai

from tests.engine.answers import Answer, answer, joined
from tests.engine.engines import MODEL

Ask = Callable[[openai.AsyncOpenAI], Awaitable[Answer]]


@dataclass(frozen=True)
class Case:
    name: str
    ask: Ask
    status: int = 200
    answered_by_gateway: bool = False


def unknown_model(case: Case) -> Case:
    """The case, asked of a model that is not there: the gateway knows its engines' models and says so itself."""
    return replace(case, status=404, answered_by_gateway=True)


def chat(name: str, status: int = 200, **fields: Any) -> Case:
    prompt = [{"role": "user", "content": f"Say hello to the gateway, for {name}."}]
    asked = {"model": MODEL, "messages": prompt, "temperature": 0, "max_tokens": 12} | fields
    return Case(name, lambda client: _create(client.chat.completions, asked), status)


def text(name: str, status: int = 200, **fields: Any) -> Case:
    asked = {"model": MODEL, "prompt": f"Once, for {name},", "temperature": 0, "max_tokens": 12} | fields
    return Case(name, lambda client: _create(client.completions, asked), status)


def response(name: str, status: int = 200, **fields: Any) -> Case:
    asked = {"model": MODEL, "input": f"Hello, {name}", "temperature": 0, "max_output_tokens": 12} | fields
    return Case(name, lambda client: _create(client.responses, asked), status)


def embedding(name: str, status: int = 200) -> Case:
    asked = {"model": MODEL, "input": "Hello"}
    return Case(name, lambda client: _create(client.embeddings, asked), status)


def models(name: str) -> Case:
    return Case(
        name, lambda client: _answer_of(client.models.with_raw_response.list()), answered_by_gateway=True
    )


def model(name: str) -> Case:
    def ask(client: openai.AsyncOpenAI) -> Awaitable[Answer]:
        return _answer_of(client.models.with_raw_response.retrieve(MODEL))

    return Case(name, ask, answered_by_gateway=True)


def outside(name: str, path: str, status: int = 200, **fields: Any) -> Case:
    """A call by path, seen from the engine's root, that no method of the client makes as it is wanted here."""

    def ask(client: openai.AsyncOpenAI) -> Awaitable[Answer]:
        root = str(client.base_url).removesuffix("/v1/")
        return _answer_of(client.post(root + path, body=fields, cast_to=object))

    return Case(name, ask, status)


async def _create(resource: Any, asked: dict[str, Any]) -> Answer:
    if not asked.get("stream"):
        return await _answer_of(resource.with_raw_response.create(**asked))
    return await _answer_of(resource.create(**asked))


async def _answer_of(call: Awaitable[Any]) -> Answer:
    try:
        got = await call
        if isinstance(got, openai.AsyncStream):
            async with got:
                events = [event.model_dump(exclude_unset=True) async for event in got]
            return answer(got.response.status_code, got.response.headers, joined(events))
    except openai.APIStatusError as raised:
        told = {"raised": type(raised).__name__, "message": str(raised), "error": raised.body}
        return answer(raised.status_code, raised.response.headers, told)
    if hasattr(got, "http_response"):
        return answer(got.status_code, got.headers, json.loads(got.text))
    return answer(200, {}, got)
