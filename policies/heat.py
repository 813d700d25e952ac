"""Which requests are hot: those whose prompt begins as many others did lately, or whose session is busy.

Decides, from how often a beginning of the prompt was seen in the window (`routing.frequency_sketch`), whether it is hot:
    hot where seen >= `min_hits`, or seen >= `COOL_SHARE` * `min_hits` by one that was hot before (hysteresis)
A request is hot where its session is, or where its longest hot beginning is at least `MIN_SHARE` of its prompt: a system prompt of 200 tokens before a
document of 10,000 that nobody asked for before saves nothing, and its request holds a slot as long as any cold one.
Counted are not all beginnings but one in each doubling of the depth (`counted`): the ends of blocks of the chain nearest above 256, 512, 1,024 ... characters. What is
shared to some depth is so recognised within half of it, and a prompt of 64 Ki characters costs ten counts.
Source of the terms: reuse of a cached beginning `reuse_cache_min_hits` times, in the field.
Settings: `min_hits` (1..200, default 5), `window_seconds` (1..86400, default 300).
Limit: the sketch may take a rare beginning for a frequent one, never the other way round, see there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COOL_SHARE = 0.6
MIN_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class HeatRules:
    min_hits: int = 5
    window_seconds: float = 300.0


def counted(depths: Sequence[int]) -> list[int]:
    """Which boundaries are counted, as indices, from shallow to deep."""
    found: list[int] = []
    next_depth = 0
    for index, depth in enumerate(depths):
        if depth >= next_depth:
            found.append(index)
            next_depth = 1 << depth.bit_length()
    return found


def is_hot(seen: float, was_hot: bool, rules: HeatRules) -> bool:
    return seen >= (COOL_SHARE * rules.min_hits if was_hot else rules.min_hits)


def is_hot_request(hot_depth: int, chars: int) -> bool:
    """`hot_depth` characters of the prompt's `chars` are a hot beginning, 0 where none is."""
    return hot_depth > 0 and hot_depth >= MIN_SHARE * chars
