"""Who loses how much where a share of a queue's arrivals has to be refused: the heaviest flows first.

Decides: the level at which flows are cut (`cut_level`), and the share that one flow loses (`lost_share`).
    level L:  sum of max(0, d - w * L) over the flows = share * sum of d          d: what a flow asks for lately, w: its weight
    lost    = max(0, 1 - w * L / d)
So no flow loses anything as long as one that asks for more per weight is not down to it, and those above the level are all cut to it: what a fair
queue would serve of them anyway, refused before it waits.
Source: core-stateless fair queueing (Stoica 1998), its drop probability with the level solved for the share.
Inputs: demands in any one unit (here weighted tokens, decayed), weights > 0, shares in 0..1. Cost: O(flows log flows), once a tick.
Limit: a demand is what came lately, so a flow that begins now is light until it was seen asking.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf


def cut_level(flows: Iterable[tuple[float, float]], share: float) -> float:
    """Per weight; infinite where nothing is to be cut. `flows` are (demand, weight)."""
    ordered = sorted(((demand / weight, demand, weight) for demand, weight in flows), reverse=True)
    excess = share * sum(demand for _, demand, _ in ordered)
    if excess <= 0.0:
        return inf
    demands = weights = 0.0
    level = -inf
    for heaviness, demand, weight in ordered:
        if level >= heaviness:
            break
        # This one and the heavier ones are cut to one level.
        demands += demand
        weights += weight
        level = (demands - excess) / weights
    return max(level, 0.0)


def lost_share(demand: float, weight: float, level: float) -> float:
    return 0.0 if weight * level >= demand else 1.0 - weight * level / demand
