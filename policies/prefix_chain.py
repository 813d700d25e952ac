"""Fingerprints of a prompt's prefixes: which beginnings two prompts share, without keeping either.

Inputs: `pieces`, the prompt in the order in which the engine's cache sees it, each piece ending where a message ends; lengths and depths in
characters. A boundary is a depth at which a prefix has a name, a 64-bit hash over all before it: over the text of the block since the
boundary before (UTF-8), with that boundary's hash as the seed (xxh3, so every process and machine names it alike). That a piece
has ended counts for what follows the end, not for the hash at the end.

Where a boundary stands depends on the text before it alone. With `b` the boundary before (0 at first), it stands at the first depth `d` that is
- the end of a piece with d - b >= max(256, d / 6), or
- the end of a piece that is itself max(256, d / 3) long: a system prompt, a document; or
- any place with d - b >= max(256, d / 5), so that no gap is wider.
Because ends need less distance than other places, a conversation of messages below a twenty-fourth of its depth has boundaries at ends only.
Of n characters that two prompts share, the deepest boundary of both is above n - max(256, n / 5). At equal seeds the converse holds
too, but for a collision of 64 bits.

Bounds: no boundary is deeper than 65,536 characters, and there are at most 35; twenty-odd at that depth unless every message is a third of all
before it and ends right behind a place.
One character stands for another: the record separator (U+001E) is read as the unit separator (U+001F), since it marks the ends of pieces.
Cost: one hash a boundary; pieces are joined and measured in C.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

MIN_GAP_CHARS = 256
MAX_DEPTH_CHARS = 65_536
_END = "\x1e"
_NO_END = "\x1f"


class Prefix(NamedTuple):
    """`hashes` and `depths` from shallow to deep, one each per boundary; `chars` of the whole prompt, boundaries or not.

    `sizes` are the depths in bytes of UTF-8, `size` is the whole prompt's: a tokenizer takes about as many bytes to a token in one script as in another, but
    three to four times as many characters in English as in Chinese. So a boundary has size / `size` of the prompt's tokens before it.
    """

    hashes: tuple[int, ...]
    depths: tuple[int, ...]
    chars: int
    sizes: tuple[int, ...]
    size: int

    def followed_by(self, chars: int) -> Prefix:
        """By so many characters more, which are taken to be like those before."""
        size = self.size + chars * self.size // max(self.chars, 1)
        return self._replace(chars=self.chars + chars, size=size)


def seed_of(*names: str) -> int:
    """What keeps prompts apart whose text is equal: model, salt, extra key. Order and empty names count."""
    seed = 0
    for name in names:
        seed = xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed)
    return seed


def prefix_of(pieces: Sequence[str], seed: int, long_chars: int = 0) -> Prefix:
    """`long_chars`: of the whole prompt, where that is deeper than any boundary, so that `pieces` need not go on below the greatest depth."""
    ends = list(accumulate(map(len, pieces)))
    chars = ends[-1] if ends else 0
    if chars < MIN_GAP_CHARS:
        return Prefix((), (), chars, (), chars)
    limit = chars
    if chars > MAX_DEPTH_CHARS:
        limit, chars = MAX_DEPTH_CHARS, long_chars or chars
        pieces = _beginning(pieces, ends)
    if _END in "".join(pieces):  # ten times as fast as to count the marks afterwards
        pieces = [piece.replace(_END, _NO_END) for piece in pieces]
    text = _END.join(pieces)
    is_ascii = text.isascii()
    # Offsets are the same then, and one call is cheaper than one each block.
    data = text.encode() if is_ascii else b""
    hashes: list[int] = []
    depths: list[int] = []
    sizes: list[int] = []
    # `index` is the piece of the boundary; `start` is where in `text` the next block begins.
    depth = index = start = size = marks = 0
    end, last = ends[0], len(ends)
    while True:
        place = depth + ((depth + 3) // 4 if depth > 4 * MIN_GAP_CHARS else MIN_GAP_CHARS)
        if place >= end:
            if depth < end and _is_long(ends, index):
                place = end
            else:
                least = depth + ((depth + 4) // 5 if depth > 5 * MIN_GAP_CHARS else MIN_GAP_CHARS)
                index = bisect_left(ends, least, index)
                if index == last:
                    break
                end = ends[index]
                if end < place:
                    place = end
        if place > limit:
            break
        # At an end the block stops before the mark, which is the next block's first character.
        stop = place + index
        block = data[start:stop] if is_ascii else text[start:stop].encode("utf-8", "surrogatepass")
        seed = xxh3_64_intdigest(block, seed)
        hashes.append(seed)
        depths.append(place)
        depth = place
        start = stop
        if not is_ascii:
            size += len(block) - (index - marks)
            sizes.append(size)
            marks = index
    found = tuple(depths)
    if is_ascii:
        return Prefix(tuple(hashes), found, chars, found, chars)
    rest = len(text[start:].encode("utf-8", "surrogatepass")) - (len(pieces) - 1 - marks)
    return Prefix(tuple(hashes), found, limit, tuple(sizes), size + rest).followed_by(chars - limit)


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
