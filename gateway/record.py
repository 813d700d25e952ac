"""What became of one request: filled in on its way, read once at its end by metrics and log.

Times are `time.perf_counter()` seconds; 0.0 = did not happen. `status` is what the client got, 0 where it left before any.
"""

from __future__ import annotations

from enum import StrEnum

from gateway.events import Usage
from policies.terms import UNTAGGED, Refusal, Tag


class Outcome(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    """Answered by the gateway instead of an engine."""
    CUT = "cut"
    """The answer had begun and could not be finished."""
    ABORTED = "aborted"
    """The client left first."""


class Record:
    __slots__ = (
        "arrived_at",
        "attempts",
        "backend",
        "cause",
        "ended_at",
        "first_byte_at",
        "method",
        "model",
        "outcome",
        "path",
        "pool",
        "queue_seconds",
        "ready_at",
        "reason",
        "request_id",
        "route",
        "sent_at",
        "status",
        "streamed",
        "tag",
        "usage",
        "whole",
    )

    def __init__(self, method: str, path: str, arrived_at: float) -> None:
        self.method = method
        self.path = path
        self.route = "none"
        self.request_id = ""
        self.model = ""
        self.tag: Tag = UNTAGGED
        self.pool = ""
        self.backend = ""
        self.attempts = 0
        self.arrived_at = arrived_at
        self.ready_at = 0.0
        """The body was complete."""
        self.queue_seconds = 0.0
        self.sent_at = 0.0
        """The first attempt began."""
        self.first_byte_at = 0.0
        self.ended_at = 0.0
        self.status = 0
        self.streamed = False
        self.outcome = Outcome.OK
        self.reason: Refusal | None = None
        self.cause = ""
        self.usage: Usage | None = None
        self.whole = False
        """Every token of the answer has reached the client, whatever happens to the connection now."""
