"""How long an answer may be while degradation rules clamp its lane.

State: the 90th percentiles of learnt answers that are in use. Each is taken once and kept as long as its clamp holds: learnt anew from answers that it cut
itself it would sink further and further. Bound: `MAX_KEPT`, then it takes them anew.
Limit: of a business type of which too little was learnt nothing is cut.
"""

from __future__ import annotations

from math import ceil

from policies.degradation_actions import Effects
from policies.terms import Lane
from routing.lengths import Lengths

MAX_KEPT = 1024


class Clamps:
    def __init__(self, lengths: Lengths) -> None:
        self.is_on = False
        self._lengths = lengths
        self._tokens: dict[Lane, int] = {}
        self._learnt_lanes: frozenset[Lane] = frozenset()
        self._kept: dict[tuple[str, str], int] = {}

    def use(self, effects: Effects) -> None:
        self._tokens = {lane: tokens for lane, tokens in effects.clamps if tokens is not None}
        self._learnt_lanes = frozenset(lane for lane, tokens in effects.clamps if tokens is None)
        self.is_on = bool(effects.clamps)
        if not self._learnt_lanes:
            self._kept.clear()

    def limit(self, lane: Lane, model: str, business: str) -> int | None:
        """The most tokens of an answer, 1 at least; None where nothing is clamped."""
        tokens = self._tokens.get(lane)
        learnt = self._learnt(model, business) if lane in self._learnt_lanes else None
        if tokens is None or learnt is None:
            return learnt if tokens is None else tokens
        return min(tokens, learnt)

    def _learnt(self, model: str, business: str) -> int | None:
        kept = self._kept.get((model, business))
        if kept is None:
            tokens = self._lengths.learnt_p90(model, business)
            if tokens is None:
                return None
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            kept = self._kept[model, business] = max(1, ceil(tokens))
        return kept
