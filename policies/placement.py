"""Which backend gets the next request.

Decides: one index into the candidates, or none. Candidates are the backends that may be used now (healthy, serving the model, not yet
tried by this request).
Rule: the smallest share of its window in use wins; without a window the smallest number of requests in flight wins. Equal backends are told
apart by `turn`, so that an idle fleet is used round robin and no backend starves on ties.
Inputs: `in_flight` requests; `window` requests or None for unbounded; `turn` any counter that grows with each choice.
Limit: O(n) over the candidates; counts requests, not tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Load(Protocol):
    @property
    def in_flight(self) -> int: ...

    @property
    def window(self) -> int | None: ...


def least_loaded(loads: Sequence[Load], turn: int) -> int | None:
    """The index of the best candidate with room, or None when every window is full (or there is no candidate)."""
    best: int | None = None
    best_share = 0.0
    count = len(loads)
    for step in range(count):
        index = (turn + step) % count
        load = loads[index]
        in_flight, window = load.in_flight, load.window
        if window is not None and in_flight >= window:
            continue
        share = in_flight / (window or 1)
        if best is None or share < best_share:
            best, best_share = index, share
    return best
