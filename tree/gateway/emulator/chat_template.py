"""How a chat becomes one prompt, so that equal beginnings of two chats are equal beginnings of their prompts.

Tools come first as JSON, then each message as its role in marks and its text. A part that is no text (an
image, a sound) counts as 256 tokens, named by its content so that the same image is the same prefix.
"""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from gateway.emulator.errors import malformed

MEDIA_TOKENS = 256
_MEDIA_CHARACTERS = MEDIA_TOKENS * 4


def render(messages: list[Any], tools: list[Any]) -> str:
    pieces: list[str] = []
    if tools:
        pieces += ["<|tools|>\n", orjson.dumps(tools).decode()]
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            location = f"body.messages.{index}.ChatCompletionDeveloperMessageParam"
            raise malformed("dict_type", location, "Input should be a valid dictionary", str(message))
        content = message.get("content")
        pieces += ["<|", str(message.get("role")), "|>\n"]
        if isinstance(content, str):
            pieces.append(content)
        elif isinstance(content, list):
            pieces += map(_part, content)
        if calls := message.get("tool_calls"):
            pieces.append(orjson.dumps(calls).decode())
        pieces.append("\n")
    pieces.append("<|assistant|>\n")
    return "".join(pieces)


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        return text
    return f"{zlib.crc32(orjson.dumps(part)):08x}" * (_MEDIA_CHARACTERS // 8)
