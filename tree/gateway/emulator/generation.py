"""Reads a chat or completion request: checks it as vLLM does and works out its prompts and the answers they
will get.

Read: model, messages or prompt, n, max_tokens, max_completion_tokens, stream, stream_options.include_usage,
priority, stop, tools, tool_choice, response_format, cache_salt, request_id; temperature and top_p only to
refuse what the engine refuses. Everything else is accepted and ignored, log probabilities, `echo` and
`continuous_usage_stats` included. The order of the checks is the real engine's: types, then the model, then
values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.emulator import chat_template, fields, outputs
from gateway.emulator.errors import refused, unknown_model
from gateway.emulator.fields import Body
from gateway.emulator.outputs import Output
from gateway.emulator.settings import EngineSettings
from gateway.emulator.tokens import Prompt, read_text, read_token_ids
from gateway.emulator.vocabulary import Vocabulary

_CHOICE_STRIDE = 977  # prime to the ring, so the choices of one prompt start at different words


@dataclass(slots=True, frozen=True)
class Generation:
    """One accepted request. `choices` pairs each choice's prompt with its output, in the order of their
    index."""

    chat: bool
    request_id: str
    prompts: list[Prompt]
    choices: list[tuple[Prompt, Output]]
    stream: bool
    include_usage: bool
    priority: int


def read_generation(body: Body, chat: bool, settings: EngineSettings, vocabulary: Vocabulary) -> Generation:
    """Raises `RefusedError`."""
    limit = fields.integer(body, "max_completion_tokens") if chat else None
    named = "max_completion_tokens"
    if limit is None:
        named = "max_tokens"
        limit = fields.integer(body, named)
    count = fields.integer(body, "n")
    priority = fields.integer(body, "priority") or 0
    stream = fields.boolean(body, "stream")
    stream_options = fields.record(body, "stream_options")
    stops = fields.strings(body, "stop")
    messages = fields.items(body, "messages", required=True) if chat else []
    check_model(body, settings)
    if stream_options and not stream:
        raise refused("Stream options can only be defined when `stream=True`.", "stream_options")
    count = _choices_per_prompt(body, 1 if count is None else count)
    if limit is not None and limit < 1:
        raise refused(f"{named} must be at least 1, got {limit}.", named, limit)
    if chat:
        if not messages:
            message = "Cannot apply chat template to an empty conversation. Provide at least one message."
            raise refused(message)
        text = chat_template.render(messages, fields.items(body, "tools"))
        prompts = [read_text(text, fields.text(body, "cache_salt"))]
    else:
        prompts = read_prompts(body.get("prompt"), fields.text(body, "cache_salt"))
        if not prompts or any(not prompt.tokens for prompt in prompts):
            raise refused("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    length = min(_answer_limit(prompt, limit, settings) for prompt in prompts)
    room = settings.max_model_len - max(prompt.tokens for prompt in prompts) if limit is None else limit
    fixed = outputs.tool_call(body, room) if chat else None
    fixed = fixed or (outputs.json_answer(body, room) if "response_format" in body else None)
    choices = [
        (
            prompt,
            fixed or outputs.words(vocabulary, prompt.fingerprint + index * _CHOICE_STRIDE, length, stops),
        )
        for prompt in prompts
        for index in range(count)
    ]
    return Generation(
        chat=chat,
        request_id=fields.text(body, "request_id"),
        prompts=prompts,
        choices=choices,
        stream=stream,
        include_usage=fields.boolean(stream_options, "include_usage"),
        priority=priority,
    )


def check_model(body: Body, settings: EngineSettings) -> None:
    """A missing or empty model is accepted."""
    model = fields.text(body, "model")
    if model and model != settings.model:
        raise unknown_model(model, settings.model)


def read_prompts(value: Any, salt: str = "") -> list[Prompt]:
    """A string, a list of strings, a list of token ids, or a list of such lists."""
    match value:
        case str():
            return [read_text(value, salt)] if value else []
        case [int(), *_]:
            return [read_token_ids(value, salt)]
        case [*prompts]:
            return [one for prompt in prompts for one in read_prompts(prompt, salt)]
        case _:
            return []


def check_prompt(prompt: Prompt, settings: EngineSettings) -> None:
    longest = settings.max_model_len
    if prompt.tokens >= longest:
        raise refused(
            f"This model's maximum context length is {longest} tokens. However, your prompt contains at least "
            f"{longest + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce "
            "the length of the input prompt.",
            "input_tokens",
            longest + 1,
        )


def _choices_per_prompt(body: Body, count: int) -> int:
    if count < 1:
        raise refused(f"n must be at least 1, got {count}.")
    temperature = fields.number(body, "temperature")
    if temperature is not None and temperature < 0:
        raise refused(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
    top_p = fields.number(body, "top_p")
    if top_p is not None and not 0 < top_p <= 1:
        raise refused(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)
    if count > 1 and temperature == 0:
        raise refused(f"n must be 1 when using greedy sampling, got {count}.")
    return count


def _answer_limit(prompt: Prompt, limit: int | None, settings: EngineSettings) -> int:
    longest = settings.max_model_len
    check_prompt(prompt, settings)
    if limit is None:
        return min(settings.default_max_tokens, longest - prompt.tokens)
    if limit > longest:
        message = f"max_tokens={limit} cannot be greater than max_model_len={longest}. Please request fewer output tokens."
        raise refused(message, "max_tokens", limit)
    if prompt.tokens + limit > longest:
        raise refused(
            f"This model's maximum context length is {longest} tokens. However, you requested {limit} output tokens "
            f"and your prompt contains {prompt.tokens} input tokens, for a total of {prompt.tokens + limit} tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens.",
            "input_tokens",
            prompt.tokens,
        )
    return limit
