"""What a queue shows of itself to an operator: bounded, whatever waits."""

from __future__ import annotations

from typing import NamedTuple

from policies.terms import Lane


class LaneView(NamedTuple):
    lane: Lane
    waiting: int
    cost: float
    oldest_wait_seconds: float
    """0 where nobody waits."""


class FlowView(NamedTuple):
    lane: str
    tenant: str
    business: str
    waiting: int


class QueueView(NamedTuple):
    """For whoever shows it. `flows` are those with the most waiting; the last four count since the start."""

    waiting: int
    lines: int
    flows_known: int
    flows_waiting: int
    lanes: tuple[LaneView, ...]
    flows: tuple[FlowView, ...]
    taken: int
    removed: int
    started: int
    for_starving: int
