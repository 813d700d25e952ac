"""The prompt of a decoded request body in the order in which the engine's prefix cache sees it, as fingerprints of its beginnings.

Knows chat (text, parts, tools, calls and their results, images, sounds), completions (text or token ids), `/v1/responses` (`instructions`,
`input`) and `/v1/messages` (`system`, `messages`), and by the same fields the engines' own forms of these. Order: the system prompt, then
tools and documents, which most chat templates print inside the system turn, then the rest as it stands. A message is one piece: its role, a
line, its texts. So another role is another prefix. A token id stands as four characters, which is what one is in English. An image or a
sound stands as 1,024 characters made from a hash over its data or address, of more than 64 KiB over even samples and the length.
Into the seed go the model (an adapter is one too), `cache_salt`, SGLang's `extra_key` and `lora_path`, and `chat_template`.

None: no prompt, one shorter than its first boundary, and what no routing should follow: embeddings, scores, token counts. Since bodies do
not say their path, a JSON call counts as generation if it has one of the fields that only generation takes, or items as `input`. Of several
prompts in one body the first counts. Other shapes count as nothing and raise nothing: the engine will refuse them.
Cost: as the number of messages and parts above the greatest depth, of those that are read field by field `MAX_ITEMS` at most; how much is below it `text_size` has counted.
Limits: switches of a template (`chat_template_kwargs`, `reasoning_effort`) are not seen. Where a template prints tools before the system
prompt, prompts that differ in tools share less than their fingerprints say. Thinking and the ids of calls are left out, as templates do.
"""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import orjson

from gateway.message_texts import MAX_ITEMS
from gateway.paths import Kind
from policies.lengths import TOKEN_CHARS, TextSize
from policies.prefix_chain import MAX_DEPTH_CHARS, Prefix, prefix_of, seed_of

_ROLE = itemgetter("role")
_AS_LINES = "\n".join
_SEED_FIELDS = ("cache_salt", "extra_key", "lora_path", "chat_template")
_SYSTEM_ROLES = ("system", "developer")
_GENERATION_FIELDS = frozenset({
    "instructions", "max_completion_tokens", "max_output_tokens", "max_tokens", "options", "previous_response_id", "sampling_params",
    "stream",
})  # fmt: skip
_TEXT_FIELDS = (
    "name", "content", "text", "refusal", "arguments", "input", "output", "function", "tool_calls",
)  # fmt: skip
_BESIDE_CONTENT = frozenset({*_TEXT_FIELDS, "type"} - {"content"})
_JSON_FIELDS = ("arguments", "input")
_MEDIA = frozenset({
    "image_url", "input_image", "image", "input_audio", "audio_url", "audio", "video_url", "video", "file", "input_file", "document",
})  # fmt: skip
_MEDIA_REPEATS = 64
"""Of sixteen hexadecimal digits: 1,024 characters, some 256 tokens."""
_SAMPLED_ABOVE_CHARS = 65_536
_SAMPLES = 64
_SAMPLE_CHARS = 1024
_MAX_NESTING = 6
_MAX_SESSION_CHARS = 256


def prompt_prefix(
    kind: Kind, fields: dict[str, Any], model: str, size: TextSize, texts: list[str | None] | None
) -> Prefix | None:
    """`fields` is the body's JSON object, which stays as it is; `model` the name that the engine gets.

    `size` and `texts` are what `gateway.text_size` and `gateway.message_texts` found in the body.
    """
    chars = int(size.chars)
    long_chars = chars if chars > MAX_DEPTH_CHARS else 0
    pieces: list[str] = []
    if kind is Kind.CHAT:
        _add_chat(fields, fields.get("messages"), pieces, _Walk(), long_chars, texts)
    elif kind is Kind.COMPLETION:
        _add_prompt(fields.get("prompt"), pieces)
    elif kind is Kind.JSON:
        _add_other(fields, pieces, _Walk(), long_chars)
    else:
        return None
    if not pieces:
        return None
    prefix = prefix_of(pieces, _seed(fields, model), long_chars)
    return prefix if prefix.hashes else None


def session_of(fields: dict[str, Any]) -> str:
    """The session that a body names: `session_id` (vLLM, SGLang), else `prompt_cache_key` (OpenAI); "" where neither is a usable name."""
    for name in ("session_id", "prompt_cache_key"):
        value = fields.get(name)
        if type(value) is str and 0 < len(value) <= _MAX_SESSION_CHARS:
            return value
    return ""


def _seed(fields: dict[str, Any], model: str) -> int:
    names = [model]
    for name in _SEED_FIELDS:
        value = fields.get(name)
        if value:
            if type(value) is list:
                value = value[0]
            if type(value) is str:
                names += (name, value)
    return seed_of(*names)


def _add_other(fields: dict[str, Any], pieces: list[str], walk: _Walk, long_chars: int) -> None:
    items = fields.get("input")
    has_items = type(items) is list and bool(items) and type(items[0]) is dict
    if not has_items and _GENERATION_FIELDS.isdisjoint(fields):
        return
    system = fields.get("system") or fields.get("instructions")
    if system:
        pieces.append(walk.piece({"role": "system", "content": system}))
    messages = fields.get("messages")
    if type(messages) is list and messages:
        _add_chat(fields, messages[0] if type(messages[0]) is list else messages, pieces, walk, long_chars)
        return
    if type(items) is str:
        items = [{"role": "user", "content": items}]
    earlier = fields.get("previous_response_id")
    if type(earlier) is str and earlier:
        items = [
            {"role": "previous_response_id", "content": earlier},
            *(items if type(items) is list else ()),
        ]
    _add_chat(fields, items, pieces, walk, long_chars)
    if not items:
        _add_prompt(fields.get("prompt") or fields.get("text") or fields.get("input_ids"), pieces)


def _add_chat(
    fields: dict[str, Any],
    messages: Any,
    pieces: list[str],
    walk: _Walk,
    long_chars: int,
    texts: list[str | None] | None = None,
) -> None:
    """Behind a system prompt, where `pieces` has one. `long_chars` is what the whole body has, where that is more than the greatest depth."""
    has_system = bool(pieces)
    if type(messages) is list and messages:
        if long_chars:
            _add_beginning(messages, pieces, walk, long_chars, texts)
        else:
            _add_messages(messages, pieces, walk, texts)
        first = messages[0]
        has_system = has_system or (type(first) is dict and first.get("role") in _SYSTEM_ROLES)
    for name in ("documents", "tools"):  # each goes in front of the one before
        definitions = fields.get(name)
        if definitions and type(definitions) is list:
            pieces.insert(1 if has_system else 0, f"{name}\n{_json(definitions)}")


def _add_beginning(
    messages: list[Any], pieces: list[str], walk: _Walk, long_chars: int, texts: list[str | None] | None
) -> None:
    """Messages down to the greatest depth: so many at a time as lie above it where all are alike."""
    count = len(messages) * MAX_DEPTH_CHARS // long_chars + 1
    seen_chars = 0
    for start in range(0, len(messages), count):
        added = len(pieces)
        stop = start + count
        _add_messages(messages[start:stop], pieces, walk, None if texts is None else texts[start:stop])
        seen_chars += sum(map(len, pieces[added:]))
        if seen_chars > MAX_DEPTH_CHARS:
            return


def _add_messages(
    messages: list[Any], pieces: list[str], walk: _Walk, texts: list[str | None] | None
) -> None:
    if texts is None:
        for message in messages:
            if walk.steps_left <= 0:
                return
            if type(message) is dict:
                pieces.append(walk.piece(message))
        return
    try:
        lines: Iterable[Iterable[Any]] = zip(map(_ROLE, messages), texts, strict=True)
        pieces += list(map(_AS_LINES, lines))  # in C a third quicker than as a loop
    except (KeyError, TypeError):  # another form of message among them
        pieces += [
            walk.piece(message)
            if text is None or type(role := message.get("role")) is not str
            else role + "\n" + text
            for message, text in zip(messages, texts, strict=True)
        ]


class _Walk:
    """Through the messages of one prompt, field by field, with a bound on all steps together."""

    __slots__ = ("steps_left",)

    def __init__(self) -> None:
        self.steps_left = MAX_ITEMS

    def piece(self, message: dict[str, Any]) -> str:
        """A message, or an item of `/v1/responses`: a message, a call, or what came of one."""
        role = message.get("role") or message.get("type")
        if type(role) is not str:
            role = ""
        content = message.get("content")
        if type(content) is str and _BESIDE_CONTENT.isdisjoint(
            message
        ):  # nearly every one: no walk is needed
            return role + "\n" + content
        texts: list[str] = []
        self._add_texts(message, texts, 0)
        return role + "\n" + "\n".join(texts)

    def _add_texts(self, value: Any, texts: list[str], nesting: int) -> None:
        """Texts as they stand: of a string, a list of parts, or a message, part or call."""
        self.steps_left -= 1
        if type(value) is str:
            texts.append(value)
        elif nesting < _MAX_NESTING:
            if type(value) is list:
                for item in value:
                    if self.steps_left <= 0:
                        return
                    self._add_texts(item, texts, nesting + 1)
            elif type(value) is dict:
                kind = value.get("type")
                if type(kind) is str and kind in _MEDIA:
                    texts.append(_media(value))
                    return
                for name in _TEXT_FIELDS:
                    if name in value and (found := value[name]):
                        if type(found) is str:
                            texts.append(found)
                        elif name in _JSON_FIELDS:
                            texts.append(_json(found))
                        else:
                            self._add_texts(found, texts, nesting + 1)


def _media(part: dict[str, Any]) -> str:
    samples: list[str] = []
    _add_samples(part, samples, 0)
    return f"{seed_of(*samples):016x}" * _MEDIA_REPEATS


def _add_samples(value: Any, samples: list[str], nesting: int) -> None:
    if type(value) is str:
        chars = len(value)
        if chars > _SAMPLED_ABOVE_CHARS:
            last = chars - _SAMPLE_CHARS
            starts = [last * i // (_SAMPLES - 1) for i in range(_SAMPLES)]
            value = f"{chars}:" + "".join([value[start : start + _SAMPLE_CHARS] for start in starts])
        samples.append(value)
    elif nesting < _MAX_NESTING:
        if type(value) is dict:
            # Clients move this mark to their last message, so the same image comes with and without it.
            value = [item for name, item in value.items() if name != "cache_control"]
        if type(value) is list:
            for item in value:
                _add_samples(item, samples, nesting + 1)


def _add_prompt(prompt: Any, pieces: list[str]) -> None:
    """Text or token ids, or the first of several."""
    if type(prompt) is list and prompt and type(prompt[0]) is not int:
        prompt = prompt[0]
    if type(prompt) is str:
        pieces.append(prompt)
    elif type(prompt) is list:
        ids = prompt[: MAX_DEPTH_CHARS // TOKEN_CHARS + 1]
        try:
            packed = bytearray(struct.pack(f">{len(ids)}I", *ids))
        except struct.error:
            return
        del packed[::4]  # no vocabulary needs more than three bytes, and these are four characters in base 64
        pieces.append(b2a_base64(packed, newline=False).decode())


def _json(value: Any) -> str:
    """As most templates print definitions and arguments. Nothing where nested too deeply to be printed."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        pass
    try:  # what only the lenient decoder of bodies reads: halves of surrogate pairs, integers above 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return ""
