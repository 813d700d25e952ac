"""The weights of backends that are slower than their like, by `policies.outlier`, as `Limiter.OUTLIER` of their windows.

State: in `routing.circuit.Watch`. Called at the end of each window; a pool at a time, since a backend is compared with its own pool only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from policies.outlier import OutlierRules, after_window, others_pace, pool_pace
from policies.terms import PoolName
from routing.backend import Limiter
from routing.circuit import Watch
from routing.fleet import Fleet


class Outliers:
    def __init__(self, fleet: Fleet) -> None:
        self.rules = OutlierRules()
        self._fleet = fleet
        self._window_ends = -inf

    def pass_time(self, watches: Iterable[Watch], now: float) -> None:
        if now < self._window_ends:
            return
        self._window_ends = now + self.rules.window_seconds
        pools: defaultdict[PoolName, list[Watch]] = defaultdict(list)
        for watch in watches:
            pools[watch.backend.pool].append(watch)
        for pool in pools.values():
            self._end_window(pool)

    def _end_window(self, pool: list[Watch]) -> None:
        paces = {
            watch: watch.pace_sum / watch.pace_calls
            for watch in pool
            if watch.pace_calls >= self.rules.min_samples
        }
        usual = pool_pace(list(paces.values()), self.rules)
        for watch in pool:
            pace = paces.get(watch)
            watch.others_pace = others_pace([one for other, one in paces.items() if other is not watch])
            if not watch.backend.holds:  # else it gets nothing, so nothing is learned
                watch.standing = after_window(watch.standing, pace, usual, self.rules)
                self._fleet.use_share(watch.backend, Limiter.OUTLIER, watch.standing.weight)
            if pace is not None:
                watch.pace_sum, watch.pace_calls = 0.0, 0
