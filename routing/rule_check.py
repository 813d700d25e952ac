"""Why a degradation rule cannot work, or a part of it cannot: what is not measured, and what there is not to act upon."""

from __future__ import annotations

from collections.abc import Callable

from policies.degradation_actions import Action, ActivateStandby, PreferFallback, Serial, WindowShare
from policies.pool_choice import PoolTag
from routing.degradation import Degradation
from routing.fleet import Fleet


def objections(degradation: Degradation, fleet: Fleet, name: str) -> list[str]:
    """Empty where nothing is known to be in its way. A metric counts as measured once it was known for one of its subjects."""
    rule, found = degradation.rules[name], []
    instances = degradation.instances(name)
    if not any(one.was_known for one in instances):
        also = f", or {rule.only_while.metric}" if rule.only_while is not None else ""
        found.append(f"{rule.metric}{also} was never known for any {rule.scope}")
    for action in rule.actions:
        lacks = _LACKS.get(type(action))
        if lacks is not None and (objection := lacks(fleet)):
            found.append(objection)
    return found


def _no_fallback(fleet: Fleet) -> str:
    return "" if _has_tag(fleet, PoolTag.FALLBACK) else "no pool is tagged fallback"


def _no_standby(fleet: Fleet) -> str:
    return "" if _has_tag(fleet, PoolTag.STANDBY) else "no pool is tagged standby"


def _no_size(fleet: Fleet) -> str:
    if any(backend.has_size for backend in fleet):
        return ""
    return "no backend has a window, and none says how many requests it runs at a time: there is nothing to shrink"


def _no_gathering(fleet: Fleet) -> str:
    gathers = any(pool.planned_gathering is not None for pool in fleet.pools.values())
    return "" if gathers else "no pool gathers requests"


def _has_tag(fleet: Fleet, tag: PoolTag) -> bool:
    return any(tag in pool.tags for pool in fleet.pools.values())


_LACKS: dict[type[Action], Callable[[Fleet], str]] = {
    PreferFallback: _no_fallback,
    ActivateStandby: _no_standby,
    WindowShare: _no_size,
    Serial: _no_gathering,
}
