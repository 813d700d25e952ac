"""The bytes of a call: an OpenAI chat completion, not streamed, on a keep-alive connection.

`Tags.HEADERS` names the business type in `x-headrace-business` and sends the key of a tenant whose headers are trusted; `Tags.TEXT` leaves
it to the gateway to find the type in the text; in both, an emergency carries the key and `x-headrace-lane: emergency`. `Tags.NONE` is for proxies that
know none of this. Prompt lengths are in the emulated engine's tokens: four ASCII characters or one other character.
"""

from __future__ import annotations

import json
from enum import StrEnum
from random import Random

from tests.bench.slo.kinds import CHINESE_WORDS, KINDS, WORDS, Kind
from tests.bench.slo.schedule import Call

MODEL = "emulated"
API_KEY = "sk-slo-bench"
_TEMPLATE_TOKENS = 9
"""What the engine's chat template adds around a system and a user message."""
_RING_TOKENS = 16_384
_BYTES_PER_CHARACTER = 3
"""Of the Chinese words above, in UTF-8; a slice of the ring must not cut one in two."""


class Tags(StrEnum):
    HEADERS = "tagged"
    TEXT = "untagged"
    NONE = "none"


class Requests:
    """`seed` decides the texts; two makers with the same seed make the same bytes for the same calls in the same order."""

    def __init__(self, port: int, tags: Tags, seed: int) -> None:
        self._chance = Random(seed)
        self._plain = [_head(port, _tag_lines(kind, tags, emergency=False)) for kind in KINDS]
        self._urgent = [_head(port, _tag_lines(kind, tags, emergency=True)) for kind in KINDS]
        self._bodies = [
            (_Bodies(kind, self._chance, False), _Bodies(kind, self._chance, True)) for kind in KINDS
        ]

    def make(self, call: Call) -> bytes:
        body = self._bodies[call.kind][call.chinese].make(call.prompt_tokens, call.output_tokens)
        head = (self._urgent if call.emergency else self._plain)[call.kind]
        return head % len(body) + body


class _Bodies:
    """Those of one type in one language: beginning, a stretch of filler as long as needed, end."""

    def __init__(self, kind: Kind, chance: Random, chinese: bool) -> None:
        self._chance = chance
        self._token_bytes = _BYTES_PER_CHARACTER if chinese else 4
        self._ring = filler(chance, _RING_TOKENS, chinese).encode()
        shared = kind.prompt_tokens[0] // 2
        written = kind.system_chinese if chinese else kind.system
        system = written + filler(chance, shared - tokens(written), chinese)
        self._beginnings = []
        for opening in kind.openings_chinese if chinese else kind.openings:
            beginning = f'{{"model":"{MODEL}","messages":[{{"role":"system","content":{_text(system)}}},{{"role":"user","content":{_text(opening)[:-1]}'
            self._beginnings.append((beginning.encode(), tokens(system) + tokens(opening) + _TEMPLATE_TOKENS))

    def make(self, prompt_tokens: int, output_tokens: int) -> bytes:
        chance = self._chance
        beginning, beginning_tokens = chance.choice(self._beginnings)
        length = prompt_tokens - beginning_tokens
        start = int(chance.random() * (_RING_TOKENS - length)) * self._token_bytes
        text = self._ring[start : start + length * self._token_bytes]
        return beginning + text + b'"}],"temperature":0.2,"max_tokens":%d}' % output_tokens


def tokens(text: str) -> int:
    """In a text of one script; at a change of script the engine may count one more."""
    ascii_characters = sum(character < "\x80" for character in text)
    return -(-ascii_characters // 4) + len(text) - ascii_characters


def filler(chance: Random, count: int, chinese: bool) -> str:
    """Just as many tokens."""
    if chinese:
        return "".join(chance.choices(CHINESE_WORDS, k=count))[:count]
    return " ".join(chance.choices(WORDS, k=count * 4))[: count * 4]


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _tag_lines(kind: Kind, tags: Tags, *, emergency: bool) -> str:
    if tags is Tags.NONE:
        return ""
    lines = ""
    if emergency or tags is Tags.HEADERS:
        lines += f"authorization: Bearer {API_KEY}\r\n"
    if emergency:
        lines += "x-headrace-lane: emergency\r\n"
    if tags is Tags.HEADERS:
        lines += f"x-headrace-business: {kind.name}\r\n"
    return lines


def _head(port: int, lines: str) -> bytes:
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nuser-agent: headrace-bench\r\n"
        f"accept: application/json\r\ncontent-type: application/json\r\n{lines}"
    )
    return head.encode() + b"content-length: %d\r\n\r\n"
