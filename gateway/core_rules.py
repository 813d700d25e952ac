"""From the settings to what the decision core takes: its rules, its pools and its backends."""

from __future__ import annotations

from math import inf

from gateway.breaker_settings import BreakerSettings
from gateway.configuration import backend_name
from gateway.degradation_rules import degradation_rules
from gateway.settings import PoolSettings, Settings, WindowSettings
from policies.automatic_window import AutomaticWindow
from policies.cache_lifetime import LifetimeRules
from policies.capacity_tokens import TokenRules
from policies.circuit import CircuitRules
from policies.emergency import ReserveRules
from policies.emergency_budget import EmergencyBudgetRules
from policies.fairness import FairnessRules
from policies.gathering import GatheringRules
from policies.heat import HeatRules
from policies.lengths import LengthRules
from policies.outlier import OutlierRules
from policies.overload import OverloadRules
from policies.path_split import PathRules
from policies.pool_choice import PoolChoiceRules, PoolFacts
from policies.preemption import PreemptionRules
from policies.retries import RetryRules
from policies.retry_budget import RetryBudgetRules
from policies.shedding import SheddingRules
from policies.terms import BackendId, Lane, PoolName
from policies.windows import WindowRules
from routing.backend import BackendPlan
from routing.fleet import PoolPlan
from routing.placement import AffinityRules
from routing.rules import Rules
from routing.tagger import TaggerRules


def core_rules(settings: Settings) -> Rules:
    lanes, queue, emergency = settings.lanes, settings.queue, settings.lanes.emergency
    shedding = settings.shedding
    # A reserve that nobody may use would only be lost.
    ceilings = [tenant.max_lane for tenant in settings.tenants] + [settings.anonymous.max_lane]
    sensitive = lanes.interactive.weight
    share = sensitive / (sensitive + lanes.standard.weight + lanes.batch.weight)
    return Rules(
        probe_failures=settings.probes.failures,
        fairness=FairnessRules(
            fairness_weight=min(max(share, 0.05), 0.95)
            if queue.fairness_weight is None
            else queue.fairness_weight,
            standard_weight=lanes.standard.weight,
            batch_weight=lanes.batch.weight,
            max_waiting=queue.max_waiting,
            max_waiting_per_lane=queue.max_waiting,
            max_waiting_per_flow=queue.max_waiting_per_flow,
        ),
        tagger=TaggerRules(
            lengths=LengthRules(settings.lengths.short_below, settings.lengths.long_above),
            budget=EmergencyBudgetRules(emergency.budget_share, emergency.burst),
            pool_choice=PoolChoiceRules(
                spill=settings.placement.spill,
                spill_ratio=settings.placement.spill_ratio,
                hysteresis_seconds=settings.placement.hysteresis_seconds,
            ),
        ),
        preemption=PreemptionRules() if emergency.preemption else PreemptionRules(max_preemptions=0),
        reserve=ReserveRules(
            emergency.reserved_per_pool if Lane.EMERGENCY in ceilings else 0, emergency.lending_share
        ),
        shedding=SheddingRules(shedding.enabled, shedding.margin),
        overload=OverloadRules(shedding.standing_share, shedding.standing_seconds),
        affinity=_affinity(settings),
        primary_seconds=settings.monitoring.primary_seconds,
        business_seconds=settings.monitoring.business_seconds,
        degradation=degradation_rules(settings),
        retries=RetryRules(settings.retries.max_retries),
        retry_budget=RetryBudgetRules(settings.retries.budget_share, settings.retries.budget_floor),
        circuit=_circuit(settings.breaker),
        outlier=OutlierRules(factor=settings.breaker.outlier_factor),
    )


def _circuit(breaker: BreakerSettings) -> CircuitRules:
    return CircuitRules(
        enabled=breaker.enabled,
        fast_seconds=breaker.fast_seconds,
        min_calls=breaker.min_calls,
        failed_share=breaker.failed_share,
        slow_seconds=breaker.slow_seconds,
        slow_min_calls=breaker.slow_min_calls,
        slow_share=breaker.slow_share,
        slow_factor=breaker.slow_factor,
        failures_in_a_row=breaker.failures_in_a_row,
        open_seconds=breaker.open_seconds,
        max_open_seconds=breaker.max_open_seconds,
        slow_start_seconds=breaker.slow_start_seconds,
        panic_share=breaker.panic_share,
    )


def _affinity(settings: Settings) -> AffinityRules:
    affinity, paths = settings.affinity, settings.paths
    return AffinityRules(
        affinity.enabled,
        affinity.max_prefixes,
        affinity.load_bound,
        HeatRules(paths.reuse_cache_min_hits, paths.window_seconds),
        LifetimeRules(affinity.min_ttl_seconds, affinity.max_ttl_seconds),
        PathRules(
            paths.hot_cache_preallocation, paths.cache_low_freq_ratio, paths.follow_traffic, paths.cold_open
        ),
    )


def lane_wait_seconds(settings: Settings) -> dict[Lane, float]:
    """Of lanes with a limit of their own."""
    lanes = settings.lanes
    waits = {
        Lane.EMERGENCY: lanes.emergency.max_wait_seconds,
        Lane.INTERACTIVE: lanes.interactive.max_wait_seconds,
        Lane.STANDARD: lanes.standard.max_wait_seconds,
        Lane.BATCH: lanes.batch.max_wait_seconds,
    }
    return {lane: seconds for lane, seconds in waits.items() if seconds is not None}


def pool_plans(settings: Settings) -> list[PoolPlan]:
    return [_pool_plan(pool) for pool in settings.pools]


def backend_plans(settings: Settings) -> list[BackendPlan]:
    return [
        BackendPlan(
            BackendId(backend_name(backend)),
            PoolName(pool.name),
            pool.window.max if pool.window is not None else None,
            _adaptive(pool.window),
            _automatic(pool.window),
            _tokens(pool.window),
        )
        for pool in settings.pools
        for backend in pool.backends
    ]


def _adaptive(window: WindowSettings | None) -> WindowRules | None:
    """None where there is no window, or one that does not move."""
    if window is None or window.max is None or window.min is None or window.min == window.max:
        return None
    start = (window.min + window.max) // 2 if window.start is None else window.start
    return WindowRules(start, window.min, window.max)


def _automatic(window: WindowSettings | None) -> AutomaticWindow | None:
    return None if window is None or window.max is not None else AutomaticWindow(window.min, window.start)


def _tokens(window: WindowSettings | None) -> TokenRules | None:
    """Whoever says how many requests a backend takes is not held to less by what the engine says of its cache or shows of its speed."""
    if window is None:
        return None
    is_automatic = window.max is None
    seconds = window.prefill_seconds if is_automatic else None
    rules = TokenRules(window.max_tokens, window.max_prefill_tokens, is_automatic, seconds)
    return None if rules == TokenRules(by_engine=False) else rules


def _pool_plan(pool: PoolSettings) -> PoolPlan:
    takes, batching = pool.prompt_tokens, pool.batching
    facts = PoolFacts(PoolName(pool.name), pool.role, takes.min, inf if takes.max is None else takes.max)
    tags = frozenset(pool.tags)
    if batching is None:
        return PoolPlan(facts, engine_priority=pool.engine_priority, tags=tags)
    return PoolPlan(
        facts,
        GatheringRules(batching.min, batching.max, batching.gather_ms / 1000, batching.dynamic_scaling),
        pool.engine_priority,
        tags,
    )
