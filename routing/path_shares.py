"""What hot and cold requests may hold of a pool while both want it, and what of the traffic is hot.

State of `policies.path_split`: the hot part of the weighted tokens that arrive, over the last some `1 / TRAFFIC_SHARE` requests; it starts at `hot_share`.
"""

from __future__ import annotations

from policies.members import COLD, HOT
from policies.path_split import TRAFFIC_SHARE, PathRules, over_share, shares
from policies.terms import CachePath
from routing.pool import Pool

_KEPT = 1.0 - TRAFFIC_SHARE


class PathShares:
    def __init__(self, rules: PathRules) -> None:
        self._hot_cost = rules.hot_share
        self._all_cost = 1.0
        self.requests = self.hot_requests = 0
        """Since the start."""
        self.configure(rules)

    def configure(self, rules: PathRules) -> None:
        self.rules = rules

    @property
    def hot_traffic(self) -> float:
        return self._hot_cost / self._all_cost

    def shares(self) -> tuple[float, float]:
        """Of hot and of cold."""
        return shares(self.hot_traffic, self.rules)

    def arrived(self, path: CachePath, cost: float) -> None:
        self.requests += 1
        self.hot_requests += path is HOT
        self._all_cost = _KEPT * self._all_cost + cost
        self._hot_cost = _KEPT * self._hot_cost + (cost if path is HOT else 0.0)

    def gives_way(self, pool: Pool, path: CachePath) -> bool:
        """Whether a request of this path lets one of the other go first."""
        capacity = pool.capacity
        if not capacity:
            return False
        hot_used, used = pool.in_flight_hot / capacity, pool.in_flight / capacity
        cold_used = used - hot_used
        if pool.max_tokens:
            hot_used = max(hot_used, pool.reserved_hot / pool.max_tokens)
            cold_used = max(cold_used, (pool.reserved - pool.reserved_hot) / pool.max_tokens)
        hot_share, cold_share = self.shares()
        hot, cold = over_share(hot_used, hot_share), over_share(cold_used, cold_share)
        return cold and not hot if path is COLD else hot and not cold
