"""How long a prefix or a session is remembered after its last use.

Decides, `lifetime_seconds` = `GAPS` * the mean gap between two requests of a session, inside of `min_seconds` and `max_seconds`; `max_seconds` until a gap
was seen. A session that has been silent for twice its mean gap has most likely ended; and the engine's cache, which evicts by last use,
has most likely given up what it held of it.
The mean is exponential, one gap counts `SHARE`: it follows within some fifty requests, and one long pause moves it little.
Settings: `min_seconds` (1..86400, default 30), `max_seconds` (1..86400, default 600).
"""

from __future__ import annotations

from dataclasses import dataclass

GAPS = 2.0
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class LifetimeRules:
    min_seconds: float = 30.0
    max_seconds: float = 600.0


def after_gap(mean_seconds: float | None, gap_seconds: float) -> float:
    return gap_seconds if mean_seconds is None else mean_seconds + SHARE * (gap_seconds - mean_seconds)


def lifetime_seconds(mean_gap_seconds: float | None, rules: LifetimeRules) -> float:
    if mean_gap_seconds is None:
        return rules.max_seconds
    return min(max(GAPS * mean_gap_seconds, rules.min_seconds), rules.max_seconds)
