"""Makes the fleet and the way of a request what the effects of degradation rules ask for, and undoes what they do not ask for any more.

Nothing is remembered of what was done: each time all is compared with what it should be, so a backend that came, left or changed its pool, and effects that
changed, end in one and the same state. `Hold.RULE`, `Hold.STANDBY` and `Limiter.RULE` are set here and nowhere else.
A backend of a pool tagged `standby` is held unless an effect activates it; what runs there when it is held again goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.degradation_actions import Effects
from policies.pool_choice import PoolTag
from routing.backend import Backend, Hold, Limiter
from routing.clamps import Clamps
from routing.entrance import Entrance
from routing.fleet import Fleet
from routing.overload import Overload
from routing.reserve import Reserve
from routing.tagger import Tagger


class Enforcement:
    def __init__(
        self,
        fleet: Fleet,
        tagger: Tagger,
        reserve: Reserve,
        entrance: Entrance,
        clamps: Clamps,
        overload: Overload,
        line_up_anew: Callable[[], None],
    ) -> None:
        """`line_up_anew` takes who waits to where it belongs once another pool is preferred."""
        self._fleet = fleet
        self._tagger = tagger
        self._reserve = reserve
        self._entrance = entrance
        self._clamps = clamps
        self._overload = overload
        self._line_up_anew = line_up_anew

    def __call__(self, effects: Effects) -> None:
        fleet = self._fleet
        fleet.together(lambda: self._limit_backends(effects))
        batch_shares = dict(effects.batch_shares)
        for pool in fleet.pools.values():
            fleet.gather(pool, pool.name not in effects.serial_pools)
            pool.batch_share = batch_shares.get(pool.name, 1.0)
        self._reserve.lend(not effects.has_no_lending)
        self._entrance.use(effects)
        self._clamps.use(effects)
        self._tagger.batch_is_cold = effects.batch_is_cold
        self._overload.absorbs_bursts = not effects.sheds_over_share
        fallback = [pool.name for pool in fleet.pools.values() if PoolTag.FALLBACK in pool.tags]
        if self._tagger.prefer(frozenset(fallback) if effects.prefers_fallback else frozenset()):
            self._line_up_anew()

    def _limit_backends(self, effects: Effects) -> None:
        shares = dict(effects.window_shares)
        for backend in self._fleet:
            share = shares.get(backend.id, 1.0)
            if backend.shares.get(Limiter.RULE, 1.0) != share:
                self._fleet.use_share(backend, Limiter.RULE, share)
            self._hold(backend, Hold.RULE, backend.id in effects.held)
            self._hold(backend, Hold.STANDBY, is_standby(backend) and not effects.activates_standby)

    def _hold(self, backend: Backend, hold: Hold, wanted: bool) -> None:
        if wanted and hold not in backend.holds:
            self._fleet.hold(backend, hold)
        elif not wanted and hold in backend.holds:
            self._fleet.release(backend, hold)


def is_standby(backend: Backend) -> bool:
    return backend.home is not None and PoolTag.STANDBY in backend.home.tags
