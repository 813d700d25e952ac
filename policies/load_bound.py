"""How much load a backend may have to be given a request for the sake of its cache.

Decides, `within_bound`: in_flight <= c * fair_share + `SLACK_REQUESTS`. `fair_share` is what the backend would hold if all that runs in its group, the new request
included, were spread by the windows, or evenly where there are none.
Source: consistent hashing with bounded loads (Mirrokni 2018): no backend above c times the mean, and a key moves O(1/(c-1)^2) times. The slack is for small
numbers: where a share is two requests, chance alone puts four or five on a backend now and then, and none of them is slow for it. In the mean over time the load stays
within c times the share and one (measured there: 1.24 and 1.35 times the mean), since what is above waits nowhere and ends as soon.
`narrowed`: the bound of a backend whose cache does not hold what is expected of it (`policies.cache_trust`) closes to 1.
`LEAVE_FACTOR`: a session leaves its backend above this times the bound; higher, so that it does not leave for one request.
Settings: `load_bound` c (1..10, default 1.25).
"""

from __future__ import annotations

LEAVE_FACTOR = 1.2
SLACK_REQUESTS = 3.0


def within_bound(in_flight: int, fair_share: float, bound: float) -> bool:
    return in_flight <= bound * fair_share + SLACK_REQUESTS


def narrowed(bound: float, trust: float) -> float:
    return 1.0 + (bound - 1.0) * trust
