"""What the decision core counts while it decides, for whoever shows it.

Plain numbers, added to where the decision is made and read at a scrape, so a request pays an addition for each, and a bisection if it waited. They count
since the start and are never set back. Only the thread that drives the router touches them, so there is no lock.
Keys: lanes, and the names of pools and tenants that some configuration since the start had; nothing that a client can choose.
`wait_errors` is in seconds: how long a request waited less what was predicted when it came. It has those that got a slot, and those that were
given up for their deadline with the wait that they had; one that left by itself says nothing. `prompt_errors` is a share: |estimated - counted| / counted prompt tokens, of the answers that were learnt from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from math import inf

from policies.terms import Lane, PoolName

_OFF_BY = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
WAIT_ERROR_BOUNDS = (*[-seconds for seconds in reversed(_OFF_BY)], 0.0, *_OFF_BY)
PROMPT_ERROR_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0)
BATCH_BOUNDS = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)


class Histogram:
    """How often a value fell into each bucket, the last one above all bounds, and the sum of all values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Counts:
    def __init__(self) -> None:
        self.at_once: dict[Lane, int] = dict.fromkeys(Lane, 0)
        """Requests that found a slot when they came."""
        self.after_wait: dict[Lane, int] = dict.fromkeys(Lane, 0)
        """Requests that got their first slot after they had waited for it."""
        self.evicted: dict[Lane, int] = dict.fromkeys(Lane, 0)
        """Put out of a full queue for one of a higher lane."""
        self.relegated = 0
        """Served as batch because their deadline could not be met."""
        self.spills: defaultdict[tuple[PoolName, PoolName], int] = defaultdict(int)
        """From the pool that a request prefers, of those that serve its model, to the one that it started on."""
        self.batches: dict[PoolName, Histogram] = {}
        """Sizes of what was gathered and sent together."""
        self.batch_places: defaultdict[PoolName, int] = defaultdict(int)
        """How many these could have been at least: what the backend lacked to the least size of a batch, or what was sent where that was more."""
        self.holds: defaultdict[PoolName, int] = defaultdict(int)
        """How often a pool with a free slot held a request back for others to come."""
        self.emergencies: defaultdict[tuple[str, bool], int] = defaultdict(int)
        """By tenant, and whether its budget granted them; else they were demoted."""
        self.charged: defaultdict[str, float] = defaultdict(float)
        """Weighted tokens by tenant, of requests that ended."""
        self.retries_over_budget = 0
        """Second tries that were possible and not in the budget."""
        self.wait_errors = Histogram(WAIT_ERROR_BOUNDS)
        self.prompt_errors = Histogram(PROMPT_ERROR_BOUNDS)

    def gathered(self, pool: PoolName, requests: int, places: int) -> None:
        sizes = self.batches.get(pool)
        if sizes is None:
            sizes = self.batches[pool] = Histogram(BATCH_BOUNDS)
        sizes.observe(requests)
        self.batch_places[pool] += places

    def waited(self, predicted_seconds: float, seconds: float) -> None:
        if predicted_seconds < inf:
            self.wait_errors.observe(seconds - predicted_seconds)

    def estimated(self, prompt_tokens: float, counted: int) -> None:
        self.prompt_errors.observe(abs(prompt_tokens - counted) / counted)
