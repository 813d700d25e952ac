"""A share over time in one line of text: a mark per bucket of seconds.

In: the share in [0, 1] of each bucket, None where nothing is known. The lowest mark is below a seventh; the full block is kept for `FULL_SHARE` and
more, so that a row of full blocks means that nearly all were in time, and not merely most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FULL_SHARE = 0.99
_MARKS = "▁▂▃▄▅▆▇█"


def mark(share: float | None) -> str:
    if share is None:
        return " "
    return _MARKS[-1] if share >= FULL_SHARE else _MARKS[int(max(0.0, share) * (len(_MARKS) - 1))]


def sparkline(shares: Sequence[float | None]) -> str:
    return "".join(map(mark, shares))


def seconds_per_mark(span_seconds: float, marks: int) -> int:
    """How long a bucket has to be for `span_seconds` to fit."""
    return max(1, math.ceil(span_seconds / max(1, marks)))


def buckets(last_second: int, size: int, marks: int) -> list[range]:
    """The seconds of the last `marks` buckets, up to and with the one of `last_second`. They begin at multiples of `size`, so that none changes
    once it is over."""
    newest = last_second // size
    oldest = max(0, newest - marks + 1)
    return [range(number * size, (number + 1) * size) for number in range(oldest, newest + 1)]
