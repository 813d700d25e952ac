"""What one request costs in the decision core: arrive, its bookkeeping when it ends, and a pump, in microseconds of CPU.

Drives `routing.router.Router` alone, with what the gateway would hand to it: sizes of a chat, service times, `usage` of the answer. Windows
adapt, four business types of two pools are served, a reserve is kept. Three fleets: a few backends, `MANY_BACKENDS`, and one that is full
while `WAITING` requests of `FLOWS` tenants wait, where each operation adds one, ends one and hands the slot on.
It runs in a process of its own, under the interpreter and with the collector's thresholds that the gateway is measured under. The clock is that
process's own CPU time, so what else runs on the machine shows only through its caches and what it leaves of a shared core. The fleets take turns.
"""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median

from gateway.server import COLLECTOR_THRESHOLDS
from policies.emergency import ReserveRules
from policies.fairness import FairnessRules
from policies.lengths import TextSize
from policies.pool_choice import PoolFacts, PoolRole
from policies.terms import BackendId, Lane, PoolName, Verdict
from policies.windows import WindowRules
from routing.backend import BackendPlan
from routing.decision import Intent, Lease, Ticket
from routing.fleet import PoolPlan
from routing.router import Router
from routing.rules import Rules
from tests.bench import figures
from tests.bench.children import ROOT
from tests.bench.figures import Figure
from tests.bench.json_child import tell
from tests.bench.peers import BENCH_HOME
from tests.bench.release_python import release_python

FEW_BACKENDS = 4
MANY_BACKENDS = 1_000
WAITING = 10_000
FLOWS = 1_000
IN_FLIGHT = 32
OPERATIONS = 4_000
_BATCH, _FAST = PoolName("high-batch"), PoolName("low-latency")
_MODEL = "model"
_SIZE = TextSize(letters=1180.0, spaces=230.0, digits=24.0, marks=60.0, lines=8.0, messages=2)
_REQUESTS_PER_SECOND = 1000.0


def measure_decisions(*, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    argv = [release_python(BENCH_HOME)[0], "-m", "tests.bench.measure_decisions", str(rounds)]
    output = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=600).stdout
    found = []
    for (name, bar), costs in zip(_FLEETS, json.loads(output), strict=True):
        progress(f"decisions {name}: {median(costs):.1f} us")
        found.append(
            Figure(
                topic="Decision",
                name=name,
                value=median(costs),
                unit="us/request",
                bar=bar,
                detail=f"arrive + finish + pump; {min(costs):.1f} us in the best of {rounds} rounds",
                rounds=tuple(costs),
            )
        )
    return found


_FLEETS = (
    (f"{FEW_BACKENDS} backends", figures.DECISION_US),
    (f"{MANY_BACKENDS:,} backends", figures.LARGE_DECISION_US),
    (f"{WAITING:,} waiting in {FLOWS:,} flows", figures.LARGE_DECISION_US),
)


def _costs(rounds: int) -> list[list[float]]:
    """Of each of `_FLEETS` in each round."""
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    fleets = (_Free(FEW_BACKENDS), _Free(MANY_BACKENDS), _Full())
    for fleet in fleets:
        fleet.run(OPERATIONS)  # what is learnt first is learnt more often
    by_round = [[_microseconds(fleet) for fleet in fleets] for _ in range(rounds)]
    return [list(costs) for costs in zip(*by_round, strict=True)]


def _microseconds(fleet: _Free | _Full) -> float:
    gc.collect()
    begin = time.process_time()
    fleet.run(OPERATIONS)
    return (time.process_time() - begin) / OPERATIONS * 1e6


class _Free:
    """There is always a slot."""

    def __init__(self, backends: int, max_waiting: int = 1024) -> None:
        rules = Rules(
            fairness=FairnessRules(
                max_waiting_per_flow=max_waiting, max_waiting_per_lane=max_waiting, max_waiting=max_waiting
            ),
            reserve=ReserveRules(),
        )
        self.router = Router(rules)
        plans = [
            BackendPlan(BackendId(f"b{i}"), _FAST if i % 2 else _BATCH, 16, WindowRules(16, 16, 64))
            for i in range(backends)
        ]
        pools = [
            PoolPlan(PoolFacts(_BATCH, PoolRole.HIGH_BATCH)),
            PoolPlan(PoolFacts(_FAST, PoolRole.LOW_LATENCY)),
        ]
        self.router.configure(plans, rules, pools)
        for plan in plans:
            self.router.engines.learn_models(plan.id, frozenset({_MODEL}))
        self.now = 0.0
        self.running: deque[Lease] = deque()
        self.intents = itertools.cycle(
            [
                Intent(name, lane, "bank", 1.0, target, _SIZE, 200, pools=pools)
                for name, lane, target, pools in (
                    ("scoring", Lane.INTERACTIVE, 30.0, (_BATCH, _FAST)),
                    ("advice", Lane.INTERACTIVE, 20.0, (_FAST, _BATCH)),
                    ("loans", Lane.STANDARD, 60.0, (_BATCH, _FAST)),
                    ("reports", Lane.BATCH, float("inf"), ()),
                )
            ]
        )

    def run(self, operations: int) -> None:
        router, running = self.router, self.running
        for _ in range(operations):
            self.now += 1.0 / _REQUESTS_PER_SECOND
            lease = router.arrive(_MODEL, self.now, next(self.intents))
            assert isinstance(lease, Lease)
            running.append(lease)
            if len(running) > IN_FLIGHT:
                _end(router, running.popleft(), self.now)
                if router.waiting:
                    router.pump(self.now)


class _Full:
    """Every slot is taken, and each that comes free is somebody's at once."""

    def __init__(self) -> None:
        fleet = _Free(FEW_BACKENDS, max_waiting=2 * WAITING)
        self.router, self.now, self.running = fleet.router, 0.0, fleet.running
        self.tenants = itertools.cycle([f"tenant-{i}" for i in range(FLOWS)])
        while self.router.waiting < WAITING:
            self._arrives()

    def run(self, operations: int) -> None:
        router, running = self.router, self.running
        for _ in range(operations):
            self._arrives()
            _end(router, running.popleft(), self.now)
            for _, grant in router.pump(self.now):
                assert isinstance(grant, Lease)
                running.append(grant)

    def _arrives(self) -> None:
        self.now += 1.0 / _REQUESTS_PER_SECOND
        intent = Intent(tenant=next(self.tenants), size=_SIZE, max_tokens=200)
        decision = self.router.arrive(_MODEL, self.now, intent)
        if isinstance(decision, Lease):
            self.running.append(decision)
        else:
            assert isinstance(decision, Ticket), decision


def _end(router: Router, lease: Lease, now: float) -> None:
    lease.verdict = Verdict.GOOD
    lease.service_seconds = 0.2
    lease.usage = (410, 120, 0)
    router.finish(lease, now)


if __name__ == "__main__":
    tell(_costs(int(sys.argv[1])))
