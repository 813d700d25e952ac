"""Clients that wait for slots, and an engine that answers each when the test lets it: what tests of the queue are played on."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from tests import client
from tests.backend import Backend, Gate, Request, Script
from tests.emulator.running import until
from tests.running import Running

Header = tuple[bytes, bytes]

INTERACTIVE: Header = (b"x-headrace-lane", b"interactive")
BATCH: Header = (b"x-headrace-lane", b"batch")


class Held:
    """An engine that answers request `n` when the test lets it."""

    def __init__(self) -> None:
        self.gates: dict[int, Gate] = {}
        self.backend = Backend(self._script)

    def _script(self, request: Request) -> Script:
        return Script(before_head=self._gate(request.json()["n"]), chunks=[b"{}"])

    def _gate(self, number: int) -> Gate:
        return self.gates.setdefault(number, Gate())

    def let(self, *numbers: int) -> None:
        for number in numbers:
            self._gate(number).set()

    async def serve(self, count: int) -> None:
        """The first `count` requests, each as soon as it has come."""
        for served in range(1, count + 1):
            await self.backend.until(partial(self._have_come, served))
            await self.backend.exchanges[-1].body_complete.wait()
            self.let(self.order[-1])

    def _have_come(self, count: int) -> bool:
        return len(self.backend.exchanges) == count

    @property
    def order(self) -> list[int]:
        """Who has reached the engine."""
        return [exchange.request.json()["n"] for exchange in self.backend.exchanges]

    async def has(self, *numbers: int) -> None:
        def arrived() -> bool:
            ready = [one for one in self.backend.exchanges if one.body_complete.is_set()]
            return len(ready) == len(self.backend.exchanges) == len(numbers)

        await self.backend.until(arrived)
        assert self.order == list(numbers)


class Crowd:
    """Clients that have sent and wait for their answers."""

    def __init__(self, gateway: Running, stack: AsyncExitStack) -> None:
        self._gateway = gateway
        self._stack = stack
        self._connections: dict[int, client.Connection] = {}

    async def send(self, number: int, *headers: Header, text: str = "") -> None:
        """Returns when the request runs or waits."""
        router = self._gateway.gateway.router
        inside = router.in_flight + router.waiting
        self._connections[number] = await self._stack.enter_async_context(
            await self._gateway.begin(question(number, text), headers=headers)
        )
        await until(lambda: router.in_flight + router.waiting == inside + 1)

    async def answer(self, number: int) -> client.Answer:
        return await self._connections[number].read_answer()

    async def route(self, number: int) -> dict[str, str]:
        return route(await self.answer(number))


def route(answer: client.Answer) -> dict[str, str]:
    assert answer.status == 200, answer.body
    parts = (answer.value(b"x-headrace-route") or b"").decode().split(";")
    return dict(part.split("=", 1) for part in parts)


def question(number: int, text: str = "") -> dict[str, Any]:
    return {"n": number, "messages": [{"role": "user", "content": text}]}


def assert_refused(answer: client.Answer, status: int, reason: bytes) -> None:
    assert (answer.status, answer.value(b"x-headrace-reason")) == (status, reason)
    assert json.loads(answer.body)["error"]["code"] == status


async def clock_passes(seconds: float) -> None:
    clock = asyncio.get_running_loop().time
    start = clock()
    await until(lambda: clock() > start + seconds)
