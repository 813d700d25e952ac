"""Graded degradation of the whole fleet: one level from 0 (normal) to 5 (emergencies only), each with all that the levels below it do.

| level | enter where any holds for | clear | adds |
|---|---|---|---|
| 1 strained | a queue stands, or saturation > 0.85: 5 s | 15 s | batch answers end at their learnt 90th percentile; the reserve is not lent; batch requests hold at most 0.6 of the windows |
| 2 | interactive P95 > 1.2 x target 5 s, or >= 0.25 of the backends open | 30 s | the clamp for standard answers; batch requests count as cold; no learned classification |
| 3 | > 0.1 shed for 10 s, or >= 0.5 open | 60 s | batch refused, fallback pools first, no second tries |
| 4 | > 0.1 of interactive shed for 10 s, or >= 0.75 open | 60 s | standard refused; of interactive no burst is absorbed, the heaviest flows are refused first |
| 5 | all but one backend open | 60 s | emergencies only |

Decides the next level (`climbed`): the wanted level is the highest whose entry holds; it rises by one level where a higher one is wanted, `RISE_SECONDS` after the last
change at the earliest, and falls by one where none at or above its own is wanted for the level's clear time; the next fall takes another clear time.
Pins of an operator (`pinned`): a level forced on is the level, of several the highest; a level forced off is never reached.
Inputs: which entry conditions hold now, unknown counts as not; `now` in seconds. `all_but_one` is (n - 1) / n of n backends, and all of them where there are fewer than 3.
Source of the shape: Envoy's overload manager (scaled actions), Sentinel's rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from policies.degradation import Condition, Operator
from policies.degradation_actions import (
    Action,
    BatchCold,
    BatchShare,
    ClampMaxTokens,
    NoLending,
    NoOptionalWork,
    NoRetries,
    PreferFallback,
    RefuseBelow,
    ShedOverShare,
)
from policies.metric_catalogue import Metric
from policies.terms import Lane

RISE_SECONDS = 2.0
ALL_BUT_ONE = inf
"""Stands for a threshold that follows from the number of backends."""


class Entry(NamedTuple):
    condition: Condition
    for_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    entries: tuple[Entry, ...]
    clear_seconds: float
    actions: tuple[Action, ...]
    description: str


def _above(metric: Metric, threshold: float, for_seconds: float) -> Entry:
    return Entry(Condition(metric, Operator.ABOVE, threshold), for_seconds)


def _open(share: float) -> Entry:
    return Entry(Condition(Metric.OPEN_RATIO, Operator.AT_LEAST, share))


LEVELS: tuple[Level, ...] = (
    Level(
        (_above(Metric.STANDING_QUEUE, 0.5, 5.0), _above(Metric.SATURATION_RATIO, 0.85, 5.0)),
        15.0,
        (ClampMaxTokens(Lane.BATCH), NoLending(), BatchShare(0.6)),
        "strained",
    ),
    Level(
        (_above(Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET, 1.2, 5.0), _open(0.25)),
        30.0,
        (ClampMaxTokens(Lane.STANDARD), BatchCold(), NoOptionalWork()),
        "interactive requests are late, or a quarter of the fleet is out",
    ),
    Level(
        (_above(Metric.SHED_RATIO, 0.1, 10.0), _open(0.5)),
        60.0,
        (RefuseBelow(Lane.STANDARD), PreferFallback(), NoRetries()),
        "one in ten is shed, or half of the fleet is out",
    ),
    Level(
        (_above(Metric.INTERACTIVE_SHED_RATIO, 0.1, 10.0), _open(0.75)),
        60.0,
        (RefuseBelow(Lane.INTERACTIVE), ShedOverShare()),
        "one in ten interactive requests is shed, or three quarters of the fleet are out",
    ),
    Level((_open(ALL_BUT_ONE),), 60.0, (RefuseBelow(Lane.EMERGENCY),), "one backend is left"),
)


class Rung(NamedTuple):
    """`changed_at` is when the level changed last; `fewer_since` since when nothing at or above the level is wanted, None while something is."""

    level: int = 0
    changed_at: float = -inf
    fewer_since: float | None = None


GROUND = Rung()


def climbed(rung: Rung, wanted: int, now: float, time_scale: float) -> Rung:
    """One level at most. `time_scale` stretches all times."""
    level = rung.level
    if wanted > level:
        if now - rung.changed_at >= RISE_SECONDS * time_scale:
            return Rung(level + 1, now)
        return rung._replace(fewer_since=None)
    if wanted == level:
        return rung._replace(fewer_since=None)
    since = now if rung.fewer_since is None else rung.fewer_since
    if now - since >= LEVELS[level - 1].clear_seconds * time_scale:
        return Rung(level - 1, now, now)
    return rung._replace(fewer_since=since)


def pinned(level: int, forced: dict[int, bool]) -> int:
    """`forced` says of each level that an operator forced whether on or off."""
    on = [one for one, is_on in forced.items() if is_on]
    if on:
        return max(on)
    return min([level, *(one - 1 for one, is_on in forced.items() if not is_on)])


def threshold_of(condition: Condition, backends: int) -> float:
    if condition.threshold < ALL_BUT_ONE:
        return condition.threshold
    return (backends - 1) / backends if backends >= 3 else 1.0
