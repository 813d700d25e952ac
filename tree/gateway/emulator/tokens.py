"""The emulated tokenizer: how many tokens a prompt has, and which of its prefixes are equal to an earlier
one's.

Rule: a token is a run of up to four ASCII characters or one other character, read from the left. So English
costs about what a real tokenizer takes and Chinese one token per character. It is no real vocabulary: real
engines differ from it by some ten percent, and by more on code, numbers and rare scripts.

A prompt is cut into blocks of 16 tokens. Each full block has a hash over its text and the hash before it, so
equal hashes mean equal prefixes. The hashes are Python's, salted per process: they name blocks inside one
engine and are never shown. `fingerprint` is a CRC-32, equal in every process, and decides the answer's text.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

BLOCK_TOKENS = 16
TOKEN_CHARACTERS = 4
_BLOCK_CHARACTERS = BLOCK_TOKENS * TOKEN_CHARACTERS
_TOKEN = re.compile(r"[\x00-\x7f]{1,4}|[^\x00-\x7f]")
_BLOCK = re.compile(r"(?:[\x00-\x7f]{1,4}|[^\x00-\x7f]){1,16}")


@dataclass(slots=True, frozen=True)
class Prompt:
    """`tokens` counts all of them; `block_hashes` names the full blocks only."""

    tokens: int
    block_hashes: Sequence[int]
    fingerprint: int


def split(text: str) -> list[str]:
    """The tokens of a text."""
    return _TOKEN.findall(text)


def read_text(text: str, salt: str = "") -> Prompt:
    """A text prompt. A `salt` keeps its blocks apart from those of every other salt."""
    parent = hash(salt)
    hashes: list[int] = []
    if text.isascii():
        # Without other characters every block is 64 characters long, so slices do what the expression below does.
        full = len(text) // _BLOCK_CHARACTERS
        for start in range(0, full * _BLOCK_CHARACTERS, _BLOCK_CHARACTERS):
            parent = hash((parent, text[start : start + _BLOCK_CHARACTERS]))
            hashes.append(parent)
        tokens = -(-len(text) // TOKEN_CHARACTERS)
        return Prompt(tokens, hashes, zlib.crc32(text.encode()))
    blocks: list[str] = _BLOCK.findall(text)
    last = len(split(blocks[-1]))
    tokens = (len(blocks) - 1) * BLOCK_TOKENS + last
    for block in blocks if last == BLOCK_TOKENS else blocks[:-1]:
        parent = hash((parent, block))
        hashes.append(parent)
    return Prompt(tokens, hashes, zlib.crc32(text.encode("utf-8", "surrogatepass")))


def read_token_ids(ids: Sequence[int], salt: str = "") -> Prompt:
    """A prompt that the client has cut into tokens itself."""
    parent = hash(salt)
    hashes: list[int] = []
    for start in range(0, len(ids) - len(ids) % BLOCK_TOKENS, BLOCK_TOKENS):
        parent = hash((parent, tuple(ids[start : start + BLOCK_TOKENS])))
        hashes.append(parent)
    return Prompt(len(ids), hashes, zlib.crc32(repr(list(ids)).encode()))
