"""The arithmetic of rounds: percentiles, ratios of pairs and slopes.

Peers are measured in alternating rounds because the machine's speed drifts; a ratio is therefore taken inside each round and the
median of those ratios is reported, never the ratio of two medians. Percentiles are nearest rank: a value that was really seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile: the smallest value with at least `share` (0..1] of all values at or below it."""
    if not values:
        raise ValueError("no values were measured")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over the rounds of ours / theirs; both sequences hold one figure per round, in the same order."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def median_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over the rounds of ours - theirs."""
    return median(mine - other for mine, other in zip(ours, theirs, strict=True))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope of ys over xs; 0 for fewer than two points."""
    if len(xs) < 2:
        return 0.0
    x_mean, y_mean = fmean(xs), fmean(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread


def cpu_per_chunk(streamed_cpu: float, streams: float, cpu_per_request: float, chunks: int) -> float:
    """CPU of one streamed chunk: what is left of a streamed run's CPU after each stream is charged as one plain request.

    Chunks are the content chunks that reached the client; head, role chunk, finish, usage and `[DONE]` are what a plain request's
    price stands for. `streams` may be a fraction: chunks / chunks per stream, so that streams cut by the window's ends count in part.
    """
    return (streamed_cpu - streams * cpu_per_request) / chunks
