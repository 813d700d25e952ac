"""How long a request takes in an engine of continuous batching with so many in flight, as long as nothing queues there.

Decides: base and slope of   service = base + slope * in-flight   of one engine, from means over control intervals.
The mean service is kept per level of in-flight (four levels to an octave, each a mean of its last 20 or so intervals) and the line is drawn
through the levels by weighted least squares: hours at one level do not make the others forgotten. The mean, for it is the statistic that
stays on the line whatever mixture of batches an interval saw. `scaled` moves the whole line by part of the way to an interval's service.
Inputs: mean in-flight (at least 1) and mean service in seconds (above 0) of an interval; whoever calls leaves out intervals with a queue in the engine.
Limit: the slope is known only from different levels; from one it stays what it was, at the start 0.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

LEVELS = 40
LEVEL_SAMPLES = 20.0
PRIOR_SAMPLES = 20.0
SCALE_GAIN = 0.3
LEAST_BASE_SHARE = 0.4
"""The base is at least this share of the mean service: below it the line would explain a queue as well."""


class Level(NamedTuple):
    in_flight: float = 0.0
    seconds: float = 0.0
    weight: float = 0.0


class ServiceLine(NamedTuple):
    base: float = 0.0
    slope: float = 0.0
    levels: tuple[Level, ...] = (Level(),) * LEVELS


UNKNOWN = ServiceLine()


def scaled(line: ServiceLine, in_flight: float, seconds: float) -> ServiceLine:
    expected = line.base + line.slope * in_flight
    if not expected:
        return line
    scale = 1.0 + SCALE_GAIN * (seconds / expected - 1.0)
    levels = tuple(Level(level.in_flight, level.seconds * scale, level.weight) for level in line.levels)
    return ServiceLine(line.base * scale, line.slope * scale, levels)


def learnt(line: ServiceLine, in_flight: float, seconds: float) -> ServiceLine:
    index = min(int(4.0 * log2(in_flight)), LEVELS - 1)
    level = line.levels[index]
    weight = min(level.weight + 1.0, LEVEL_SAMPLES)
    x = level.in_flight + (in_flight - level.in_flight) / weight
    y = level.seconds + (seconds - level.seconds) / weight
    levels = (*line.levels[:index], Level(x, y, weight), *line.levels[index + 1 :])
    total = sum(weight for _, _, weight in levels)
    mean_x = sum(weight * x for x, _, weight in levels) / total
    mean_y = sum(weight * y for _, y, weight in levels) / total
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in levels)
    rising = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in levels)
    # The slope so far counts as twenty samples a tenth off the mean: a few noisy ones, or a single level, do not draw any line they like.
    prior = PRIOR_SAMPLES * (0.1 * mean_x) ** 2
    slope = max((rising + prior * line.slope) / (spread + prior), 0.0)
    slope = min(slope, (1.0 - LEAST_BASE_SHARE) * mean_y / mean_x)
    return ServiceLine(mean_y - slope * mean_x, slope, levels)


def without_levels_above(line: ServiceLine, in_flight: float, seconds: float) -> ServiceLine:
    """Forgets levels that held a part of a queue. Where no other is known, `seconds` is all base."""
    levels = tuple(level if level.in_flight <= in_flight else Level() for level in line.levels)
    if any(level.weight for level in levels):
        return line._replace(levels=levels)
    return ServiceLine(seconds)
