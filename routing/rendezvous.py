"""In which order backends are tried for a key that nothing is known of: the same in every gateway, and hardly another one when a backend comes or goes.

Rendezvous hashing (Thaler 1998): the backends with the highest hashes of (key, backend). Keys fall into `BUCKETS`, and a bucket's order is worked out when
it is first asked for, so that a thousand backends cost a request no more than eight. Of the order only the first `TRIED` are kept.
Limit: the backends' weights do not count; the load bound does (`policies.load_bound`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Generic, TypeVar

from policies.prefix_chain import seed_of

BUCKETS = 1024
TRIED = 2
_64_BITS = (1 << 64) - 1

Member = TypeVar("Member")


class Rendezvous(Generic[Member]):
    def __init__(self, members: Sequence[tuple[str, Member]]) -> None:
        """With names that are equal in all gateways."""
        self._named = members
        self._members: list[tuple[int, Member]] = []
        self._orders: dict[int, tuple[Member, ...]] = {}

    def order(self, key: int) -> tuple[Member, ...]:
        bucket = key % BUCKETS
        found = self._orders.get(bucket)
        if found is None:
            if not self._members:  # not before it is asked: some groups live for one request
                self._members = [(seed_of(name), member) for name, member in self._named]
            best = nlargest(TRIED, self._members, key=lambda one: _mixed(one[0] + bucket))
            found = self._orders[bucket] = tuple([member for _, member in best])
        return found


def _mixed(value: int) -> int:
    """The finalizer of splitmix64 (Steele 2014)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _64_BITS
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _64_BITS
    return value ^ (value >> 31)
