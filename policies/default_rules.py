"""The rules that hold where a configuration says nothing else: what has proved itself in the field for engines on GPUs.

| rule | takes hold | lets go | does |
|---|---|---|---|
| cache-hit-low | cache hits of the fleet < 0.6 for 5 min while > 0.5 of the requests are hot | >= 0.65, or <= 0.4 hot, for 1 min | closes the cold path |
| memory-swing | a backend's memory swings > 0.15 in 3 samples in a row | <= 0.1 for 1 min | half of its window |
| batch-idle | > 0.2 of a pool's gathered places stay empty for 10 min | <= 0.1 for 5 min, or nothing is known for so long | gathers nothing there |
| gpu-hot | a backend's hottest GPU > 85 C, one sample | <= 80 C for 30 s | holds the backend; critical |
| kv-pressure | a pool's mean KV-cache use > 0.9 for 5 min | <= 0.8 for 1 min | fallback pools first, standby pools used, 0.9 of what was served per second |
| memory-full | a backend's GPU memory > 0.85 while > 16 run there | <= 0.8, or <= 8 run, for 30 s | half of its window |
| memory-above-80, memory-above-60, memory-baseline | GPU memory > 0.8, > 0.6, known at all | <= 0.77, <= 0.57, unknown, for 30 s | 0.75, 0.85, 0.9 of the window |

Of several shares of one window the smallest counts, so the last three are one policy. In serial mode nothing is gathered, so nothing is known of empty places:
`batch-idle` lets go after its clear time and tries gathering again. `memory-full` clears at half of what it takes hold at, for its own action halves the batch.
Limit: where every GPU is too hot nothing is left to send to; an operator who thinks otherwise forces `gpu-hot` off.
Where most traffic is cold, closing the cold path would refuse nearly everything: hence its `only_while`.
"""

from __future__ import annotations

from policies.degradation import Aggregate, Condition, Operator, Rule
from policies.degradation_actions import (
    ActivateStandby,
    CloseColdPath,
    HoldBackends,
    LimitRate,
    PreferFallback,
    Serial,
    WindowShare,
)
from policies.metric_catalogue import Metric, Scope
from policies.rule_events import Severity

_RUNBOOKS = "deploy/runbooks/"

DEFAULT_RULES: tuple[Rule, ...] = (
    Rule(
        "cache-hit-low",
        Metric.CACHE_HIT_RATIO,
        Scope.FLEET,
        Operator.BELOW,
        0.6,
        (CloseColdPath(),),
        for_seconds=300.0,
        clear_threshold=0.65,
        clear_seconds=60.0,
        min_hold_seconds=60.0,
        only_while=Condition(Metric.HOT_RATIO, Operator.ABOVE, 0.5, 0.4),
        description="The prefix caches are hit too rarely: cold requests push out what hot ones would find there",
        runbook=_RUNBOOKS + "cache-hit-low.md",
    ),
    Rule(
        "memory-swing",
        Metric.MEMORY_SWING_RATIO,
        Scope.BACKEND,
        Operator.ABOVE,
        0.15,
        (WindowShare(0.5),),
        samples=3,
        clear_threshold=0.1,
        clear_seconds=60.0,
        description="The memory in use moves so much between samples that a full window may not fit a moment later",
        runbook=_RUNBOOKS + "memory-swing.md",
    ),
    Rule(
        "batch-idle",
        Metric.BATCH_IDLE_RATIO,
        Scope.POOL,
        Operator.ABOVE,
        0.2,
        (Serial(),),
        for_seconds=600.0,
        clear_threshold=0.1,
        clear_seconds=300.0,
        description="Gathered batches stay partly empty: waiting for others costs time and gains nothing",
        runbook=_RUNBOOKS + "batch-idle.md",
    ),
    Rule(
        "gpu-hot",
        Metric.GPU_TEMPERATURE_CELSIUS,
        Scope.BACKEND,
        Operator.ABOVE,
        85.0,
        (HoldBackends(),),
        clear_threshold=80.0,
        clear_seconds=30.0,
        severity=Severity.CRITICAL,
        description="A GPU is too hot: it throttles, and may shut down with all that runs on it",
        runbook=_RUNBOOKS + "gpu-hot.md",
    ),
    Rule(
        "kv-pressure",
        Metric.KV_USAGE_RATIO,
        Scope.POOL,
        Operator.ABOVE,
        0.9,
        (PreferFallback(), ActivateStandby(), LimitRate(0.9)),
        aggregate=Aggregate.MEAN,
        for_seconds=300.0,
        clear_threshold=0.8,
        clear_seconds=60.0,
        description="The KV caches of a pool are full: engines preempt and compute prompts again",
        runbook=_RUNBOOKS + "kv-pressure.md",
    ),
    Rule(
        "memory-full",
        Metric.GPU_MEMORY_USED_RATIO,
        Scope.BACKEND,
        Operator.ABOVE,
        0.85,
        (WindowShare(0.5),),
        clear_threshold=0.8,
        clear_seconds=30.0,
        only_while=Condition(Metric.ENGINE_RUNNING, Operator.ABOVE, 16.0, 8.0),
        description="GPU memory is nearly full under a large batch",
        runbook=_RUNBOOKS + "memory-full.md",
    ),
    *(
        Rule(
            name,
            Metric.GPU_MEMORY_USED_RATIO,
            Scope.BACKEND,
            operator,
            threshold,
            (WindowShare(share),),
            clear_threshold=clear,
            clear_seconds=30.0,
            severity=Severity.INFO,
            description=f"{share:g} of the window {when}",
            runbook=_RUNBOOKS + "memory-policy.md",
        )
        for name, operator, threshold, clear, share, when in (
            ("memory-above-80", Operator.ABOVE, 0.8, 0.77, 0.75, "where GPU memory is above 80 % used"),
            ("memory-above-60", Operator.ABOVE, 0.6, 0.57, 0.85, "where GPU memory is above 60 % used"),
            ("memory-baseline", Operator.AT_LEAST, 0.0, None, 0.9, "wherever GPU memory is known"),
        )
    ),
)
