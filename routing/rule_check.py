"""Why a degradation rule cannot work, or a part of it cannot: what nobody measures, what there is not to act upon, and what keeps itself up.

Of a metric that only traffic can tell (shares of requests, hit rates before the first prompt) nothing is said: it will come.
Backends on standby are left out; one that is absent tells nothing, and is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.degradation import Operator, Rule
from policies.degradation_actions import (
    Action,
    ActivateStandby,
    BatchShare,
    HoldBackends,
    PreferFallback,
    Serial,
    WindowShare,
)
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolTag
from routing.backend import Backend, Hold
from routing.fleet import Fleet

if TYPE_CHECKING:
    from routing.router import Router

_NAMED = 5
_BY_GPU = (
    Metric.GPU_TEMPERATURE_CELSIUS,
    Metric.GPU_MEMORY_USED_RATIO,
    Metric.GPU_UTILISATION_RATIO,
)
_BY_ENGINE = (Metric.KV_USAGE_RATIO, Metric.ENGINE_RUNNING, Metric.ENGINE_WAITING)


def objections(router: Router, name: str, now: float) -> list[str]:
    """Empty where nothing is known to be in its way."""
    rule = router.degradation.rules[name]
    metrics = [rule.metric] if rule.only_while is None else [rule.metric, rule.only_while.metric]
    found = [_unmeasured(router, rule, metric, now) for metric in metrics]
    found += [lacks(router.fleet) for action in rule.actions if (lacks := _LACKS.get(type(action)))]
    found.append(_latch(rule))
    return [objection for objection in dict.fromkeys(found) if objection]


def _unmeasured(router: Router, rule: Rule, metric: Metric, now: float) -> str:
    if metric is Metric.BATCH_IDLE_RATIO:
        return _no_gathering(router.fleet)
    if metric is Metric.HOT_RATIO:
        return "" if router.placement.rules.enabled else "affinity is off: every request is cold"
    backends = [one for one in router.fleet if Hold.STANDBY not in one.holds]
    if metric is Metric.CACHE_HIT_RATIO:
        silent = [one for one in backends if one.report is None or one.report.prefix_queries is None]
        return _silent(silent, len(backends), "prompt tokens found in its prefix cache")
    if metric is Metric.MEMORY_SWING_RATIO:
        metric = Metric.GPU_MEMORY_USED_RATIO  # what it is made of
    if metric not in _BY_GPU and metric not in _BY_ENGINE:
        return ""
    silent = [one for one in backends if router.samples.value(metric, Scope.BACKEND, one.id, now) is None]
    where = " (its `gpu` names the page)" if metric in _BY_GPU else ""
    return _silent(silent, len(backends), f"{metric}{where}")


def _latch(rule: Rule) -> str:
    is_above = rule.operator in (Operator.ABOVE, Operator.AT_LEAST)
    holds = any(isinstance(action, HoldBackends) for action in rule.actions)
    if rule.metric is Metric.OPEN_RATIO and is_above and holds:
        return f"what it holds counts in {rule.metric}: it does not let go unless it is forced off"
    return ""


def _silent(backends: list[Backend], of: int, what: str) -> str:
    if not backends:
        return ""
    if len(backends) == of:
        return f"no backend tells {what}"
    named = ", ".join(one.id for one in backends[:_NAMED])
    more = f" and {len(backends) - _NAMED} more" if len(backends) > _NAMED else ""
    return f"not told of {named}{more}: {what}"


def _no_fallback(fleet: Fleet) -> str:
    return "" if _has_tag(fleet, PoolTag.FALLBACK) else "no pool is tagged fallback"


def _no_standby(fleet: Fleet) -> str:
    return "" if _has_tag(fleet, PoolTag.STANDBY) else "no pool is tagged standby"


def _no_size(fleet: Fleet) -> str:
    if any(backend.has_size for backend in fleet):
        return ""
    return "no backend has a window, and none says how many requests it runs at a time: there is nothing to shrink"


def _no_window(fleet: Fleet) -> str:
    is_bounded = any(backend.whole_window is not None for backend in fleet)
    return "" if is_bounded else "no backend has a window: there is nothing to share"


def _no_gathering(fleet: Fleet) -> str:
    gathers = any(pool.planned_gathering is not None for pool in fleet.pools.values())
    return "" if gathers else "no pool gathers requests"


def _has_tag(fleet: Fleet, tag: PoolTag) -> bool:
    return any(tag in pool.tags for pool in fleet.pools.values())


_LACKS: dict[type[Action], Callable[[Fleet], str]] = {
    PreferFallback: _no_fallback,
    ActivateStandby: _no_standby,
    WindowShare: _no_size,
    BatchShare: _no_window,
    Serial: _no_gathering,
}
