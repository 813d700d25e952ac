"""What the router answers, and who owns it.

`Lease`: the request may run on `backend` now; whoever holds it gives it back with exactly one `Router.finish`. `Ticket`: the request
waits; it ends by a grant from `Router.pump` or by `Router.cancel`, never by both. `Refusal`: the request is not taken, and
nothing is owed.
"""

from __future__ import annotations

from policies.terms import Refusal, Tag, TicketId, Verdict
from routing.fleet import Backend


class Ticket:
    """A waiting request. `model` is the name that the engine knows, or "" for any; `lease` is one that waits for its next backend."""

    __slots__ = ("arrived", "id", "lease", "model", "tag")

    def __init__(
        self, id: TicketId, model: str, tag: Tag, arrived: float, lease: Lease | None = None
    ) -> None:
        self.id = id
        self.model = model
        self.tag = tag
        self.arrived = arrived
        self.lease = lease


class Lease:
    """One slot on one backend, for as long as the request runs. A retry moves the lease, so it never holds two slots.

    `ticket` is set while a moved lease waits for a slot elsewhere and holds none. `is_trial`: the backend was absent when it was given.
    `verdict` is what the last attempt said of its backend; the holder sets it before the lease is finished.
    """

    __slots__ = (
        "attempts",
        "backend",
        "is_trial",
        "model",
        "open",
        "queue_seconds",
        "tag",
        "ticket",
        "tried",
        "verdict",
    )

    def __init__(self, backend: Backend, model: str, tag: Tag, queue_seconds: float) -> None:
        self.backend = backend
        self.model = model
        self.tag = tag
        self.queue_seconds = queue_seconds
        self.attempts = 1
        self.tried: list[Backend] = []
        self.open = True
        self.ticket: Ticket | None = None
        self.is_trial = not backend.is_present()
        self.verdict = Verdict.IGNORED


Decision = Lease | Ticket | Refusal
