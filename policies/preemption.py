"""Whether an emergency that waits may take a running request's slot, and whose.

Decides: when to pre-empt (`may_preempt`), and the one request whose attempt is ended, and which is put back into the queue (`victim`).
Candidates are requests of which the client has got nothing: it notices a longer wait and nothing else. Of these the least urgent lane, in it
the one that was dispatched last, because it loses the least work. A request is pre-empted at most `max_preemptions` times and then immune, so
that it ends however many emergencies come; an emergency never is.
Formula: wait = time waited so far + predicted rest, where a rest that nothing is known of counts 0: then the wait itself is the evidence.
Pace: at most `victims_at_once` in one decision, each for another emergency, and the next not before `pause_seconds` after the last of their
connections was closed, so that a slot on its way back is not fetched twice.
Inputs: seconds; `settled_at` is -infinity before the first decision, +infinity until the slots of the last one are back.
Settings: `wait_seconds` (0..60, default 0.25), `pause_seconds` (0..60, default 0.5), `max_preemptions` (0..100, default 2; 0 switches it off),
`victims_at_once` (1..100, default 2).
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
    victims_at_once: int = 2


class Candidate(Protocol):
    """A running request of which its client has got nothing."""

    @property
    def lane(self) -> Lane: ...

    @property
    def dispatched_at(self) -> float: ...

    @property
    def preemptions(self) -> int:
        """How often it has been pre-empted."""


def may_preempt(
    waited_seconds: float, rest_seconds: float | None, settled_at: float, now: float, rules: PreemptionRules
) -> bool:
    """`rest_seconds` is how much longer the emergency is predicted to wait, None where nothing is known."""
    wait = waited_seconds + (rest_seconds or 0.0)
    return wait >= rules.wait_seconds and now - settled_at >= rules.pause_seconds


def victim(candidates: Sequence[Candidate], rules: PreemptionRules) -> int | None:
    """The index of the one to pre-empt, or None where none may be."""
    allowed = [
        index
        for index, one in enumerate(candidates)
        if one.lane is not Lane.EMERGENCY and one.preemptions < rules.max_preemptions
    ]
    return max(
        allowed,
        key=lambda index: (RANK[candidates[index].lane], candidates[index].dispatched_at),
        default=None,
    )
