"""How much longer one request takes than another at the same engine load, because it has more to compute.

Decides: `expected(fit, work)`, a request's service time in units of that of a request of the reference work. Dividing observed times by
it makes requests of different lengths comparable, so that long answers do not look like a slow engine.
Inputs: sums over the requests of one interval, during which the engine's load was about the same; work in tokens.
Formula: share = intercept + slope * work, by least squares over `seconds / level`, where level is the interval's own sum of seconds by sum of
expectations; each interval's means replace a part of the older ones, so about the last `MEMORY` samples count. Scaled so that the
reference work (the first interval's mean) has share 1.
Limits: one straight line per backend; work that varies less than 5 % around its mean gives no slope, and work that says nothing about the
time ends at slope 0.
"""

from __future__ import annotations

from typing import NamedTuple

MEMORY = 500.0
_LEAST_SPREAD = 0.05
_LEAST_SHARE = 0.05


class WorkSums(NamedTuple):
    samples: int = 0
    seconds: float = 0.0
    work: float = 0.0
    square: float = 0.0
    """Of the work."""
    product: float = 0.0
    """Of work and seconds."""


class WorkFit(NamedTuple):
    intercept: float = 1.0
    slope: float = 0.0
    """Per token of work."""
    reference: float = -1.0
    """The work whose expectation is 1; negative until the first interval."""
    samples: float = 0.0
    mean_work: float = 0.0
    mean_share: float = 0.0
    mean_square: float = 0.0
    mean_product: float = 0.0


UNFITTED = WorkFit()


def expected(fit: WorkFit, work: float) -> float:
    return max(_LEAST_SHARE, fit.intercept + fit.slope * work)


def level(fit: WorkFit, sums: WorkSums) -> float:
    """Seconds that a request of the reference work took."""
    return sums.seconds / (
        sums.samples * max(_LEAST_SHARE, fit.intercept + fit.slope * sums.work / sums.samples)
    )


def fitted(fit: WorkFit, sums: WorkSums) -> WorkFit:
    count = sums.samples
    seconds = level(fit, sums)
    samples = min(fit.samples + count, MEMORY)
    part = min(1.0, count / samples)
    mean_work = fit.mean_work + part * (sums.work / count - fit.mean_work)
    mean_share = fit.mean_share + part * (sums.seconds / seconds / count - fit.mean_share)
    mean_square = fit.mean_square + part * (sums.square / count - fit.mean_square)
    mean_product = fit.mean_product + part * (sums.product / seconds / count - fit.mean_product)
    reference = mean_work if fit.reference < 0 else fit.reference
    variance = mean_square - mean_work * mean_work
    slope = 0.0
    if variance > (_LEAST_SPREAD * mean_work) ** 2:
        # A longer request never takes less, and what the work does not explain is never negative.
        slope = min(max(0.0, (mean_product - mean_work * mean_share) / variance), mean_share / mean_work)
    intercept = mean_share - slope * mean_work
    scale = max(1e-9, intercept + slope * reference)
    return WorkFit(
        intercept / scale, slope / scale, reference, samples, mean_work, mean_share, mean_square, mean_product
    )
