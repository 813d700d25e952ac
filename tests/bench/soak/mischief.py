"""Makes the trouble of `trouble`, several at a time, and takes each back."""

from __future__ import annotations

import asyncio
from random import Random

from tests.bench.soak.configuration import PATIENCE_SECONDS
from tests.bench.soak.engines import HEALTHY, Engine
from tests.bench.soak.page import counters
from tests.bench.soak.stage import Stage
from tests.bench.soak.trouble import Act, Kind, Spans, Trouble, order

PAUSE_SECONDS = (0.5, 3.0)
LASTS_SECONDS = (0.5, 4.0)
MOST_BROKEN = 2
"""Engines at a time: half of them."""


class Mischief:
    def __init__(self, stage: Stage, spans: Spans, chance: Random) -> None:
        self.reloads = {"whole": 0, "smaller": 0, "bad": 0}
        self._stage = stage
        self._spans = spans
        self._chance = chance
        self._redis = asyncio.Lock()
        self._reloading = asyncio.Lock()
        self._broken: set[str] = set()

    async def go_on_until(self, over: asyncio.Event) -> None:
        """Everything is well again when it returns."""
        troubles = order(self._chance)
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                group.create_task(self._make(next(troubles)))
                try:
                    async with asyncio.timeout(self._chance.uniform(*PAUSE_SECONDS)):
                        await over.wait()
                except TimeoutError:
                    pass
        if self._stage.clock.environment:
            self._stage.clock.step(0)
        await self._reload("whole")

    async def _make(self, trouble: Trouble) -> None:
        if trouble.kind is Kind.ENGINE:
            well = [engine for engine in self._stage.engines if engine.name not in self._broken]
            if len(self._broken) < MOST_BROKEN:
                await self._break(self._chance.choice(well), trouble)
        elif trouble.kind is Kind.REDIS:
            async with self._redis:
                await self._take_redis_away(trouble)
        elif trouble.kind is Kind.RELOAD:
            self._end_at_once(trouble)
            await self._reload(trouble.argument)
        elif self._stage.clock.environment:
            self._end_at_once(trouble)
            self._stage.clock.step(int(trouble.argument))

    def _end_at_once(self, trouble: Trouble) -> None:
        now = asyncio.get_running_loop().time()
        self._spans.begin(trouble, "", now).ended = now

    async def _break(self, engine: Engine, trouble: Trouble) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._chance.uniform(*LASTS_SECONDS)
        self._broken.add(engine.name)
        span = self._spans.begin(trouble, engine.name, loop.time())
        if trouble.act is Act.SWITCH:
            await asyncio.to_thread(engine.switch, trouble.faults)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(engine.switch, HEALTHY)
        elif trouble.act is Act.REFUSE:
            await asyncio.to_thread(engine.switch, {"refuse": seconds})
            await asyncio.sleep(seconds + 0.5)
        elif trouble.act is Act.FREEZE:
            engine.freeze()
            await asyncio.sleep(seconds)
            engine.thaw()
        else:
            await asyncio.to_thread(engine.kill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(engine.start)
        span.ended = loop.time()
        self._broken.discard(engine.name)

    async def _take_redis_away(self, trouble: Trouble) -> None:
        redis = self._stage.redis
        loop = asyncio.get_running_loop()
        span = self._spans.begin(trouble, "redis", loop.time())
        seconds = self._chance.uniform(*LASTS_SECONDS)
        if trouble.act is Act.FREEZE:
            redis.freeze()
            await asyncio.sleep(seconds)
            redis.thaw()
        else:
            await asyncio.to_thread(redis.kill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(redis.start_again)
        span.ended = loop.time()

    async def _reload(self, name: str) -> None:
        """One after another: of two signals at once the gateway makes one reload. It may be as slow as a busy machine makes it."""
        async with self._reloading:
            self.reloads[name] += 1
            self._stage.reload(name)
            wanted = sum(self.reloads.values())
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await self._reloads_counted() < wanted:  # noqa: ASYNC110  # another process's
                    await asyncio.sleep(0.2)

    async def _reloads_counted(self) -> int:
        try:
            found = counters(await asyncio.to_thread(self._stage.page))
        except TimeoutError:  # of a busy machine; asked again
            return 0
        return found["reloads"] + found["bad reloads"]
