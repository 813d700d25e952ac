"""What became of requests, counted for rates over time: how many there were, how many ended abnormally, what they consumed and what of it was of use.

Counters that only grow. Units: requests; tokens of prompts and answers together, as the engines counted them.
*Abnormal* is a request that ended in a fault of the gateway or an engine (5xx, an answer cut short) or that was refused for want of capacity.
*Useful* are the tokens of answers that ended well and, where there is a latency target, began within it.
"""

from __future__ import annotations

from bisect import bisect_left

from policies.terms import Lane, PoolName

OVER_TARGET_BOUNDS = (
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.1,
    1.2,
    1.35,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    4.0,
    6.0,
    10.0,
)
"""Time to the first byte over the latency target."""


class Endings:
    def __init__(self) -> None:
        self.requests = 0
        self.abnormal = 0
        self.tokens = 0
        self.useful_tokens = 0
        self.over_target = [0] * (len(OVER_TARGET_BOUNDS) + 1)
        """Of interactive requests with a target, by bucket of `OVER_TARGET_BOUNDS`."""
        self.asked: dict[Lane, int] = dict.fromkeys(Lane, 0)
        """Requests that asked for a slot; who was refused by a rule did not."""
        self.shed: dict[Lane, int] = dict.fromkeys(Lane, 0)
        """Those of them that were refused because the fleet is short."""
        self.answered: dict[PoolName, int] = {}
        self.tokens_of: dict[PoolName, int] = {}

    def ended(
        self,
        pool: str,
        abnormal: bool,
        tokens: int,
        good: bool,
        first_byte_over_target: float,
        interactive: bool,
    ) -> None:
        """`first_byte_over_target` is 0 without a target or a first byte; `pool` is "" where it reached none."""
        self.requests += 1
        self.abnormal += abnormal
        if pool:
            name = PoolName(pool)
            self.answered[name] = self.answered.get(name, 0) + good
            self.tokens_of[name] = self.tokens_of.get(name, 0) + tokens
        if tokens:
            self.tokens += tokens
            if good and first_byte_over_target <= 1.0:
                self.useful_tokens += tokens
        if interactive and first_byte_over_target:
            self.over_target[bisect_left(OVER_TARGET_BOUNDS, first_byte_over_target)] += 1


def upper_quantile(counts: tuple[float, ...], share: float) -> float | None:
    """The bound of the bucket that holds it, the last bound where it is above all; None of nothing."""
    total = sum(counts)
    if total <= 0:
        return None
    below = 0.0
    for bound, count in zip(OVER_TARGET_BOUNDS, counts, strict=False):
        below += count
        if below >= share * total:
            return bound
    return OVER_TARGET_BOUNDS[-1]
