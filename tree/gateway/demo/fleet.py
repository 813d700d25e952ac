"""The emulated fleet, and the outages it is made to go through.

Four engines of batch 16 (110 ms + 5.25 ms per sequence for 20 tokens: the fit to a field table that `EngineSettings` explains) and four of batch 4
(60 ms + 6 ms). They live in the caller's event loop.

An outage: one engine closes its listener, finishes what it runs and closes each connection after it, as at a restart. The engines listen
on Unix sockets in a directory of their own: a port could be taken by somebody else during an outage.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from types import TracebackType

from gateway.demo.business import MODEL
from gateway.emulator.server import EmulatedServer, start
from gateway.emulator.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class PoolPlan:
    name: str
    engines: int
    max_num_seqs: int
    base_ms: float
    slope_ms: float

    @property
    def window(self) -> int:
        """Requests the gateway may have there at once: a batch."""
        return self.max_num_seqs


POOLS = (PoolPlan("high-batch", 4, 16, 110.0, 5.25), PoolPlan("low-latency", 4, 4, 60.0, 6.0))


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    plan: PoolPlan
    server: EmulatedServer

    @property
    def url(self) -> str:
        return f"unix://{self.server.uds}"


@dataclass(frozen=True, slots=True)
class Outage:
    """When engines fail, in seconds since the load began. `every_seconds` 0: once."""

    first_seconds: float
    seconds: float
    every_seconds: float

    def start_of(self, number: int) -> float | None:
        if number and not self.every_seconds:
            return None
        return self.first_seconds + number * self.every_seconds


def outages(run_seconds: float | None) -> Outage:
    """Around the middle of a short run; once a minute in one of a minute or more."""
    if run_seconds is None or run_seconds >= 60.0:
        return Outage(20.0, 8.0, 60.0)
    return Outage(run_seconds * 0.4, min(8.0, run_seconds * 0.25), 0.0)


class Fleet:
    """`async with Fleet(seed) as fleet`: eight engines that listen."""

    def __init__(self, seed: int) -> None:
        self.members: list[Member] = []
        self._seed = seed
        self._outages = 0
        self._sockets = tempfile.TemporaryDirectory(prefix="headrace-")

    @property
    def directory(self) -> str:
        """Where the engines' sockets are; removed at the end."""
        return self._sockets.name

    async def __aenter__(self) -> Fleet:
        try:
            for plan in POOLS:
                for number in range(1, plan.engines + 1):
                    await self._start(plan, f"{plan.name}-{number}")
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def next_to_fail(self) -> Member:
        # Steps of three over eight: both pools take part, and each engine has its turn.
        member = self.members[(1 + 3 * self._outages) % len(self.members)]
        self._outages += 1
        return member

    async def fail(self, member: Member, seconds: float) -> None:
        """Refuse connections for that long; returns when the engine takes them again."""
        member.server.refuse(seconds)
        await asyncio.sleep(seconds)

    async def _start(self, plan: PoolPlan, name: str) -> None:
        settings = EngineSettings(
            model=MODEL,
            seed=self._seed,
            max_num_seqs=plan.max_num_seqs,
            base_ms=plan.base_ms,
            slope_ms=plan.slope_ms,
        )
        server = await start(settings, "", 0, f"{self.directory}/{name}")
        self.members.append(Member(name, plan, server))

    async def _close(self) -> None:
        for member in self.members:
            await member.server.close()
        self._sockets.cleanup()
