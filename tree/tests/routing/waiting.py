"""Tickets for tests of the queue, and their numbering."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from policies.terms import Lane, Tag, TicketId


class Waits(NamedTuple):
    id: TicketId
    tag: Tag
    line: str = "m"
    arrived: float = 0.0


Make = Callable[..., Waits]


def numbered() -> Make:
    """Tickets with the ids 1, 2, ... in the order in which they are made."""
    last = 0

    def make(
        tenant: str = "t",
        cost: float = 100.0,
        *,
        lane: Lane = Lane.STANDARD,
        business: str = "b",
        weight: float = 1.0,
        deadline: float = inf,
        line: str = "m",
        arrived: float = 0.0,
    ) -> Waits:
        nonlocal last
        last += 1
        tag = Tag(business=business, lane=lane, tenant=tenant, weight=weight, cost=cost, deadline=deadline)
        return Waits(TicketId(last), tag, line, arrived)

    return make
