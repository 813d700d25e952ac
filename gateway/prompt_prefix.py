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
Cost: as the number of messages and parts, like decoding them did; of a long plain chat only what lies above the greatest depth is copied.
Limits: switches of a template (`chat_template_kwargs`, `reasoning_effort`) are not seen. Where a template prints tools before the system
prompt, prompts that differ in tools share less than their fingerprints say. Thinking and the ids of calls are left out, as templates do.
"""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from operator import itemgetter
from typing import Any

import orjson

from gateway.paths import Kind
from policies.prefix_chain import MAX_DEPTH_CHARS, Prefix, prefix_of, seed_of

_SEED_FIELDS = ("cache_salt", "extra_key", "lora_path", "chat_template")
_SYSTEM_ROLES = ("system", "developer")
_GENERATION_FIELDS = frozenset({
    "instructions", "max_completion_tokens", "max_output_tokens", "max_tokens", "options", "previous_response_id", "sampling_params",
    "stream",
})  # fmt: skip
_TEXT_FIELDS = (
    "name", "content", "text", "refusal", "arguments", "input", "output", "function", "tool_calls",
)  # fmt: skip
_JSON_FIELDS = ("arguments", "input")
_MEDIA = frozenset({
    "image_url", "input_image", "image", "input_audio", "audio_url", "audio", "video_url", "video", "file", "input_file", "document",
})  # fmt: skip
_MEDIA_REPEATS = 64
"""Of sixteen hexadecimal digits: 1,024 characters, some 256 tokens."""
_SAMPLED_ABOVE_CHARS = 65_536
_SAMPLES = 64
_SAMPLE_CHARS = 1024
_TOKEN_CHARS = 4
_role = itemgetter("role")
_content = itemgetter("content")
_MAX_NESTING = 6
_MAX_SESSION_CHARS = 256


def prompt_prefix(kind: Kind, fields: dict[str, Any], model: str) -> Prefix | None:
    """`fields` is the body's JSON object, which stays as it is; `model` the name that the engine gets."""
    pieces: list[str] = []
    if kind is Kind.CHAT:
        unseen_chars = _add_chat(fields, fields.get("messages"), pieces)
    elif kind is Kind.COMPLETION:
        unseen_chars = _add_prompt(fields.get("prompt"), pieces)
    elif kind is Kind.JSON:
        unseen_chars = _add_other(fields, pieces)
    else:
        return None
    if not pieces:
        return None
    prefix = prefix_of(pieces, _seed(fields, model))
    if not prefix.hashes:
        return None
    return prefix.followed_by(unseen_chars) if unseen_chars else prefix


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


def _add_other(fields: dict[str, Any], pieces: list[str]) -> int:
    items = fields.get("input")
    has_items = type(items) is list and bool(items) and type(items[0]) is dict
    if not has_items and _GENERATION_FIELDS.isdisjoint(fields):
        return 0
    system = fields.get("system") or fields.get("instructions")
    if system:
        pieces.append(_piece({"role": "system", "content": system}))
    messages = fields.get("messages")
    if type(messages) is list and messages:
        return _add_chat(fields, messages[0] if type(messages[0]) is list else messages, pieces)
    if type(items) is str:
        items = [{"role": "user", "content": items}]
    earlier = fields.get("previous_response_id")
    if type(earlier) is str and earlier:
        items = [
            {"role": "previous_response_id", "content": earlier},
            *(items if type(items) is list else ()),
        ]
    unseen_chars = _add_chat(fields, items, pieces)
    if not items:
        unseen_chars = _add_prompt(
            fields.get("prompt") or fields.get("text") or fields.get("input_ids"), pieces
        )
    return unseen_chars


def _add_chat(fields: dict[str, Any], messages: Any, pieces: list[str]) -> int:
    """Behind a system prompt, where `pieces` has one. The characters that were left out, being below the greatest depth."""
    has_system = bool(pieces)
    unseen_chars = 0
    if type(messages) is list and messages:
        unseen_chars = _add_messages(messages, pieces)
        first = messages[0]
        has_system = has_system or (type(first) is dict and first.get("role") in _SYSTEM_ROLES)
    for name in ("documents", "tools"):  # each goes in front of the one before
        definitions = fields.get(name)
        if definitions and type(definitions) is list:
            pieces.insert(1 if has_system else 0, f"{name}\n{_json(definitions)}")
    return unseen_chars


def _add_messages(messages: list[Any], pieces: list[str]) -> int:
    """The characters that were left out, as in `_add_chat`."""
    try:
        if max(map(len, messages)) == 2:  # a role and a text each, as nearly all are
            contents = list(map(_content, messages))
            if sum(map(len, contents)) <= MAX_DEPTH_CHARS:
                pieces += [message["role"] + "\n" + message["content"] for message in messages]
                return 0
            if set(map(type, contents)) == {str}:
                return _add_long(messages, contents, pieces)
    except (TypeError, KeyError):
        pass
    pieces += [_piece(message) for message in messages if type(message) is dict]
    return 0


def _add_long(messages: list[Any], contents: list[str], pieces: list[str]) -> int:
    roles = list(map(_role, messages))
    unseen_chars = len("".join(roles)) + len(roles) + sum(map(len, contents))
    seen_chars = 0
    for role, content in zip(roles, contents, strict=True):
        # One character more than counts, so that a piece that is cut short still ends below the greatest depth.
        piece = f"{role}\n{content[: MAX_DEPTH_CHARS + 1]}"
        pieces.append(piece)
        seen_chars += len(piece)
        if seen_chars > MAX_DEPTH_CHARS:
            break
    return unseen_chars - seen_chars


def _piece(message: dict[str, Any]) -> str:
    """A message, or an item of `/v1/responses`: a message, a call, or what came of one."""
    role = message.get("role") or message.get("type")
    texts: list[str] = []
    _add_texts(message, texts, 0)
    return (role if type(role) is str else "") + "\n" + "\n".join(texts)


def _add_texts(value: Any, texts: list[str], nesting: int) -> None:
    """Texts as they stand: of a string, a list of parts, or a message, part or call."""
    if type(value) is str:
        texts.append(value)
    elif nesting < _MAX_NESTING:
        if type(value) is list:
            for item in value:
                _add_texts(item, texts, nesting + 1)
        elif type(value) is dict:
            kind = value.get("type")
            if type(kind) is str and kind in _MEDIA:
                texts.append(_media(value))
                return
            for name in _TEXT_FIELDS:
                found = value.get(name)
                if found:
                    if name in _JSON_FIELDS and type(found) is not str:
                        texts.append(_json(found))
                    else:
                        _add_texts(found, texts, nesting + 1)


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


def _add_prompt(prompt: Any, pieces: list[str]) -> int:
    """Text or token ids, or the first of several; the characters left out, as in `_add_chat`."""
    if type(prompt) is list and prompt and type(prompt[0]) is not int:
        prompt = prompt[0]
    if type(prompt) is str:
        pieces.append(prompt)
    elif type(prompt) is list:
        ids = prompt[: MAX_DEPTH_CHARS // _TOKEN_CHARS + 1]
        try:
            packed = bytearray(struct.pack(f">{len(ids)}I", *ids))
        except struct.error:
            return 0
        del packed[::4]  # no vocabulary needs more than three bytes, and these are four characters in base 64
        pieces.append(b2a_base64(packed, newline=False).decode())
        return (len(prompt) - len(ids)) * _TOKEN_CHARS
    return 0


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
