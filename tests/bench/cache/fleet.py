"""The fleet that everyone is measured against: eight equal emulated engines in one process, `python -m tests.bench.cache.fleet FILE PORT ...`.

Batch 8, 110 ms + 5.25 ms per sequence for an answer of 20 tokens, and 20,000 prompt tokens per second: a prompt of 2,000 tokens that is not in
the cache costs 100 ms of its engine's time, most of a whole answer, for everyone in the batch. The prefix cache holds 36,864 tokens per engine, which
all together is about half of the working set (`working_set`).

On SIGUSR1 engine `RESTARTED` is replaced: its connections are closed, `DOWN_SECONDS` later a new one with an empty cache listens on the same port.
Loads and cache counters of all engines are sampled every `INTERVAL_SECONDS`, and written to FILE at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from gateway.emulator.server import EmulatedServer, start
from gateway.emulator.settings import EngineSettings
from tests.bench.cache.samples import INTERVAL_SECONDS, Samples
from tests.bench.children import free_port, running
from tests.bench.engines_child import KEEP_ALIVE_SECONDS, started, told_to_end
from tests.bench.slo.fleet import Engine, Pool
from tests.bench.slo.requests import MODEL

POOL = Pool("fleet", engines=8, max_num_seqs=8, base_ms=110.0, slope_ms=5.25)
KV_BLOCKS = 2304
PREFILL_TOKENS_PER_SECOND = 20_000.0
MAX_MODEL_LEN = 16_384
RESTARTED = 2
DOWN_SECONDS = 1.0


def settings(number: int) -> EngineSettings:
    return EngineSettings(
        model=MODEL,
        seed=number,
        max_num_seqs=POOL.max_num_seqs,
        base_ms=POOL.base_ms,
        slope_ms=POOL.slope_ms,
        prefill_tokens_per_second=PREFILL_TOKENS_PER_SECOND,
        kv_blocks=KV_BLOCKS,
        max_model_len=MAX_MODEL_LEN,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
    )


@dataclass(frozen=True, slots=True)
class Fleet:
    engines: list[Engine]
    pid: int
    file: Path

    def samples(self) -> Samples:
        """Once the fleet has ended."""
        return Samples(**json.loads(self.file.read_text()))


@contextlib.contextmanager
def fleet_running(home: Path) -> Iterator[Fleet]:
    engines = [Engine(POOL, free_port()) for _ in range(POOL.engines)]
    file = home / "samples.json"
    argv = [sys.executable, "-m", "tests.bench.cache.fleet", str(file)]
    argv += [str(engine.port) for engine in engines]
    with running(argv, engines[-1].port, "/health", home / "fleet.log") as pid:
        yield Fleet(engines, pid, file)


class Watched:
    """The engines, one of which may be replaced, and their samples."""

    def __init__(self, servers: list[EmulatedServer]) -> None:
        self._servers = servers
        self.samples = Samples([], [], [], [])

    def sample(self) -> None:
        measured = [server.engine.measurements for server in self._servers]
        self.samples.at.append(time.monotonic())
        self.samples.loads.append([server.engine.load for server in self._servers])
        self.samples.queries.append([one.prefix_queries for one in measured])
        self.samples.hits.append([one.prefix_hits for one in measured])

    async def sample_always(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def replace(self, number: int, down_seconds: float) -> None:
        old = self._servers[number]
        await old.close()
        await asyncio.sleep(down_seconds)
        self._servers[number] = await start(old.settings, old.host, old.port)


async def _serve(ports: list[int]) -> Samples:
    stop = told_to_end()
    watched = Watched(await started([settings(number) for number in range(len(ports))], ports))
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(watched.sample_always())]
    loop.add_signal_handler(
        signal.SIGUSR1, lambda: tasks.append(loop.create_task(watched.replace(RESTARTED, DOWN_SECONDS)))
    )
    await stop.wait()
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    return watched.samples


def main() -> None:
    file, *ports = sys.argv[1:]
    samples = uvloop.run(_serve([int(port) for port in ports]))
    Path(file).write_text(json.dumps(asdict(samples)))


if __name__ == "__main__":
    main()
