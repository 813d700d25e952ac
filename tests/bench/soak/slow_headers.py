"""What `COUNT` idle connections, each in the middle of its head, add to the P99 of others' calls: alternating rounds with them and without, in front of one engine.

The load is `measure_latency`'s: open loop, Poisson arrivals at `RATE` per second, plain calls of 1.7 KB, timed from the moment they were due. The gateway has the
first core for itself, the others share the rest; the figure is the median of the rounds' differences. Limits are the gateway's defaults, so that it ends a slow
connection after 10 s with 408, and a new one comes in its place.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.arithmetic import median_difference, percentile
from tests.bench.children import engine_running, get, on_cores
from tests.bench.figures import Figure
from tests.bench.load_generator import Job, run_job
from tests.bench.peers import PEERS, peer_running
from tests.bench.process_tree import established_sockets, run_queue_seconds
from tests.bench.soak.page import total
from tests.bench.soak.slow_clients import slow_clients

COUNT = 2000
ROUNDS = 4
RATE = 200.0
SECONDS = 12.0
"""Longer than a slow connection is allowed to be, so that its end and its successor are in it."""
ADDED_P99_MS = 5.0


def slow_headers(scratch: Path, rounds: int, progress: Callable[[str], None]) -> list[Figure]:
    cores = sorted(os.sched_getaffinity(0))
    alone: list[float] = []
    beside: list[float] = []
    fewest = COUNT
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_cores(cores[1:] or cores))
        engine_port, _ = stack.enter_context(engine_running(scratch / "engine.log", step_ms=5, groups=4))
        with on_cores(cores[:1]):
            port, pid = stack.enter_context(peer_running(PEERS["headrace"], engine_port, scratch))
        for turn in range(rounds):
            for with_them in (False, True) if turn % 2 else (True, False):
                if with_them:
                    with slow_clients(port, COUNT):
                        beside.append(_p99(port, pid, progress))
                        fewest = min(fewest, established_sockets(pid))
                else:
                    alone.append(_p99(port, pid, progress))
            progress(
                f"slow heads, round {turn + 1}/{rounds}: P99 {alone[-1]:.2f} ms alone, {beside[-1]:.2f} ms beside them"
            )
        page = get(port, "/metrics")[1].decode()
        cut_off = total(page, "headrace_refusals_total", 'reason="head_timeout"') or 0.0
    return figures(alone, beside, fewest, cut_off)


def figures(alone: Sequence[float], beside: Sequence[float], fewest: int, cut_off: float) -> list[Figure]:
    """Raises `RuntimeError` where the slow connections were not there, or not slow: then nothing was tried."""
    if fewest < 0.9 * COUNT:
        raise RuntimeError(f"only {fewest} slow connections were open")
    if not cut_off:
        raise RuntimeError("no slow connection was ended")
    rounds = tuple(mine - other for mine, other in zip(beside, alone, strict=True))
    return [
        Figure(
            topic="Slow heads",
            name=f"P99 added by {COUNT:,} slow connections",
            value=median_difference(beside, alone),
            unit="ms",
            bar=ADDED_P99_MS,
            detail=f"median of {len(rounds)} rounds, {min(rounds):.2f} to {max(rounds):.2f}; {RATE:.0f} plain calls/s",
            rounds=rounds,
        ),
        Figure(
            topic="Slow heads",
            name="P99 beside them",
            value=sorted(beside)[len(beside) // 2],
            unit="ms",
            detail=f"{sorted(alone)[len(alone) // 2]:.2f} ms without; {cut_off:.0f} were ended with 408",
        ),
    ]


def _p99(port: int, pid: int, progress: Callable[[str], None]) -> float:
    waited = run_queue_seconds(pid)
    outcome = run_job(Job(port=port, seconds=SECONDS, rate=RATE, timed=True))
    share = (run_queue_seconds(pid) - waited) / SECONDS
    progress(f"slow heads: the gateway waited {share:.1%} for a core, the load {outcome.starved_share:.1%}")
    return percentile(outcome.latencies_ms, 0.99)
