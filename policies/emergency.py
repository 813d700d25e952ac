"""The reserve of a pool: slots that only emergencies may use, and who may borrow from them.

Decides: how many free slots of a pool are kept from whom (`kept_slots`), and so how many a request's lane may take now.
With capacity C, I requests in flight, E of them emergencies:
    reserve R = min(reserved_per_pool, C // 2), so that a pool of one slot has none and one of two keeps one for everybody;
    unused U = max(0, R - E);
    an emergency may take every free slot, C - I;
    a request that is predicted to run at most `lending_seconds` may take C - I - (U - floor(lending_share * U));
    everybody else may take C - I - U.
What is lent needs no counter: the bound is on all requests but emergencies together. Long ones are let in only up to C - R, so beyond that
there are only short ones, and the reserve is whole again as soon as `lent` of any have ended: within `lending_seconds` if the predictions hold.
Inputs: requests; seconds, infinite where nothing is known. Source: API Priority and Fairness of Kubernetes for lending, within bounds.
Settings: `reserved_per_pool` (requests, 0..10000, default 2), `lending_share` (0..1, default 0.5), `lending_seconds` (0..3600, default 2).
Limits: counts a pool as a whole, not which of its backends is free or serves the model; a capacity that shrinks below what is in
flight takes the reserve with it until requests end. A reserve that no tenant may use is waste: then set it to 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReserveRules:
    reserved_per_pool: int = 2
    lending_share: float = 0.5
    lending_seconds: float = 2.0


def kept_slots(capacity: int, in_flight_emergency: int, rules: ReserveRules) -> tuple[int, int]:
    """How many free slots are kept from requests that take long, and from short ones: U, and what of it is not lent.

    `capacity` is the sum of the windows of the pool's usable backends.
    """
    unused = max(0, min(rules.reserved_per_pool, capacity // 2) - in_flight_emergency)
    return unused, unused - int(rules.lending_share * unused)


def lent_slots(capacity: int, in_flight: int, in_flight_emergency: int, rules: ReserveRules) -> int:
    """How many slots of the reserve others hold now, for whoever shows it."""
    reserve = min(rules.reserved_per_pool, capacity // 2)
    others = in_flight - in_flight_emergency
    return min(max(0, others - (capacity - reserve)), reserve)
