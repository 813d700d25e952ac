"""How much load a backend may have to be given a request for the sake of its cache.

Decides, `most_in_flight` = fair_share + trust * max((c - 1) * fair_share, `SLACK_REQUESTS`). `fair_share` is what the backend would hold if all that runs in its group,
the new request included, were spread by the windows, or evenly where there are none. With the request it so has at most c times its share and one; where the share
is small, the slack counts: chance alone puts five requests now and then where the share is two, and none of them is slow for it.
Source: consistent hashing with bounded loads (Mirrokni 2018): no backend above c times the mean, and a key moves O(1/(c-1)^2) times. In the mean over time the load stays
within c times the share and one at small shares too, since what is above ends as soon (measured, eight emulated engines at a share of two: 1.24 and 1.35 times it).
`trust` (`policies.cache_trust`): a backend whose cache does not hold what is expected of it gets a request only while it has no more than its share.
`LEAVE_FACTOR`: a session leaves its backend at this times c; higher, so that it does not leave for one request.
Settings: `load_bound` c (1..10, default 1.25).
"""

from __future__ import annotations

LEAVE_FACTOR = 1.2
SLACK_REQUESTS = 3.0


def most_in_flight(fair_share: float, bound: float, trust: float = 1.0) -> float:
    return fair_share + trust * max((bound - 1.0) * fair_share, SLACK_REQUESTS)
