"""Who is not let in, whatever slots are free: cold requests while their path is closed, lanes that are refused, requests beyond a rate.

Rules: `paths.cold_open` of the configuration, and what degradation rules ask for (`policies.degradation_actions`). Emergencies are always let in.
State: the token bucket of the rate (`policies.rate_limit`); it is full when a limit begins. Who is let in has taken from it, also if it finds no slot then.
"""

from __future__ import annotations

from policies.degradation_actions import NO_EFFECTS, Effects, refuses
from policies.members import COLD, EMERGENCY
from policies.rate_limit import FULL, RateLimitRules, taken, wait_seconds
from policies.terms import Lane, Refusal, Tag

_RULES = RateLimitRules()


class Entrance:
    def __init__(self) -> None:
        self.is_open = True
        """Nobody is refused; so that the usual case costs one look."""
        self.is_cold_closed = False
        self._cold_open = True
        self._effects = NO_EFFECTS
        self._bucket = FULL

    def configure(self, cold_open: bool) -> None:
        self._cold_open = cold_open
        self.use(self._effects)

    def use(self, effects: Effects) -> None:
        if self._effects.requests_per_second is None:
            self._bucket = FULL
        self._effects = effects
        self.is_cold_closed = effects.closes_cold_path or not self._cold_open
        self.is_open = not (
            self.is_cold_closed
            or effects.refuses_below is not None
            or effects.requests_per_second is not None
        )

    def objection(self, tag: Tag, now: float) -> Refusal | None:
        if tag.lane is EMERGENCY:
            return None
        if self.refuses(tag.lane):
            return Refusal.LANE_REFUSED
        if self.is_cold_closed and tag.path is COLD:
            return Refusal.COLD_PATH_CLOSED
        rate = self._effects.requests_per_second
        if rate is not None:
            bucket = taken(self._bucket, rate, now, _RULES)
            if bucket is None:
                return Refusal.RATE_LIMITED
            self._bucket = bucket
        return None

    def refuses(self, lane: Lane) -> bool:
        return refuses(self._effects, lane)

    def wait_seconds(self, now: float) -> float:
        """Until one more is let in by the rate."""
        rate = self._effects.requests_per_second
        return 0.0 if rate is None else wait_seconds(self._bucket, rate, now, _RULES)
