"""The emulated fleet, and how much it can do.

Four engines of batch 8 (110 ms + 5.25 ms per sequence for 20 tokens: the fit to a field table that `EngineSettings` explains) and four of batch 4
(60 ms + 6 ms). They live in the caller's event loop.

Their steps are slowed down by `time_scale`, so that a load that two cores can make and carry fills them: with the lengths of `business` and the default of 2
they answer some 80 requests per second, which is `NOMINAL_SHARE` of the field's peak. Another load asks for engines that are faster or
slower in proportion, within `TIME_SCALES`; outside of it the phases' words no longer fit what happens.

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


NOMINAL_SHARE = 0.04
NOMINAL_TIME_SCALE = 2.0
TIME_SCALES = (0.25, 4.0)
POOLS = (PoolPlan("high-batch", 4, 8, 110.0, 5.25), PoolPlan("low-latency", 4, 4, 60.0, 6.0))


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    plan: PoolPlan
    server: EmulatedServer

    @property
    def url(self) -> str:
        return f"unix://{self.server.uds}"


def time_scale(share_of_peak: float) -> float:
    slowest, fastest = max(TIME_SCALES), min(TIME_SCALES)
    return min(slowest, max(fastest, NOMINAL_TIME_SCALE * NOMINAL_SHARE / share_of_peak))


class Fleet:
    """`async with Fleet(seed, share_of_peak) as fleet`: eight engines that listen."""

    def __init__(self, seed: int, share_of_peak: float = NOMINAL_SHARE) -> None:
        self.members: list[Member] = []
        self._seed = seed
        self._time_scale = time_scale(share_of_peak)
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

    @property
    def to_fail(self) -> Member:
        """Whose loss costs most: an engine of the pool with the larger batches."""
        return self.members[1]

    async def fail(self, member: Member, seconds: float) -> None:
        """Refuse connections for that long; returns when the engine takes them again."""
        member.server.refuse(seconds)
        await asyncio.sleep(seconds)

    async def _start(self, plan: PoolPlan, name: str) -> None:
        settings = EngineSettings(
            model=MODEL,
            seed=self._seed,
            time_scale=self._time_scale,
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
