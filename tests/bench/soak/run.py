"""One soak on a stage: quiet, then load and trouble, load alone, then quiet again, and what is different."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from tests.bench.soak.explain import RECOVERY_SECONDS
from tests.bench.soak.ledger import Ledger
from tests.bench.soak.machine import Cores
from tests.bench.soak.mischief import Mischief
from tests.bench.soak.page import counters
from tests.bench.soak.requests import Requests
from tests.bench.soak.stage import Stage
from tests.bench.soak.traffic import traffic
from tests.bench.soak.trouble import Spans

WARM_UP_SECONDS = 25.0
CALM_SECONDS = RECOVERY_SECONDS + 15.0
"""Of load without trouble at the end: in the last half nothing but a fault of the gateway's own could be short."""
QUIET_SECONDS = 12.0
"""Longer than idle connections live on either side, and than a circuit stays open."""
SETTLE_SECONDS = 60.0
"""Afterwards levels get so long to come back."""
REPORT_SECONDS = 15.0
MEMORY_SECONDS = 5.0


class Resident(NamedTuple):
    """How much memory after how many calls."""

    calls: int
    mb: float


@dataclass(frozen=True, slots=True)
class Found:
    seconds: float
    ledger: Ledger
    spans: Spans
    counters: Mapping[str, int]
    reloads: Mapping[str, int]
    before: Mapping[str, float]
    after: Mapping[str, float]
    memory: list[Resident]
    """Before, every `MEMORY_SECONDS`, and after."""
    store_connections: int
    """At the end."""
    waited_seconds: Mapping[str, float]
    """For a core, by process."""
    tracebacks: int


async def soak(stage: Stage, seconds: float, seed: int, progress: Callable[[str], None]) -> Found:
    loop = asyncio.get_running_loop()
    chance = Random(seed)
    spans = Spans()
    ledger = Ledger(spans, progress)
    cores = Cores(spans, stage.processes)
    requests = Requests(stage.port, chance)
    mischief = Mischief(stage, spans, chance)
    async with _lines_read(stage, ledger), _beside(cores.watch()):
        await _phase(WARM_UP_SECONDS, lambda over: traffic(stage.port, ledger, chance, requests, over))
        await asyncio.sleep(QUIET_SECONDS)
        before = await asyncio.to_thread(stage.levels)
        memory = [_resident(stage, ledger)]
        progress(f"before: {shown(before)}, {memory[0].mb:.1f} MB")
        began = loop.time()

        async def both(over: asyncio.Event) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(traffic(stage.port, ledger, chance, requests, over))
                group.create_task(mischief.go_on_until(over))
                group.create_task(_watch(stage, ledger, memory, over, progress))

        await _phase(seconds, both)
        progress(f"calm: {CALM_SECONDS:.0f} s of load alone")
        await _phase(CALM_SECONDS, lambda over: traffic(stage.port, ledger, chance, requests, over))
        after = await _settled(stage, before)
        await asyncio.sleep(1.0)  # the log's last batch
        taken = loop.time() - began
        memory.append(_resident(stage, ledger))
        progress(f"after:  {shown(after)}, {memory[-1].mb:.1f} MB")
        if after["descriptors"] > before["descriptors"]:
            kinds = await asyncio.to_thread(stage.kinds_of_descriptors)
            progress(f"open:   {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}")
        found_counters = counters(await asyncio.to_thread(stage.page))
        connections = stage.store_connections()
    tracebacks = stage.errors.read_text(errors="replace").count("Traceback (most recent call last)")
    return Found(
        taken,
        ledger,
        spans,
        found_counters,
        mischief.reloads,
        before,
        after,
        memory,
        connections,
        cores.waited_seconds,
        tracebacks,
    )


def _resident(stage: Stage, ledger: Ledger) -> Resident:
    return Resident(ledger.kinds.total(), stage.resident_mb())


def shown(levels: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in levels.items())


async def _phase(seconds: float, run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await run(over)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Does the work for as long as the block runs; one that failed before fails the block."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()


async def _watch(
    stage: Stage, ledger: Ledger, memory: list[Resident], over: asyncio.Event, progress: Callable[[str], None]
) -> None:
    rounds = 0
    while not over.is_set():
        try:
            async with asyncio.timeout(MEMORY_SECONDS):
                await over.wait()
        except TimeoutError:
            memory.append(_resident(stage, ledger))
            rounds += 1
            if rounds % (REPORT_SECONDS // MEMORY_SECONDS) == 0:
                progress(
                    f"{ledger.kinds.total():,} calls, {ledger.lines:,} lines, {memory[-1].mb:.1f} MB, "
                    f"{ledger.unexplained.count} unexplained, {ledger.disagreeing.count} that disagree"
                )


async def _settled(stage: Stage, wanted: Mapping[str, float]) -> dict[str, float]:
    """The levels, once none is above those wanted or time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS
    while True:
        found = await asyncio.to_thread(stage.levels)
        if all(found[name] <= value for name, value in wanted.items()) or loop.time() > deadline:
            return found
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _lines_read(stage: Stage, ledger: Ledger) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stage.gateway.stdout)

    async def read() -> None:
        while line := await reader.readline():
            ledger.gateway_wrote(line, loop.time())

    try:
        async with _beside(read()):
            yield
    finally:
        pipe.close()
