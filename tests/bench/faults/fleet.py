"""The fleet that everyone is measured against: eight equal emulated engines in one process, `python -m tests.bench.faults.fleet FILE PORT ...`.

Batch 12, 320 ms + 8 ms per sequence for an answer of 20 tokens. FILE holds the changes of a case (`cases`); each SIGUSR1 makes the next of them. At the end
FILE has in their place when each was made and every call that arrived: the number that the load gave it, or none for one that the load did not make (a canary).
The ports are none that the system gives to outgoing connections, so that an engine that did not listen for a while finds its own free.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import sample
from typing import Any, NamedTuple

import uvloop

from gateway.emulator.connection import Connection, Request
from gateway.emulator.server import EmulatedServer
from gateway.emulator.settings import RESIDENCE_TOKENS, EngineSettings
from tests.bench.children import running
from tests.bench.engines_child import KEEP_ALIVE_SECONDS, told_to_end
from tests.bench.faults.cases import DEAD, ENGINES, REFUSE, Change
from tests.bench.slo.fleet import Engine, Pool
from tests.bench.slo.requests import MODEL

POOL = Pool("fleet", engines=ENGINES, max_num_seqs=12, base_ms=320.0, slope_ms=8.0)
OUTPUT_TOKENS = RESIDENCE_TOKENS
MOST_PER_SECOND = ENGINES * POOL.max_num_seqs / (POOL.base_ms + POOL.slope_ms * POOL.max_num_seqs) * 1000
"""Answers of the whole fleet with full batches."""
NOT_OURS = -1
_PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections."""
_NUMBER = re.compile(rb"call-(\d+) ")


class Arrival(NamedTuple):
    at: float
    """By the monotonic clock."""
    engine: int
    call: int


@dataclass(slots=True)
class Seen:
    changed_at: list[float] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fleet:
    engines: list[Engine]
    pid: int
    file: Path

    def seen(self) -> Seen:
        """Once the fleet has ended."""
        found = json.loads(self.file.read_text())
        return Seen(found["changed_at"], [Arrival(*one) for one in found["arrivals"]])


@contextlib.contextmanager
def fleet_running(home: Path, changes: Sequence[Change]) -> Iterator[Fleet]:
    engines = [Engine(POOL, port) for port in free_ports(ENGINES)]
    file = home / "fleet.json"
    file.write_text(json.dumps([asdict(change) for change in changes]))
    argv = [sys.executable, "-m", "tests.bench.faults.fleet", str(file)]
    argv += [str(engine.port) for engine in engines]
    with running(argv, engines[-1].port, "/health", home / "fleet.log") as pid:
        yield Fleet(engines, pid, file)


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no ports are free")


def number_of(body: bytes) -> int:
    """That the load wrote into a call."""
    found = _NUMBER.search(body)
    return int(found[1]) if found else NOT_OURS


class WatchedServer(EmulatedServer):
    """Notes every call before anything is done with it."""

    def __init__(self, engine: int, port: int, seen: Seen) -> None:
        super().__init__(_settings(engine), "127.0.0.1", port, "")
        self._number = engine
        self._seen = seen

    def handle(self, request: Request, connection: Connection) -> None:
        if request.method == b"POST" and request.path.startswith(b"/v1/"):
            self._seen.arrivals.append(Arrival(time.monotonic(), self._number, number_of(request.body)))
        super().handle(request, connection)

    async def change(self, faults: Mapping[str, Any]) -> None:
        """Exactly these from now on; none makes it well again. A dead one stays so: it is to be replaced."""
        self.faults.clear()
        if faults.get(DEAD):
            await self.close()
        elif faults.get(REFUSE):
            self.refuse()
        else:
            self.faults.update(faults)
            await self.listen()


def _settings(engine: int) -> EngineSettings:
    return EngineSettings(
        model=MODEL,
        seed=engine,
        max_num_seqs=POOL.max_num_seqs,
        base_ms=POOL.base_ms,
        slope_ms=POOL.slope_ms,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
    )


class Stage:
    """The engines and the changes that are still to come."""

    def __init__(self, ports: Sequence[int], changes: Sequence[Change]) -> None:
        self.seen = Seen()
        self.servers = [WatchedServer(number, port, self.seen) for number, port in enumerate(ports)]
        self._changes = iter(changes)
        self._are_dead = False

    async def begin(self) -> None:
        for server in self.servers:
            await server.listen()

    async def next_change(self) -> None:
        change = next(self._changes)
        self.seen.changed_at.append(time.monotonic())
        for number in range(change.engines):
            if self._are_dead:
                self.servers[number] = WatchedServer(number, self.servers[number].port, self.seen)
            await self.servers[number].change(change.faults)
        self._are_dead = bool(change.faults.get(DEAD))


async def serve(changes: Sequence[Change], ports: Sequence[int]) -> Seen:
    stop = told_to_end()
    stage = Stage(ports, changes)
    await stage.begin()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    loop.add_signal_handler(signal.SIGUSR1, lambda: tasks.append(loop.create_task(stage.next_change())))
    await stop.wait()
    for task in tasks:
        await task
    return stage.seen


def main() -> None:
    file = Path(sys.argv[1])
    changes = [Change(**change) for change in json.loads(file.read_text())]
    seen = uvloop.run(serve(changes, [int(port) for port in sys.argv[2:]]))
    file.write_text(json.dumps(asdict(seen)))


if __name__ == "__main__":
    main()
