"""Whether requests of a throughput lane are held for a moment so that an engine gets them as a batch.

Decides: how much longer the waiting requests of one line are held for a backend, 0 to send now, and how many go together.
Nothing is held for emergency and interactive requests, nor where holding would not make a batch:
- a continuous-batching engine takes new requests into a running batch at every step, so what it runs counts towards `min_requests`;
- slots that are not free cannot be filled: what fits now is enough;
- with `dynamic_scaling`, where fewer than `min_requests` are to be expected within the rest of `gather_seconds`, the least size shrinks to what is
  there, down to 1. Without it the oldest waits out its time.
The oldest is never held longer than `gather_seconds`, nor into the time it needs to meet its deadline.
Inputs: requests; seconds; `slack_seconds` = time left until the oldest's deadline less its predicted service, infinite without a deadline.
Settings: `min_requests` (1..10000, default 4), `max_requests` (1..10000, default 24), `gather_seconds` (0..10, default 0.1), `dynamic_scaling`
(default true). Source: the field's batching policy, with min_batch_size 4, max_batch_size 24 and timeout 0.1 s.
Limit: groups by number; requests that share a prefix are not brought together by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.terms import Lane


@dataclass(frozen=True, slots=True)
class GatheringRules:
    min_requests: int = 4
    max_requests: int = 24
    gather_seconds: float = 0.1
    dynamic_scaling: bool = True


def hold_seconds(
    lane: Lane,
    waiting: int,
    oldest_wait_seconds: float,
    slack_seconds: float,
    free_slots: int,
    in_flight: int,
    arrivals_per_second: float,
    rules: GatheringRules,
) -> float:
    """0.0: send now; else look again after so many seconds, or when one arrives. `free_slots` and `in_flight` are the backend's."""
    if lane is Lane.INTERACTIVE or lane is Lane.EMERGENCY:
        return 0.0
    missing = rules.min_requests - in_flight - waiting
    if missing <= 0 or waiting >= free_slots:
        return 0.0
    hold = min(rules.gather_seconds - oldest_wait_seconds, slack_seconds)
    if hold <= 0.0:
        return 0.0
    if rules.dynamic_scaling and arrivals_per_second * hold < min(missing, free_slots - waiting):
        return 0.0
    return hold


def group_size(waiting: int, free_slots: int, rules: GatheringRules) -> int:
    """How many go to one backend together."""
    return max(min(waiting, free_slots, rules.max_requests), 0)
