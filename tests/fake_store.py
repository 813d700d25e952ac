"""A session store that can be in any trouble, over one in memory.

`freeze`: calls are received and not answered; `thaw` does them all in their order, also those whose callers have left, as a server does that was stopped. `fault`:
each call fails with it and nothing is done. `lost_replies`: that many next calls are done and then fail. `delay_seconds`: each call takes that on the loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gateway.sessions.memory import MemoryStore
from gateway.sessions.store import (
    Append,
    Appended,
    Home,
    ResponseOwner,
    SessionKey,
    StoreFault,
    StoreUnavailable,
    Window,
)
from policies.session_window import WindowRules

Value = TypeVar("Value")


class FakeStore:
    def __init__(self, clock: Callable[[], float], rules: WindowRules | None = None) -> None:
        self.inner = MemoryStore(
            rules or WindowRules(max_turns=1000), max_sessions=1000, max_bytes=1 << 30, clock=clock
        )
        self.calls: list[str] = []
        self.batches: list[list[str]] = []
        """The turn ids of each append, the keys of each `set_homes`."""
        self.fault: StoreFault | None = None
        self.error: Exception | None = None
        self.lost_replies = 0
        self.delay_seconds = 0.0
        self.is_closed = False
        self._received: list[Callable[[], Awaitable[object]]] | None = None
        self._thawed = asyncio.Event()

    def freeze(self) -> None:
        self._received = []
        self._thawed.clear()

    async def thaw(self) -> None:
        received, self._received = self._received or [], None
        for done in received:
            await done()
        self._thawed.set()

    async def window(self, key: SessionKey) -> Window:
        return await self._do("window", lambda: self.inner.window(key))

    async def append(self, appends: Sequence[Append]) -> list[Appended]:
        self.batches.append([one.turn.id for one in appends])
        return await self._do("append", lambda: self.inner.append(appends))

    async def delete(self, key: SessionKey) -> bool:
        return await self._do("delete", lambda: self.inner.delete(key))

    async def home(self, key: SessionKey) -> Home | None:
        return await self._do("home", lambda: self.inner.home(key))

    async def set_homes(self, homes: Sequence[tuple[SessionKey, Home, float]]) -> None:
        self.batches.append([key for key, _, _ in homes])
        await self._do("set_homes", lambda: self.inner.set_homes(homes))

    async def response(self, response_id: str) -> ResponseOwner | None:
        return await self._do("response", lambda: self.inner.response(response_id))

    async def set_responses(self, responses: Sequence[tuple[str, ResponseOwner, float]]) -> None:
        await self._do("set_responses", lambda: self.inner.set_responses(responses))

    async def ping(self) -> None:
        await self._do("ping", self.inner.ping)

    async def close(self) -> None:
        self.is_closed = True

    async def _do(self, name: str, done: Callable[[], Awaitable[Value]]) -> Value:
        self.calls.append(name)
        if self._received is not None:
            self._received.append(done)
            await self._thawed.wait()
        if self.delay_seconds:
            await asyncio.sleep(self.delay_seconds)
        if self.error is not None:
            raise self.error
        if self.fault is not None:
            raise StoreUnavailable(self.fault)
        value = await done()
        if self.lost_replies:
            self.lost_replies -= 1
            raise StoreUnavailable(StoreFault.CONNECTION)
        return value
