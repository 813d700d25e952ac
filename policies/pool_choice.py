"""Which pools may take a request, in which order, and when it leaves the one it prefers.

Decides, once for each kind of request, the order of preference (`preference`):
1. pools that do not take a prompt of this length drop out;
2. the pools its business type or client names, in that order, and no other; else
3. real-time first (emergency, interactive): low-latency pools, then high-batch ones; everything else the other way round. A prompt above
   `long_prompt_tokens` or an answer above `long_output_tokens` is not real-time: in a small batch it would hold up all the others. Equal pools
   stay in the order of the configuration.
Decides, for each request, the pool among these (`choose_pool`). Present is where its flow's requests go: home (the first), or where it spilled to at most
`hysteresis_seconds` ago. Another pool is taken
- where the first byte is predicted there within `spill_ratio` of the present pool's time, or
- where the deadline holds there and not at present; of several the fastest.
A throughput request is a guest outside its home and comes only where less than `max_guest_saturation` is in use, unless the present pool has no usable
backend. `may_enter` says the same of a pool whose slot has become free, for a request that waits. Home has a flow back at once
while less than `max_return_saturation` of it is in use and it is not slower, or holds the deadline; above that only as any other pool.
Inputs: tokens; seconds from now to the first byte (queue wait + service, infinite where no backend is usable); saturation = in flight / capacity.
Settings: `spill` (default true), `spill_ratio` (0..1, default 0.5), `hysteresis_seconds` (0..3600, default 10), `max_guest_saturation` (0..1,
default 0.5), `max_return_saturation` (0..1, default 0.5), `long_prompt_tokens` (1..10000000, default 4096), `long_output_tokens` (same, default 1024).
Limit: as good as the predictions; a pool that nobody was sent to for long is predicted as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from policies.members import EMERGENCY, INTERACTIVE
from policies.terms import Lane, PoolName


class PoolRole(StrEnum):
    HIGH_BATCH = "high-batch"
    LOW_LATENCY = "low-latency"


class PoolTag(StrEnum):
    """What degradation rules may use a pool for, see `policies.degradation_actions`."""

    FALLBACK = "fallback"
    STANDBY = "standby"
    """Used only while a rule activates it."""


@dataclass(frozen=True, slots=True)
class PoolChoiceRules:
    spill: bool = True
    spill_ratio: float = 0.5
    hysteresis_seconds: float = 10.0
    max_guest_saturation: float = 0.5
    max_return_saturation: float = 0.5
    long_prompt_tokens: float = 4096.0
    long_output_tokens: float = 1024.0


class PoolFacts(NamedTuple):
    name: PoolName
    role: PoolRole = PoolRole.HIGH_BATCH
    min_prompt_tokens: float = 0.0
    max_prompt_tokens: float = inf


def is_realtime(lane: Lane, prompt_tokens: float, output_tokens: float, rules: PoolChoiceRules) -> bool:
    return (
        (lane is INTERACTIVE or lane is EMERGENCY)
        and prompt_tokens <= rules.long_prompt_tokens
        and output_tokens <= rules.long_output_tokens
    )


def preference(
    pools: Sequence[PoolFacts], named: Sequence[PoolName], prompt_tokens: float, realtime: bool
) -> tuple[PoolName, ...]:
    """Empty where no pool takes such a prompt, or none of those named is there."""
    tokens = round(prompt_tokens)  # bounds are whole, and no estimate may fall between two pools
    fitting = [pool for pool in pools if pool.min_prompt_tokens <= tokens <= pool.max_prompt_tokens]
    if named:
        names = {pool.name for pool in fitting}
        return tuple(name for name in dict.fromkeys(named) if name in names)
    first = PoolRole.LOW_LATENCY if realtime else PoolRole.HIGH_BATCH
    # A stable sort: False stands before True.
    return tuple(pool.name for pool in sorted(fitting, key=lambda pool: pool.role is not first))


def may_enter(index: int, saturation: float, realtime: bool, rules: PoolChoiceRules) -> bool:
    """Whether a request that waits at home may take a free slot of the pool at `index` of its order."""
    return index == 0 or (rules.spill and (realtime or saturation < rules.max_guest_saturation))


def choose_pool(
    seconds: Sequence[float],
    saturations: Sequence[float],
    left_seconds: float,
    realtime: bool,
    spilled_to: int,
    spilled_seconds_ago: float,
    rules: PoolChoiceRules,
) -> int:
    """The index of the pool, 0 is home. `seconds` and `saturations` stand in order of preference, one each; `spilled_to` is 0 without a spill."""
    count = len(seconds)
    if count == 1 or not rules.spill:
        return 0
    present = spilled_to if spilled_to < count and spilled_seconds_ago < rules.hysteresis_seconds else 0
    here = seconds[present]
    gone = here == inf
    late_here = here > left_seconds
    if present and saturations[0] < rules.max_return_saturation:
        home = seconds[0]
        if home < inf and (home <= here or home <= left_seconds):
            return 0
    best, best_seconds = present, inf
    threshold = inf if gone else here * rules.spill_ratio
    for index in range(count):
        there = seconds[index]
        if (
            there < best_seconds
            and index != present
            and (there < threshold or (late_here and there <= left_seconds))
            and (realtime or index == 0 or gone or saturations[index] < rules.max_guest_saturation)
        ):
            best, best_seconds = index, there
    return best
