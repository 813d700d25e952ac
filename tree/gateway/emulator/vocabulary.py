"""The words an emulated answer is made of: one word is one token.

A seed shuffles the list into a ring of 4,096 words; a prompt's fingerprint is the place in the ring where its
answer begins. So equal prompts get equal answers from equal seeds, in every process. The words mean nothing
and say so little that nobody takes them for a model's. None needs escaping in JSON.
"""

from __future__ import annotations

from random import Random

WORDS = (
    *(
        " water",
        " gate",
        " stream",
        " stone",
        " wheel",
        " mill",
        " bank",
        " reed",
        " bridge",
        " ford",
        " weir",
        " lock",
    ),
    *(
        " channel",
        " basin",
        " spring",
        " current",
        " ripple",
        " bend",
        " shore",
        " ferry",
        " anchor",
        " tide",
        " pool",
    ),
    *(
        " flows",
        " turns",
        " rises",
        " falls",
        " waits",
        " passes",
        " holds",
        " gathers",
        " slows",
        " clears",
        " carries",
    ),
    *(
        " over",
        " under",
        " along",
        " through",
        " past",
        " toward",
        " and",
        " then",
        " while",
        " until",
        " slowly",
        " here",
    ),
    *("水", "渠", "闸", "流", "石", "桥", " déjà", " über"),
)
RING_WORDS = 4096


class Vocabulary:
    """All answers of one seed."""

    def __init__(self, seed: int) -> None:
        self._ring = [word.encode() for word in Random(seed).choices(WORDS, k=RING_WORDS)]

    def words(self, fingerprint: int, count: int) -> list[bytes]:
        """`count` tokens, as UTF-8."""
        start = fingerprint % RING_WORDS
        pieces = self._ring[start : start + count]
        while len(pieces) < count:
            pieces += self._ring[: count - len(pieces)]
        return pieces

    def word(self, token_id: int) -> str:
        return self._ring[token_id % RING_WORDS].decode()
