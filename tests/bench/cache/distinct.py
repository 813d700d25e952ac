"""What prefixes that never come again cost the decision core: `python -m tests.bench.cache.distinct`, JSON on standard output.

`PROMPTS` of `BOUNDARIES` prefixes each, a million in all, one in three with a session of its own, go through the router in front of eight backends at the
default bounds. One in ten comes `_TIMES` in a row, the last times at a backend of its own each, so that the hot part of the table is filled over and over as well, with
prefixes that have as many homes as they may: there it is largest. Measured: CPU per request in the first and the last tenth after the table is full, and how much resident memory grew since the router was made.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from policies.cache_key import CacheKey
from policies.lengths import TextSize
from policies.prefix_chain import Prefix
from policies.terms import BackendId, PoolName, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease
from routing.hot_prefixes import MAX_HOMES
from routing.placement import AffinityRules
from routing.router import Router
from routing.rules import Rules
from tests.bench.children import ROOT
from tests.bench.json_child import tell

PROMPTS = 100_000
BOUNDARIES = 10
_TIMES = 4 + MAX_HOMES
"""Hot from the fifth on."""
_BACKENDS = 8
_SIZE = TextSize(token_ids=500)
_PER_SECOND = 500.0
_DEPTHS = tuple(128 * count for count in range(1, BOUNDARIES + 1))


@dataclass(frozen=True, slots=True)
class Distinct:
    first_us: float
    last_us: float
    grown_mb: float
    held: int
    most: int

    @property
    def cost_ratio(self) -> float:
        return self.last_us / self.first_us


def measure_distinct() -> Distinct:
    """In a process of its own."""
    argv = [sys.executable, "-m", "tests.bench.cache.distinct"]
    output = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=300).stdout
    return Distinct(**json.loads(output))


def _run() -> Distinct:
    router = Router(Rules())
    plans = [BackendPlan(_backend(number), PoolName("p"), 64) for number in range(_BACKENDS)]
    router.configure(plans, Rules())
    chance = Random(1)
    gc.collect()
    before = _resident_mb()
    tenth = PROMPTS // 10
    costs = [_tenth(router, chance, number * tenth, tenth) for number in range(10)]
    gc.collect()
    table = router.placement.table
    held = len(table.hot) + table.cold.used
    # The first tenth fills what there is to fill.
    return Distinct(costs[1], costs[-1], _resident_mb() - before, held, AffinityRules().max_prefixes)


def _tenth(router: Router, chance: Random, first: int, count: int) -> float:
    """CPU microseconds of each request."""
    intents = []
    size = _DEPTHS[-1]
    for number in range(first, first + count):
        hashes = tuple(chance.getrandbits(64) for _ in range(BOUNDARIES))
        key = CacheKey(
            Prefix(hashes, _DEPTHS, size, _DEPTHS, size), 0 if number % 3 else chance.getrandbits(64)
        )
        intent = Intent(size=_SIZE, max_tokens=20, streamed=True, key=key)
        intents.append(intent)
        if not number % 10:
            intents += [intent] * (_TIMES - MAX_HOMES - 1)
            homes = chance.sample(range(_BACKENDS), MAX_HOMES)
            intents += [intent._replace(backend=_backend(home)) for home in homes]
    gc.collect()
    begin = time.process_time()
    for number, intent in enumerate(intents, first):
        now = number / _PER_SECOND
        lease = router.arrive("", now, intent)
        assert isinstance(lease, Lease)
        lease.verdict, lease.service_seconds, lease.usage = Verdict.GOOD, 0.1, (500, 20, 0)
        router.finish(lease, now)
    return (time.process_time() - begin) / len(intents) * 1e6


def _backend(number: int) -> BackendId:
    return BackendId(f"b{number}")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    tell(asdict(_run()))
