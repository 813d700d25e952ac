"""The fleet that everyone is measured against: eight emulated engines in one process, `python -m tests.bench.slo.fleet PORT ...`.

Four of batch 16 with 110 ms + 5.25 ms per sequence for an answer of 20 tokens, and four of batch 4 with 60 ms + 6 ms.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway.emulator.settings import EngineSettings
from tests.bench.children import free_port, running
from tests.bench.engines_child import KEEP_ALIVE_SECONDS, started, told_to_end
from tests.bench.slo.requests import MODEL


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    engines: int
    max_num_seqs: int
    base_ms: float
    slope_ms: float


POOLS = (Pool("high-batch", 4, 16, 110.0, 5.25), Pool("low-latency", 4, 4, 60.0, 6.0))


@dataclass(frozen=True, slots=True)
class Engine:
    pool: Pool
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def fleet_running(log: Path) -> Iterator[tuple[list[Engine], int]]:
    """(engines, pid of them all)"""
    engines = [Engine(pool, free_port()) for pool in POOLS for _ in range(pool.engines)]
    argv = [sys.executable, "-m", "tests.bench.slo.fleet", *(str(engine.port) for engine in engines)]
    with running(argv, engines[-1].port, "/health", log) as pid:
        yield engines, pid


async def _serve(ports: list[int]) -> None:
    stop = told_to_end()
    pools = [pool for pool in POOLS for _ in range(pool.engines)]
    settings = [
        EngineSettings(
            model=MODEL,
            seed=number,
            max_num_seqs=pool.max_num_seqs,
            base_ms=pool.base_ms,
            slope_ms=pool.slope_ms,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
        )
        for number, pool in enumerate(pools)
    ]
    await started(settings, ports)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(_serve([int(port) for port in sys.argv[1:]]))
