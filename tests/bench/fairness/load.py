"""Makes the tenants' calls and notes every answer: one connection per client of a closed loop, idle ones or new ones for an open loop.

Bounds: a call that is not answered in `PATIENCE_SECONDS` ends its connection and counts as lost. A refused client of a closed loop calls again after
`REFUSED_PAUSE_SECONDS`. Timers of the loop have a resolution of 1 ms.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.bench.fairness.shares import Answer
from tests.bench.fairness.tenants import Bodies, Tenant
from tests.bench.slo.exchange import queue_ms

PATIENCE_SECONDS = 20.0
REFUSED_PAUSE_SECONDS = 0.1
_LINE_LIMIT = 1 << 20
LOST = 0
"""In the place of a status."""


@dataclass(slots=True)
class Outcome:
    answers: list[Answer] = field(default_factory=list)
    others: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(tenant, status) of what was no answer."""

    def lost(self) -> int:
        return sum(count for (_, status), count in self.others.items() if status == LOST)

    def refused(self, tenant: str) -> int:
        return sum(
            count for (name, status), count in self.others.items() if name == tenant and status != LOST
        )


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Load:
    """On one port; several make the load of several engines without a gateway."""

    def __init__(self, port: int, tenants: Sequence[Tenant], seed: int, outcome: Outcome) -> None:
        self._port = port
        self._tenants = tenants
        self._seed = seed
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._idle: list[_Connection] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def run(self, over: Awaitable[None]) -> None:
        """Until `over` is done; calls that are under way then are left."""
        for tenant in self._tenants:
            chance = Random(f"{self._seed} {tenant.name} {self._port}")
            bodies = Bodies(tenant, self._port, chance)
            for _ in range(tenant.clients):
                self._go(self._client(tenant, bodies))
            if tenant.rate:
                self._go(self._arrivals(tenant, bodies, chance))
        try:
            await over
            for task in self._calls:
                if task.done() and not task.cancelled() and task.exception() is not None:
                    await task
        finally:
            for task in self._calls:
                task.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            for one in self._idle:
                one.writer.transport.abort()

    def _go(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A failure of the generator itself is kept, for `run` to raise."""
        if task.cancelled() or task.exception() is None:
            self._calls.discard(task)

    async def _client(self, tenant: Tenant, bodies: Bodies) -> None:
        while True:
            if await self._call(tenant, bodies.make()) != 200:
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)

    async def _arrivals(self, tenant: Tenant, bodies: Bodies, chance: Random) -> None:
        due = self._began
        while True:
            due += chance.expovariate(tenant.rate)
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            self._go(self._one(tenant, bodies.make()))

    async def _one(self, tenant: Tenant, request: bytes) -> None:
        await self._call(tenant, request)

    async def _call(self, tenant: Tenant, request: bytes) -> int:
        """The status."""
        connection: _Connection | None = None
        status, head, body = LOST, b"", b""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                connection = await self._connection()
                connection.writer.write(request)
                status, head, body = await _answer(connection.reader)
        except (OSError, EOFError, TimeoutError):
            status = LOST
        finally:
            if connection is not None:
                if status == LOST or connection.reader.at_eof():
                    connection.writer.transport.abort()
                else:
                    self._idle.append(connection)
        if status == 200:
            self._note(tenant, head, body)
        else:
            self._outcome.others[tenant.name, status] += 1
        return status

    async def _connection(self) -> _Connection:
        while self._idle:
            found = self._idle.pop()
            if not found.reader.at_eof():
                return found
            found.writer.transport.abort()
        return _Connection(*await asyncio.open_connection("127.0.0.1", self._port, limit=_LINE_LIMIT))

    def _note(self, tenant: Tenant, head: bytes, body: bytes) -> None:
        usage = json.loads(body)["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        self._outcome.answers.append(
            Answer(
                tenant.name,
                self._loop.time() - self._began,
                usage["prompt_tokens"],
                cached,
                usage["completion_tokens"],
                queue_ms(head),
            )
        )


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """(status, head, body) of an answer with a length, or in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at >= 0:
        length = int(lower[at + 17 :].split(b"\r\n", 1)[0])
        return int(head[9:12]), head, await reader.readexactly(length)
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return int(head[9:12]), head, body


async def loaded(tenants_of: Sequence[tuple[int, Sequence[Tenant]]], seconds: float, seed: int) -> Outcome:
    """(port, tenants that call there) ..., all at once."""
    outcome = Outcome()
    loads = [Load(port, tenants, seed, outcome) for port, tenants in tenants_of]
    gc.collect()
    gc.freeze()
    await asyncio.gather(*(load.run(asyncio.sleep(seconds)) for load in loads))
    return outcome
