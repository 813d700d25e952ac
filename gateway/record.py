"""What became of one request: filled in on its way, read once at its end by metrics and log.

Times are `time.perf_counter()` seconds; 0.0 = did not happen. `status` is what the client got, 0 where it left before any.
"""

from __future__ import annotations

from enum import StrEnum

from gateway.usage import Usage
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
    """Most of it stays at its default, so the defaults are the class's: a request sets what happened to it."""

    route = "none"
    request_id = ""
    model = ""
    tag: Tag = UNTAGGED
    pool = ""
    backend = ""
    attempts = 0
    ready_at = 0.0
    """The body was complete."""
    queue_seconds = 0.0
    sent_at = 0.0
    """The first attempt began."""
    attempt_at = 0.0
    """The last attempt began."""
    first_byte_at = 0.0
    ended_at = 0.0
    level = 0
    """Of the ladder of overload, when the request came."""
    status = 0
    streamed = False
    outcome = Outcome.OK
    reason: Refusal | None = None
    cause = ""
    usage: Usage | None = None
    whole = False
    """Every token of the answer is on its way to the client, whatever happens to the connection now."""

    def __init__(self, method: str, path: str, arrived_at: float) -> None:
        self.method = method
        self.path = path
        self.arrived_at = arrived_at
