"""Whether an emergency may take a running request's slot, and whose.

Decides: when to pre-empt (`may_preempt`), and the one request that is cancelled at its engine and put back at its old place (`victim`).
Only requests that have emitted nothing: their clients notice a longer wait and nothing else. Of these the least urgent lane, in it the one that
was dispatched last, because it loses the least work. A request is pre-empted at most `max_preemptions` times and then immune, so that it
ends however many emergencies come; an emergency never is.
Pace: only for a predicted wait above `wait_seconds`, and the next one not before `pause_seconds` after the engine's side of the last was
closed, so that a slot on its way back is not fetched twice.
Inputs: seconds; `settled_at` is when the last pre-empted request's connection was closed: -infinity without one, +infinity until it is.
Settings: `wait_seconds` (0..60, default 0.25), `pause_seconds` (0..60, default 0.5), `max_preemptions` (0..100, default 2; 0 switches it off).
Source: the pace is llm-d's. Limits: O(candidates); a plain call emits nothing until it is complete, so it may have been nearly done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.lanes import RANK
from policies.terms import Lane


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    wait_seconds: float = 0.25
    pause_seconds: float = 0.5
    max_preemptions: int = 2


class Candidate(Protocol):
    """A running request."""

    @property
    def lane(self) -> Lane: ...

    @property
    def emitted(self) -> bool:
        """Whether a byte of the answer has come."""

    @property
    def dispatched_at(self) -> float: ...

    @property
    def preemptions(self) -> int:
        """How often it has been pre-empted."""


def may_preempt(predicted_wait_seconds: float, settled_at: float, now: float, rules: PreemptionRules) -> bool:
    return predicted_wait_seconds > rules.wait_seconds and now - settled_at >= rules.pause_seconds


def victim(candidates: Sequence[Candidate], rules: PreemptionRules) -> int | None:
    """The index of the one to pre-empt, or None where none may be."""
    best: int | None = None
    best_key = (RANK[Lane.EMERGENCY], 0.0)
    for index, candidate in enumerate(candidates):
        rank = RANK[candidate.lane]
        if rank == RANK[Lane.EMERGENCY] or candidate.emitted:
            continue
        if candidate.preemptions >= rules.max_preemptions:
            continue
        key = (rank, candidate.dispatched_at)
        if best is None or key > best_key:
            best, best_key = index, key
    return best
