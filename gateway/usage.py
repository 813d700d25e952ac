"""The tokens of an answer as its engine counted them: where each API says it, and what counts as what.

| API | prompt | cached, of the prompt | completion |
|---|---|---|---|
| chat, completions, embeddings | `prompt_tokens` | `prompt_tokens_details.cached_tokens` | `completion_tokens` |
| `/v1/responses` | `input_tokens` | `input_tokens_details.cached_tokens` | `output_tokens` |
| `/v1/messages` | `input_tokens` + `cache_read_input_tokens` + `cache_creation_input_tokens` | `cache_read_input_tokens` | `output_tokens` |

Of a stream of messages the first event tells the prompt (SGLang only there) and the last one the completion.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

_PLAIN = re.compile(
    rb'"usage":\{"prompt_tokens":(\d{1,15}),"total_tokens":\d{1,15},"completion_tokens":(\d{1,15})'
    rb'(?:\}|,"prompt_tokens_details":(?:null|\{"cached_tokens":(\d{1,15})[^{}]*\})[,}])'
)
"""As vLLM writes it, to the byte; every other form is decoded."""
_OBJECT = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
_TAIL_BYTES = 4096
_HOLDERS = ("response", "message")
"""Members of an event that are the answer so far, with its `usage` inside."""
MARK = b'_tokens"'
"""In every form of it."""


class Usage(NamedTuple):
    """Tokens, as the engine counted them."""

    prompt: int
    completion: int
    cached: int


def usage_of(data: bytes) -> Usage | None:
    """From the end of a plain answer, where engines put it."""
    start = data.rfind(b'"usage"', max(0, len(data) - _TAIL_BYTES))
    if start < 0:
        return None
    plain = _PLAIN.match(data, start)
    if plain is not None:
        return Usage(int(plain[1]), int(plain[2]), int(plain[3] or 0))
    found = _OBJECT.match(data, start)
    if found is None:
        return None
    try:
        return usage_from(orjson.loads(found[1]), None)
    except orjson.JSONDecodeError:
        return None


def usage_in(event: dict[str, Any], before: Usage | None) -> Usage | None:
    """What one event of a stream says, beside what an earlier one said; None where it says nothing."""
    found = event.get("usage")
    if found is None:
        for name in _HOLDERS:
            holder = event.get(name)
            if isinstance(holder, dict):
                found = holder.get("usage")
                break
    return usage_from(found, before)


def usage_from(found: Any, before: Usage | None) -> Usage | None:
    """A `usage` object; None if it is not one."""
    if not isinstance(found, dict):
        return None
    prompt = _count(found, "prompt_tokens")
    if prompt is not None:
        cached = _detail(found, "prompt_tokens_details")
        return Usage(prompt, _count(found, "completion_tokens") or 0, cached)
    completion = _count(found, "output_tokens")
    prompt = _count(found, "input_tokens")
    if prompt is None:
        return None if completion is None or before is None else before._replace(completion=completion)
    read = _count(found, "cache_read_input_tokens") or 0
    made = _count(found, "cache_creation_input_tokens") or 0
    cached = _detail(found, "input_tokens_details")
    return Usage(prompt + read + made, completion or 0, read or cached)


def _count(found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    return value if type(value) is int and value >= 0 else None


def _detail(found: dict[str, Any], name: str) -> int:
    details = found.get(name)
    return _count(details, "cached_tokens") or 0 if isinstance(details, dict) else 0
