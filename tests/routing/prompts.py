"""Prompts for the decision core, by what they begin with: `of("system", "document")` shares its first block with `of("system", "other")`."""

from __future__ import annotations

from policies.cache_key import NO_PREFIX, CacheKey
from policies.lengths import TextSize
from policies.prefix_chain import Prefix, seed_of
from routing.decision import Intent

BLOCK_CHARS = 1000


def key_of(*blocks: str, session: str = "") -> CacheKey:
    hashes: list[int] = []
    for block in blocks:
        hashes.append(seed_of(f"{hashes[-1] if hashes else 0}", block))
    depths = tuple(BLOCK_CHARS * (count + 1) for count in range(len(blocks)))
    size = BLOCK_CHARS * len(blocks)
    prefix = Prefix(tuple(hashes), depths, size, depths, size) if blocks else NO_PREFIX
    return CacheKey(prefix, seed_of("tenant", session) if session else 0)


def of(*blocks: str, session: str = "", streamed: bool = False) -> Intent:
    """A block is a thousand tokens, so that each is worth a choice."""
    size = TextSize(token_ids=1000 * max(1, len(blocks)))
    return Intent(size=size, max_tokens=10, streamed=streamed, key=key_of(*blocks, session=session))
