"""How much load a backend may have to be given a request for the sake of its cache.

Decides, `within_bound`: in_flight <= c * fair_share. `fair_share` is what the backend would hold if all that runs in its group, the new request included, were
spread by the windows, or evenly where there are none. So with the request it has at most c times its share, plus one.
Source: consistent hashing with bounded loads (Mirrokni 2018): no backend above c times the mean, and a key moves O(1/(c-1)^2) times; the one more is for the
small numbers, where c times the mean is less than a request.
`narrowed`: the bound of a backend whose cache does not hold what is expected of it (`policies.cache_trust`) closes to 1: then a request goes there only while
it has no more than its share.
`LEAVE_FACTOR`: a session leaves its backend above this times the bound; higher, so that it does not leave for one request.
Settings: `load_bound` c (1..10, default 1.25).
"""

from __future__ import annotations

LEAVE_FACTOR = 1.2


def within_bound(in_flight: int, fair_share: float, bound: float) -> bool:
    return in_flight <= bound * fair_share


def narrowed(bound: float, trust: float) -> float:
    return 1.0 + (bound - 1.0) * trust
