"""Fingerprints of a prompt's prefixes: which beginnings two prompts share, without keeping either.

Inputs: `pieces`, the prompt in the order in which the engine's cache sees it, each piece ending where a message ends; lengths and depths in
characters. A boundary is a depth at which a prefix has a name, a 64-bit hash over all before it: over the text of the block since the
boundary before, with that boundary's hash as the seed (xxh3, so every process and machine names it alike). That a piece has ended
counts for what follows the end, not for the hash at the end. A block is read as ASCII if it is, else as UTF-32 at the inverted seed:
UTF-8 takes 3 to 5 times as long to make of Chinese, and the seed keeps the two apart where their bytes are equal.

Where a boundary stands depends on the text before it alone. With `b` the boundary before (0 at first), it stands at the first depth `d` that is
- the end of a piece with d - b >= max(128, d / 6), or
- the end of a piece that is itself max(128, d / 3) long: a system prompt, a document; or
- any place with d - b >= max(128, d / 5), so that no gap is wider.
Because ends need less distance than other places, a conversation of messages below a twenty-fourth of its depth has boundaries at ends only.
Of n characters that two prompts share, the deepest boundary of both is above n - max(128, n / 5). At equal seeds the converse holds
too, but for a collision of 64 bits.

Bounds: no boundary is deeper than 65,536 characters, and there are at most 39; some 30 at that depth unless every message is a third of all
before it and ends right behind a place.
One character stands for another: the record separator (U+001E) is read as the unit separator (U+001F), since it marks the ends of pieces.
Cost: one hash a boundary; pieces are joined and measured in C.
"""

from __future__ import annotations

from bisect import bisect_left
from codecs import utf_32_le_encode
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

MIN_GAP_CHARS = 128
MAX_DEPTH_CHARS = 65_536
_END = "\x1e"
_NO_END = "\x1f"
_INVERTED = 2**64 - 1


class Prefix(NamedTuple):
    """`hashes` and `depths` from shallow to deep, one each per boundary; `chars` of the whole prompt, boundaries or not."""

    hashes: tuple[int, ...]
    depths: tuple[int, ...]
    chars: int


def seed_of(*names: str) -> int:
    """What keeps prompts apart whose text is equal: model, salt, extra key. Order and empty names count."""
    seed = 0
    for name in names:
        seed = xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed)
    return seed


def prefix_of(pieces: Sequence[str], seed: int) -> Prefix:
    ends = list(accumulate(map(len, pieces)))
    chars = ends[-1] if ends else 0
    if chars < MIN_GAP_CHARS:
        return Prefix((), (), chars)
    limit = chars
    if chars > MAX_DEPTH_CHARS:
        limit = MAX_DEPTH_CHARS
        pieces = _beginning(pieces, ends)
    if _END in "".join(pieces):  # ten times as fast as to count the marks afterwards
        pieces = [piece.replace(_END, _NO_END) for piece in pieces]
    text = _END.join(pieces)
    is_ascii = text.isascii()
    # Offsets are the same, and one call is cheaper than one each block.
    data = text.encode() if is_ascii else b""
    hashes: list[int] = []
    depths: list[int] = []
    # `index` is the piece of the boundary; `start` is where in `text` the next block begins.
    depth = index = start = 0
    end = ends[0]
    while True:
        gap = depth + 3 >> 2
        place = depth + gap if gap > 128 else depth + 128
        if place >= end:
            if depth < end and _is_long(ends, index):
                place = end
            else:
                gap = (depth + 4) // 5
                index = bisect_left(ends, depth + gap if gap > 128 else depth + 128, index)
                if index == len(ends):
                    break
                end = ends[index]
                if end < place:
                    place = end
        if place > limit:
            break
        # At an end the block stops before the mark, which is the next block's first character.
        stop = place + index
        seed = xxh3_64_intdigest(data[start:stop], seed) if is_ascii else _name(text[start:stop], seed)
        hashes.append(seed)
        depths.append(place)
        depth = place
        start = stop
    return Prefix(tuple(hashes), tuple(depths), chars)


def _name(block: str, seed: int) -> int:
    if block.isascii():
        return xxh3_64_intdigest(block.encode(), seed)
    # Half the time of `str.encode`, which looks this codec up by its name.
    return xxh3_64_intdigest(utf_32_le_encode(block, "surrogatepass")[0], seed ^ _INVERTED)


def _is_long(ends: list[int], index: int) -> bool:
    """Asked only of the piece that the boundary before stands in.

    A long piece that starts later has a place for a boundary inside or at its end, which comes first.
    """
    end = ends[index]
    length = end - ends[index - 1] if index else end
    return length >= MIN_GAP_CHARS and 3 * length >= end


def _beginning(pieces: Sequence[str], ends: list[int]) -> list[str]:
    """The text down to the greatest depth, and so many pieces."""
    last = bisect_left(ends, MAX_DEPTH_CHARS)
    beginning = list(pieces[: last + 1])
    beginning[last] = beginning[last][: MAX_DEPTH_CHARS - (ends[last - 1] if last else 0)]
    return beginning
