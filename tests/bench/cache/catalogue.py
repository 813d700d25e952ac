"""The prefixes that requests share: system prompts, documents under one of them, and how popular each is.

There are two generations of both, of the same kind and with nothing in common: the second one takes over when popularity shifts. Popularity is
Zipf's: the prefix of rank r is asked for in proportion to 1 / r^s. The few most popular ones are then worth a copy on every engine, while those of
the tail come again too seldom for one engine out of eight to keep them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

SYSTEMS = 40
SYSTEM_TOKENS = (300, 1500)
SYSTEM_EXPONENT = 1.0
DOCUMENTS = 300
DOCUMENT_TOKENS = (1000, 4000)
DOCUMENT_EXPONENT = 0.9
GENERATIONS = 2


@dataclass(frozen=True, slots=True)
class Document:
    system: int
    """The system prompt that always stands before it."""
    tokens: int


class Catalogue:
    """`seed` decides the sizes. The prefixes of a generation are numbered by rank, after those of the one before."""

    def __init__(self, seed: int) -> None:
        chance = Random(f"catalogue {seed}")
        self.system_tokens = [chance.randint(*SYSTEM_TOKENS) for _ in range(GENERATIONS * SYSTEMS)]
        self.documents = [
            Document(draw_system(chance, generation), chance.randint(*DOCUMENT_TOKENS))
            for generation in range(GENERATIONS)
            for _ in range(DOCUMENTS)
        ]


def draw_system(chance: Random, generation: int) -> int:
    return generation * SYSTEMS + chance.choices(range(SYSTEMS), cum_weights=_SYSTEM_WEIGHTS)[0]


def draw_document(chance: Random, generation: int) -> int:
    return generation * DOCUMENTS + chance.choices(range(DOCUMENTS), cum_weights=_DOCUMENT_WEIGHTS)[0]


def zipf(count: int, exponent: float) -> list[float]:
    """Cumulative weights of the ranks 1 to `count`."""
    return list(accumulate(rank**-exponent for rank in range(1, count + 1)))


_SYSTEM_WEIGHTS = zipf(SYSTEMS, SYSTEM_EXPONENT)
_DOCUMENT_WEIGHTS = zipf(DOCUMENTS, DOCUMENT_EXPONENT)
