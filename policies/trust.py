"""Which hints of a client count.

Decides: the hints that stay. A client that is trusted (`trust_headers` of its tenant, or of `anonymous`) is taken at its word. Of any other
only the lane (clamped later), the session with its history, a deadline (that can only tighten, `policies.lanes`) and `relegate` stay: business type, tenant
and fairness id would let it choose whose share it uses up, path, pool and backend where others have to make room.
"""

from __future__ import annotations

from policies.hints import NO_HINTS, Hints
from policies.lanes import RANK
from policies.terms import Lane

CONDITIONAL_HINTS = ("lane", "business", "tenant", "path", "pool", "backend", "fairness")
"""Those that a client may not name as it likes."""


def trusted_hints(hints: Hints, trust_headers: bool) -> Hints:
    """`hints` less what this client may not say."""
    if trust_headers or hints is NO_HINTS:
        return hints
    return Hints(
        lane=hints.lane,
        session=hints.session,
        deadline_ms=hints.deadline_ms,
        relegate=hints.relegate,
        history=hints.history,
        session_seq=hints.session_seq,
    )


def ignored_hints(said: Hints, counted: Hints, max_lane: Lane) -> tuple[str, ...]:
    """Which of `CONDITIONAL_HINTS` were said and do not count, or less than they said: the lane above `max_lane`, the others for want of trust."""
    if said is NO_HINTS:
        return ()
    is_clamped = said.lane is not None and RANK[said.lane] < RANK[max_lane]
    dropped = [name for name in CONDITIONAL_HINTS if getattr(said, name) != getattr(counted, name)]
    return ("lane", *dropped) if is_clamped else tuple(dropped)
