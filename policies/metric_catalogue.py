"""What degradation rules may be about: every metric's name, unit, where it is measured, and its definition.

A value is a number or unknown (None); unknown is never taken for 0. `SCOPES` says for which subjects a metric is measured itself: a rule of a wider scope puts
the backends' values together by its aggregate.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf


class Scope(StrEnum):
    """What one value speaks of. Its subject is a backend's id, a pool's name, or "" for the fleet."""

    __hash__ = (
        str.__hash__
    )  # looked up for every rule and subject at each beat; Enum's own is a Python function

    BACKEND = "backend"
    POOL = "pool"
    FLEET = "fleet"


class Metric(StrEnum):
    """Ratios are 0 to 1, unless it says otherwise."""

    __hash__ = str.__hash__

    GPU_TEMPERATURE_CELSIUS = "gpu_temperature_celsius"
    """Of the hottest GPU of a backend."""
    GPU_MEMORY_USED_RATIO = "gpu_memory_used_ratio"
    """Used / all, of the fullest GPU of a backend."""
    GPU_UTILISATION_RATIO = "gpu_utilisation_ratio"
    """Mean over the GPUs of a backend."""
    MEMORY_SWING_RATIO = "memory_swing_ratio"
    """|used - used before| / used before, between two samples of a backend's GPU memory. May be above 1."""
    KV_USAGE_RATIO = "kv_usage_ratio"
    """Of the engine's KV cache, as it says."""
    ENGINE_RUNNING = "engine_running"
    """Requests in the engine's batch, as it says."""
    ENGINE_WAITING = "engine_waiting"
    """Requests in the engine's own queue, as it says."""
    CACHE_HIT_RATIO = "cache_hit_ratio"
    """Prompt tokens found in the prefix caches / prompt tokens looked up there, over the last minute, by the engines' counters."""
    SATURATION_RATIO = "saturation_ratio"
    """Requests in flight / slots."""
    OPEN_RATIO = "open_ratio"
    """Backends to which nothing new may be sent, or only for want of others / all but those on standby."""
    BATCH_IDLE_RATIO = "batch_idle_ratio"
    """1 - batching efficiency: places that stayed empty / places, over the last minute, in what was gathered; a batch has the places that its backend lacked to the least size of a batch."""
    HOT_RATIO = "hot_ratio"
    """Requests on the hot path / requests that have a path, over the last minute."""
    SHED_RATIO = "shed_ratio"
    """Requests refused because the fleet is short / requests that came, over the last 10 seconds; those that a rule refuses are in neither."""
    INTERACTIVE_SHED_RATIO = "interactive_shed_ratio"
    """The same of the interactive lane."""
    INTERACTIVE_FIRST_BYTE_OVER_TARGET = "interactive_first_byte_over_target"
    """P95 of time to the first byte / latency target, over the last 10 seconds. May be above 1."""
    ABNORMAL_RATIO = "abnormal_ratio"
    """Requests that ended in a fault of ours or an engine's, were cut, or were refused / requests, over the last 5 minutes."""
    STANDING_QUEUE = "standing_queue"
    """1 while the overload detector sees a queue that stands, else 0."""


_B, _P, _F = Scope.BACKEND, Scope.POOL, Scope.FLEET

SCOPES: dict[Metric, frozenset[Scope]] = {
    Metric.GPU_TEMPERATURE_CELSIUS: frozenset({_B}),
    Metric.GPU_MEMORY_USED_RATIO: frozenset({_B}),
    Metric.GPU_UTILISATION_RATIO: frozenset({_B}),
    Metric.MEMORY_SWING_RATIO: frozenset({_B}),
    Metric.KV_USAGE_RATIO: frozenset({_B}),
    Metric.ENGINE_RUNNING: frozenset({_B}),
    Metric.ENGINE_WAITING: frozenset({_B}),
    Metric.CACHE_HIT_RATIO: frozenset({_B, _P, _F}),
    Metric.SATURATION_RATIO: frozenset({_B, _P, _F}),
    Metric.OPEN_RATIO: frozenset({_P, _F}),
    Metric.BATCH_IDLE_RATIO: frozenset({_P}),
    Metric.HOT_RATIO: frozenset({_F}),
    Metric.SHED_RATIO: frozenset({_F}),
    Metric.INTERACTIVE_SHED_RATIO: frozenset({_F}),
    Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET: frozenset({_F}),
    Metric.ABNORMAL_RATIO: frozenset({_F}),
    Metric.STANDING_QUEUE: frozenset({_F}),
}

_MAY_EXCEED_ONE = frozenset(
    {Metric.MEMORY_SWING_RATIO, Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET, Metric.SATURATION_RATIO}
)
_COUNTS = frozenset({Metric.ENGINE_RUNNING, Metric.ENGINE_WAITING})
_HOTTEST_CELSIUS = 200.0
"""Beyond it `gateway.gpu_report` believes nothing."""


def largest(metric: Metric) -> float:
    """No value is above, and none below 0: a threshold beyond can only be one in another unit, such as 85 where 0.85 was meant."""
    if metric is Metric.GPU_TEMPERATURE_CELSIUS:
        return _HOTTEST_CELSIUS
    return inf if metric in _MAY_EXCEED_ONE or metric in _COUNTS else 1.0
