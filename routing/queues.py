"""Requests that wait for a slot: one first-in-first-out line per model, so that a full model never blocks another.

Bounds: `max_waiting` requests over all lines, checked by the router. Every operation but `heads` is O(1); lines exist only while somebody
waits, so the table is bounded by the waiting requests.
Limit: order of arrival only; lanes and tenants are not told apart here yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from policies.terms import TicketId
from routing.decision import Ticket


class Queues:
    def __init__(self) -> None:
        self._lines: dict[str, OrderedDict[TicketId, Ticket]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def push(self, ticket: Ticket, first: bool = False) -> None:
        """At the end of its line, or `first`: before all who wait there."""
        line = self._lines.setdefault(ticket.model, OrderedDict())
        line[ticket.id] = ticket
        if first:
            line.move_to_end(ticket.id, last=False)
        self._waiting += 1

    def remove(self, ticket: Ticket) -> bool:
        """Whether it was still waiting."""
        line = self._lines.get(ticket.model)
        if line is None or line.pop(ticket.id, None) is None:
            return False
        self._waiting -= 1
        if not line:
            del self._lines[ticket.model]
        return True

    def has_line(self, model: str) -> bool:
        return model in self._lines

    def heads(self) -> Iterator[Ticket]:
        """The first of each line."""
        return (next(iter(line.values())) for line in self._lines.values())

    def head(self, model: str) -> Ticket | None:
        line = self._lines.get(model)
        return next(iter(line.values())) if line else None
