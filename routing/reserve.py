"""Which free slots of a pool are whose: what the reserve for emergencies leaves to short requests, and to all others, and what batch requests may hold.

Rules: `policies.emergency`; `Pool.batch_share`, below 1 while a degradation rule asks for it. State: whether slots are lent, as configured or not at all; what comes of it is kept at the pool until the pool changes.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from policies.emergency import ReserveRules, kept_slots
from policies.members import BATCH, EMERGENCY
from policies.terms import Tag
from routing.decision import Ticket
from routing.fair_queue import FairQueue
from routing.fleet import Fleet
from routing.forecast import Forecast
from routing.pool import Pool


class Reserve:
    def __init__(self, fleet: Fleet, queue: FairQueue[Ticket], forecast: Forecast) -> None:
        self._fleet = fleet
        self._queue = queue
        self._forecast = forecast
        self._configured = self._rules = ReserveRules()
        self._lends = True

    def configure(self, rules: ReserveRules) -> None:
        self._configured = rules
        self._keep()

    def lend(self, wanted: bool) -> None:
        """As configured, or not at all."""
        if wanted != self._lends:
            self._lends = wanted
            self._keep()

    def _keep(self) -> None:
        self._rules = self._configured if self._lends else replace(self._configured, lending_share=0.0)
        for pool in self._fleet.pools.values():
            pool.open_below = None

    def has_slot(self, pool: Pool, tag: Tag) -> bool:
        """Whether the pool as a whole has one that this request may take."""
        below, short_below, emergency_below = pool.open_below or self._open_below(pool)
        in_flight = pool.in_flight
        if tag.lane is BATCH and pool.is_batch_full:
            return False
        if in_flight < below:
            return True
        if tag.lane is EMERGENCY:
            return in_flight < emergency_below
        if in_flight >= short_below:
            return False
        seconds = self._forecast.service_seconds(pool.name, tag, 1.0, inf)
        return seconds <= self._rules.lending_seconds

    def has_slot_for_any(self, pool: Pool) -> bool:
        """Whether it has one for anybody of those who wait."""
        _, short_below, emergency_below = pool.open_below or self._open_below(pool)
        if pool.in_flight < short_below:
            return True
        return pool.in_flight < emergency_below and self._queue.waiting_in_lane(EMERGENCY) > 0

    def _open_below(self, pool: Pool) -> tuple[float, float, float]:
        """What the reserve leaves to whom; worked out once for each change."""
        capacity = pool.capacity
        from_long, from_short = 0, 0
        if capacity < inf:
            from_long, from_short = kept_slots(int(capacity), pool.in_flight_emergency, self._rules)
        pool.open_below = capacity - from_long, capacity - from_short, capacity
        return pool.open_below
