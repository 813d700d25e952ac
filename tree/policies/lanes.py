"""The lane of a request and how soon its first byte is due.

Lane = min(asked, ceiling), where asked is the first that is known of: the client's hint, the lane of its business type, the tenant's
default, standard; `ceiling` is the most urgent lane that its tenant may use. What is above it is clamped silently, never refused.
Time to the first byte, in seconds = the business type's latency target, infinite without one. A client's own deadline takes its
place if the client is trusted. Otherwise the smaller of the two counts: a nearer deadline can only bring a request forward
among those of its own flow and have it refused sooner, while a later one would keep hopeless work in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from policies.terms import Lane

RANK: Mapping[Lane, int] = {lane: rank for rank, lane in enumerate(Lane)}
"""0 is the most urgent."""


def lane_of(asked: Lane | None, business: Lane | None, default: Lane | None, ceiling: Lane) -> Lane:
    lane = asked or business or default or Lane.STANDARD
    return lane if RANK[lane] >= RANK[ceiling] else ceiling


def target_seconds(
    asked_ms: float | None, business_seconds: float = inf, trust_headers: bool = False
) -> float:
    """From a request's arrival to the first byte of its answer."""
    if asked_ms is None:
        return business_seconds
    asked = asked_ms / 1000
    return asked if trust_headers or asked < business_seconds else business_seconds
