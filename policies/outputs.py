"""How long an answer will be: a decaying histogram of output tokens, its mean, its quantiles, and what is left once some tokens are out.

Decides: the expected output and its upper quantiles. Bin b > 0 holds answers of 2**(b-1) to 2**b - 1 tokens, bin 0 empty ones, the last of
24 bins all above. A sample's weight halves over `half_life_samples` later ones; instead of shrinking the bins, each sample weighs more
than the one before, and all weights are brought back to scale at 2**20. A bin also keeps its sum of tokens, so the mean is exact where no
limit cuts through a bin; inside a bin tokens count as spread evenly.
Inputs: tokens; `max_tokens` is the request's own limit, None without one, and bounds every result.
Settings: `half_life_samples` (1.., default 1000), `start_tokens` (what is expected before anything was seen, default 256), `enough_samples`
(recent samples from which on a histogram speaks for itself, default 20).
Limits: an answer cut by its own limit counts with the length it got, so requests without a limit are underestimated where most have a small
one. After the longest answer seen, the expectation is as much again as there is already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

BINS = 24
_RESCALED_ABOVE = 2.0**20


@dataclass(frozen=True, slots=True)
class OutputRules:
    half_life_samples: float = 1000.0
    start_tokens: float = 256.0
    enough_samples: float = 20.0


class Histogram(NamedTuple):
    weights: tuple[float, ...] = (0.0,) * BINS
    sums: tuple[float, ...] = (0.0,) * BINS
    """Weighted tokens per bin."""
    unit: float = 1.0
    """What the latest sample weighed."""

    @property
    def samples(self) -> float:
        """How many recent samples it stands for."""
        return sum(self.weights) / self.unit


EMPTY = Histogram()


def observed(histogram: Histogram, answers: Iterable[int], rules: OutputRules) -> Histogram:
    """The histogram with the output tokens of more answers, oldest first; a negative count is no answer."""
    growth = 2.0 ** (1.0 / rules.half_life_samples)
    unit = histogram.unit
    weights = list(histogram.weights)
    sums = list(histogram.sums)
    for tokens in answers:
        if tokens < 0:
            continue
        unit *= growth
        index = min(tokens.bit_length(), BINS - 1)
        weights[index] += unit
        sums[index] += unit * tokens
        if unit > _RESCALED_ABOVE:
            weights = [weight / unit for weight in weights]
            sums = [total / unit for total in sums]
            unit = 1.0
    return Histogram(tuple(weights), tuple(sums), unit)


def mean(histogram: Histogram, max_tokens: float | None, rules: OutputRules) -> float:
    """Expected tokens of an answer that ends at `max_tokens`."""
    total = sum(histogram.weights)
    if total <= 0.0:
        return _clipped(rules.start_tokens, max_tokens)
    if max_tokens is None:
        return sum(histogram.sums) / total
    tokens = 0.0
    for weight, average, low, high in _filled(histogram):
        if high <= max_tokens:
            tokens += weight * average
        elif max_tokens <= low:
            tokens += weight * max_tokens
        else:
            below = (max_tokens - low) / (high - low)
            cut = below * (low + max_tokens) / 2.0 + (1.0 - below) * max_tokens
            tokens += weight * min(cut, average)
    return tokens / total


def quantile(histogram: Histogram, share: float, max_tokens: float | None, rules: OutputRules) -> float:
    """The tokens that `share` (0..1) of the answers do not exceed."""
    total = sum(histogram.weights)
    if total <= 0.0:
        return _clipped(rules.start_tokens, max_tokens)
    rest = share * total
    tokens = 0.0
    for weight, _, low, high in _filled(histogram):
        tokens = low + (high - low) * min(rest / weight, 1.0)
        rest -= weight
        if rest <= 0.0:
            break
    return _clipped(tokens, max_tokens)


def expected_beyond(
    histogram: Histogram, produced_tokens: float, max_tokens: float | None, rules: OutputRules
) -> float:
    """Expected tokens of the whole answer, now that `produced_tokens` are out and it goes on."""
    total = tokens = 0.0
    for weight, average, low, high in _filled(histogram):
        if high <= produced_tokens:
            continue
        if low < produced_tokens:
            weight *= (high - produced_tokens) / (high - low)
            average = max(average, (produced_tokens + high) / 2.0)
        total += weight
        tokens += weight * average
    expected = tokens / total if total > 0.0 else max(2.0 * produced_tokens, rules.start_tokens)
    return max(_clipped(expected, max_tokens), produced_tokens)


def _clipped(tokens: float, max_tokens: float | None) -> float:
    return tokens if max_tokens is None else min(tokens, max_tokens)


def _filled(histogram: Histogram) -> Iterator[tuple[float, float, float, float]]:
    """Of each bin with weight: the weight, the mean, the least and the greatest tokens."""
    for index, weight in enumerate(histogram.weights):
        if weight > 0.0:
            average = histogram.sums[index] / weight
            low = float(1 << index >> 1)
            high = max(2.0 * low - 1.0, low) if index < BINS - 1 else max(average, low)
            yield weight, average, low, high
