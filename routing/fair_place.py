"""A ticket's place in the fair queue, and what the queue needs to know of a ticket."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from policies.terms import Tag, TicketId
from routing.fair_flows import FlowKey
from routing.fair_tree import Backlog, Line, Requests, Standing


class Waiting(Protocol):
    """What the queue needs to know of a ticket. None of it changes while it waits; `line` is compared and hashed."""

    @property
    def id(self) -> TicketId: ...

    @property
    def tag(self) -> Tag: ...

    @property
    def line(self) -> Hashable: ...

    @property
    def arrived(self) -> float: ...


T = TypeVar("T", bound=Waiting)


class Place(Standing, Generic[T]):
    """A ticket's place in the queue."""

    __slots__ = ("cost", "flow", "leaf", "line", "queue", "rank", "ticket")

    def __init__(
        self,
        ticket: T,
        cost: float,
        rank: int,
        flow: FlowKey,
        line: Line,
        queue: Requests,
        leaf: Backlog | None,
    ) -> None:
        self.alive = True
        self.ticket = ticket
        self.cost = cost
        self.rank = rank
        self.flow = flow
        self.line = line
        self.queue = queue
        self.leaf = leaf
        """`queue` again, where that is in the tree."""
