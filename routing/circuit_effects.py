"""What open circuits do to the fleet: backends held, models left out, and whom panic lets back.

A backend that has nothing left to serve is held (`Hold.CIRCUIT`); one with other models that are well only leaves the groups of the open ones. Where too many of those that could serve a model are open,
`policies.circuit.let_back` says how many are used all the same: those with the lowest share of failed calls, each with `Limiter.PANIC` where nothing else runs on it. Backends that rest, and those that
a rule, an operator or a standby pool holds, are neither counted nor touched.
State: which pools panic. What it does to backends blocks and frees them in turn, of which it wants to hear nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policies.circuit import CircuitRules, let_back
from policies.terms import PoolName
from routing.backend import Backend, Hold, Limiter
from routing.circuit import Watch
from routing.fleet import Fleet

_OWN_HOLD = frozenset({Hold.CIRCUIT})


class CircuitEffects:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.panics: set[PoolName] = set()
        self._is_at_it = False

    def apply(self, name: PoolName, watches: Mapping[Backend, Watch], rules: CircuitRules) -> None:
        """To be called when a circuit of this pool has changed, when one of its backends is blocked or free, and every so often while one is open."""
        if self._is_at_it:
            return
        self._is_at_it = True
        try:
            self._apply(name, watches, rules)
        finally:
            self._is_at_it = False

    def _apply(self, name: PoolName, watches: Mapping[Backend, Watch], rules: CircuitRules) -> None:
        pool = self._fleet.pools.get(name)
        members = [] if pool is None else [watches[one] for one in pool.backends if one in watches]
        opened = {watch: watch.open_models() for watch in members}
        back = self._let_back(members, opened, rules) if any(opened.values()) else {}
        if back:
            self.panics.add(name)
        else:
            self.panics.discard(name)
        for watch, models in opened.items():
            self._set(watch, models, back.get(watch, set()), rules)

    def clear(self, watch: Watch) -> None:
        self._set(watch, frozenset(), set(), CircuitRules())
        for limiter in (Limiter.SLOW_START, Limiter.OUTLIER):
            self._fleet.use_share(watch.backend, limiter, 1.0)

    def _set(self, watch: Watch, models: frozenset[str], back: set[str], rules: CircuitRules) -> None:
        fleet, backend = self._fleet, watch.backend
        is_open = watch.is_open(models)
        is_held = is_open and not back
        share = rules.panic_window_share if is_open and back else 1.0
        # Most of a pool stays as it is, and a pool may be large.
        if backend.shares.get(Limiter.PANIC, 1.0) != share:
            fleet.use_share(backend, Limiter.PANIC, share)
        if is_held and Hold.CIRCUIT not in backend.holds:
            fleet.hold(backend, Hold.CIRCUIT)
        fleet.leave_out(backend, frozenset() if is_held or not models else models - back - {""})
        if not is_held and Hold.CIRCUIT in backend.holds:
            fleet.release(backend, Hold.CIRCUIT)

    @staticmethod
    def _to_look_at(opened: Mapping[Watch, frozenset[str]]) -> set[str]:
        """Those of open circuits, and all of backends that are left out."""
        found = {""}
        for watch, models in opened.items():
            found |= models
            if watch.is_open(models):
                found |= watch.backend.models or frozenset()
        return found

    def _let_back(
        self,
        members: Iterable[Watch],
        opened: Mapping[Watch, frozenset[str]],
        rules: CircuitRules,
    ) -> dict[Watch, set[str]]:
        """For which of its models each is used all the same."""
        back: dict[Watch, set[str]] = {}
        usable = [one for one in members if not one.backend.is_resting and one.backend.holds <= _OWN_HOLD]
        for model in self._to_look_at(opened):
            serving = [one for one in usable if not model or _serves(one.backend, model)]
            left_out = [
                one for one in serving if one.is_open(opened[one]) or (model and model in opened[one])
            ]
            count = let_back(len(left_out), len(serving), rules)
            if count:
                left_out.sort(key=_failed_share)
                for watch in left_out[:count]:
                    back.setdefault(watch, set()).add(model)
        return back


def _serves(backend: Backend, model: str) -> bool:
    return backend.models is None or model in backend.models


def _failed_share(watch: Watch) -> float:
    """The worst of its open circuits'."""
    return max([one.failed_share for one in watch.circuits.values() if not one.is_closed], default=0.0)
