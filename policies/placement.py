"""Which backend gets the next request.

Decides: one index into the candidates, or none. Candidates are the backends that may be used now (healthy, serving the model, not yet
tried by this request).
Rule: the smallest share of its window in use wins; without a window the smallest number of requests in flight wins. Equal backends are told
apart by `turn`, so that an idle fleet is used round robin and no backend starves on ties.
Inputs: `Load.in_flight` requests; `Load.window` requests or None for unbounded; `turn` any counter that grows with each choice.
Limit: O(n) over the candidates; counts requests, not tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Load(NamedTuple):
    in_flight: int
    window: int | None

    def has_room(self) -> bool:
        return self.window is None or self.in_flight < self.window


def least_loaded(loads: Sequence[Load], turn: int) -> int | None:
    """The index of the best candidate with room, or None when every window is full (or there is no candidate)."""
    best: int | None = None
    best_share = 0.0
    count = len(loads)
    for step in range(count):
        index = (turn + step) % count
        load = loads[index]
        if not load.has_room():
            continue
        share = load.in_flight / (load.window or 1)
        if best is None or share < best_share:
            best, best_share = index, share
    return best
