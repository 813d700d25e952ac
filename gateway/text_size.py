"""What is to be counted in a decoded request body, and the text that classification reads.

Knows chat (text, parts, tool definitions and calls, images, audio), completions (text or token ids), embeddings and rerank inputs,
`/v1/responses` and `/v1/messages`. Other shapes count as nothing and raise nothing: the engine will refuse them. Data inside (an image's
base64) is never counted as text.
Cost: no loop over characters; strings are joined and counted in C. Of a text above 2,048 characters sixteen even pieces of 128 stand for
the whole. Grows with the number of messages and parts, like decoding them did, up to `MAX_ITEMS`.
Limits: text that a template adds by itself, retrieved documents and structured-output schemas are not seen; the estimate learns them as
part of the template. Of texts that `gateway.message_texts` has joined the lines between them count too. A tool definition nested deeper than 250 levels counts without its text.
"""

from __future__ import annotations

import string
from typing import Any

import orjson

from gateway.message_texts import MAX_ITEMS
from gateway.paths import Kind
from policies.lengths import TextSize

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_PIECES = 16
_PIECE_CHARS = 128
_SAMPLED_ABOVE_CHARS = _PIECES * _PIECE_CHARS
_UNKNOWN_AUDIO_BYTES = 320_000.0
"""Of a sound that the engine is to fetch: ten seconds of 16-bit sound at 16 kHz."""
_VIDEO_IMAGES = 8
_MAX_DEPTH = 4
_SYSTEM_ROLES = ("system", "developer")
_SYSTEM_AMONG_FIRST = 4
_JSON_INPUTS = (
    "system", "instructions", "messages", "input", "prompt", "text", "texts", "query", "queries", "documents", "text_1", "text_2",
)  # fmt: skip
_INPUTS: dict[Kind, tuple[str, ...]] = {
    Kind.CHAT: ("messages",),
    Kind.COMPLETION: ("prompt", "suffix"),
    Kind.JSON: _JSON_INPUTS,
}


def text_size(kind: Kind, fields: dict[str, Any], texts: list[str | None] | None) -> TextSize:
    """`texts` is what `gateway.message_texts` found in `fields`."""
    tools = fields.get("tools")
    if texts is not None and not tools:
        try:
            return TextSize(*_counted("".join(texts)), len(texts))  # type: ignore[arg-type]
        except TypeError:  # other messages among them
            pass
    found = _Found()
    for name in _INPUTS.get(kind, ()):
        value = fields.get(name)
        if not value:
            continue
        if type(value) is str:
            found.texts.append(value)
        elif type(value) is list:
            if name == "messages":
                found.messages = len(value)
            if texts is None:
                found.add_list(value, 0)
            else:
                found.add_messages(value, texts)
        elif type(value) is dict:
            found.add_item(value, 0)
    if tools and type(tools) is list and kind is not Kind.COMPLETION:
        found.tools = len(tools)
        found.add_json(tools)
    return found.size()


def _counted(text: str) -> tuple[float, float, float, float, float, float, float]:
    """The characters in the order of `TextSize`, from `wide` to `lines`."""
    chars = len(text)
    weight = 1.0
    if chars > _SAMPLED_ABOVE_CHARS:
        stride = chars // _PIECES
        first = (stride - _PIECE_CHARS) // 2
        text = "".join([text[i : i + _PIECE_CHARS] for i in range(first, first + _PIECES * stride, stride)])
        weight = chars / _SAMPLED_ABOVE_CHARS
    wide = accented = 0
    if text.isascii():
        ascii_bytes = text.encode("ascii")
    else:
        ascii_bytes = text.encode("ascii", "ignore")
        others = len(text) - len(ascii_bytes)
        # Of n characters of two bytes and m of three, n + m = others and 2n + 3m the bytes; four bytes count as two wide ones.
        wide = len(text.encode("utf-8", "surrogatepass")) - len(ascii_bytes) - 2 * others
        accented = max(others - wide, 0)
    rest = ascii_bytes.translate(None, _LETTERS)
    spaces = rest.count(b" ")
    lines = rest.count(b"\n")
    visible = len(rest)
    digits = visible - len(rest.translate(None, _DIGITS))
    return (
        weight * wide,
        weight * accented,
        weight * (len(ascii_bytes) - visible),
        weight * digits,
        weight * (visible - spaces - lines - digits),
        weight * spaces,
        weight * lines,
    )


def request_text(fields: dict[str, Any], limit_chars: int = 4096) -> tuple[str, str]:
    """The system prompt's beginning and the latest user text, each of at most `limit_chars`; of a long user text both ends, on two lines.

    Empty where there is none.
    """
    for name in ("messages", "input", "prompt", "query"):
        value = fields.get(name)
        if value:
            break
    else:
        value = None
    system = fields.get("system") or fields.get("instructions")
    if type(value) is not list:
        user = value if type(value) is str else ""
        return _text_of(system, limit_chars)[:limit_chars], _ends(user, limit_chars)
    if not system:
        for item in value[:_SYSTEM_AMONG_FIRST]:
            if type(item) is dict and item.get("role") in _SYSTEM_ROLES:
                system = item.get("content")
                break
    user = ""
    for item in reversed(value):
        if type(item) is dict and item.get("role") == "user":
            user = _text_of(item.get("content"), limit_chars)
            if user:
                break
        elif type(item) is str:
            user = item
            break
    return _text_of(system, limit_chars)[:limit_chars], _ends(user, limit_chars)


def _text_of(content: Any, limit_chars: int) -> str:
    """The text of a string or of parts; of many parts the last ones that are enough."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return ""
    texts: list[str] = []
    chars = 0
    for part in reversed(content):
        text = part.get("text") if type(part) is dict else part
        if type(text) is str:
            texts.append(text)
            chars += len(text)
            if chars > 2 * limit_chars:
                break
    texts.reverse()
    return "\n".join(texts)


def _ends(text: str, limit_chars: int) -> str:
    if len(text) <= limit_chars:
        return text
    half = limit_chars // 2
    return text[: limit_chars - half - 1] + "\n" + text[len(text) - half :]


class _Found:
    """What a walk through one body has come across."""

    __slots__ = (
        "audio_bytes",
        "images",
        "items_left",
        "messages",
        "small_images",
        "texts",
        "token_ids",
        "tools",
    )

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.items_left = MAX_ITEMS
        self.messages = 0
        self.tools = 0
        self.images = 0
        self.small_images = 0
        self.audio_bytes = 0.0
        self.token_ids = 0

    def add_messages(self, messages: list[Any], texts: list[str | None]) -> None:
        for message, text in zip(messages, texts, strict=True):
            if text is None:
                if self.items_left:
                    self.items_left -= 1
                    self.add_item(message, 0)
            else:
                self.texts.append(text)

    def add_list(self, items: list[Any], depth: int) -> None:
        """Messages, parts, texts, or token ids."""
        if type(items[0]) is int:
            self.token_ids += len(items)
            return
        if len(items) > self.items_left:
            items = items[: self.items_left]
        self.items_left -= len(items)
        texts = self.texts
        for item in items:
            if type(item) is dict:
                self.add_item(item, depth)
            elif type(item) is str:
                texts.append(item)
            elif item and type(item) is list and depth < _MAX_DEPTH:
                self.add_list(item, depth + 1)

    def add_item(self, item: dict[str, Any], depth: int) -> None:
        """A message, a part of one, or a call in it."""
        kind = item.get("type")
        if type(kind) is str and kind not in ("text", "message", "input_text", "output_text"):
            self.add_media(kind, item)
        for name in ("text", "content", "name", "arguments", "output", "function", "tool_calls"):
            value = item.get(name)
            if not value:
                continue
            if type(value) is str:
                self.texts.append(value)
            elif depth < _MAX_DEPTH:
                if type(value) is list:
                    self.add_list(value, depth + 1)
                elif type(value) is dict:
                    self.add_item(value, depth + 1)

    def add_media(self, kind: str, item: dict[str, Any]) -> None:
        if kind in ("image_url", "input_image", "image"):
            holder = item.get("image_url")
            detail = holder.get("detail") if type(holder) is dict else item.get("detail")
            if detail == "low":
                self.small_images += 1
            else:
                self.images += 1
        elif kind == "input_audio":
            holder = item.get("input_audio")
            data = holder.get("data") if type(holder) is dict else None
            self.audio_bytes += len(data) * 0.75 if type(data) is str else _UNKNOWN_AUDIO_BYTES
        elif kind == "audio_url":
            self.audio_bytes += _UNKNOWN_AUDIO_BYTES
        elif kind in ("video_url", "video"):
            self.images += _VIDEO_IMAGES
        elif kind == "tool_use":
            self.add_json(item.get("input"))

    def add_json(self, value: Any) -> None:
        """Templates print definitions and arguments as JSON."""
        try:
            self.texts.append(orjson.dumps(value).decode())
        except orjson.JSONEncodeError:
            return

    def size(self) -> TextSize:
        return TextSize(
            *_counted("".join(self.texts)),
            self.messages,
            self.tools,
            self.images,
            self.small_images,
            self.audio_bytes,
            self.token_ids,
        )
