"""How long a prefix or a session is remembered after its last use.

Decides, `lifetime_seconds` = `GAPS` * the mean gap between two requests of a session, inside of `min_seconds` and `max_seconds`; `max_seconds` until a gap
was seen. A session that has been silent for twice its mean gap has most likely ended; and the engine's cache, which evicts by last use,
has most likely given up what it held of it.
The mean is exponential, one gap counts `SHARE`: it follows within some fifty requests. A gap counts at most `MOST_GAPS` times as much as the mean that it meets, or as the one that
gives `min_seconds`: so one pause, be it a day, moves the mean by no more than 15 %, or to no more than it takes to leave `min_seconds`.
Settings: `min_seconds` (1..86400, default 30), `max_seconds` (1..86400, default 600).
"""

from __future__ import annotations

from dataclasses import dataclass

GAPS = 2.0
SHARE = 0.05
MOST_GAPS = 4.0


@dataclass(frozen=True, slots=True)
class LifetimeRules:
    min_seconds: float = 30.0
    max_seconds: float = 600.0


def after_gap(mean_seconds: float | None, gap_seconds: float, rules: LifetimeRules) -> float:
    if mean_seconds is None:
        return min(gap_seconds, rules.max_seconds / GAPS)
    most = MOST_GAPS * max(mean_seconds, rules.min_seconds / GAPS)
    return mean_seconds + SHARE * (min(gap_seconds, most) - mean_seconds)


def lifetime_seconds(mean_gap_seconds: float | None, rules: LifetimeRules) -> float:
    if mean_gap_seconds is None:
        return rules.max_seconds
    return min(max(GAPS * mean_gap_seconds, rules.min_seconds), rules.max_seconds)
