"""What a request asks of whoever writes turns for it, and the writer for a store that is at hand: each turn at once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from gateway.sessions.store import Append, Appended, SessionKey, SessionStore


class TurnWriter(Protocol):
    def append(self, append: Append) -> asyncio.Future[Appended]:
        """Never waits. The future ends with `StoreUnavailable` where the turn was not taken."""

    def pending(self, key: SessionKey) -> Awaitable[Any] | None:
        """Done, or failed, when the last turn of this session that is on its way has been written; None where there is none."""


class DirectWriter:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._last: dict[SessionKey, asyncio.Task[Appended]] = {}
        """Of each session with a turn on its way."""

    def append(self, append: Append) -> asyncio.Future[Appended]:
        key = append.key
        task = asyncio.create_task(self._append(append, self._last.get(key)))
        self._last[key] = task
        task.add_done_callback(lambda done: self._written(key, done))
        return task

    def pending(self, key: SessionKey) -> Awaitable[Any] | None:
        return self._last.get(key)

    async def _append(self, append: Append, before: asyncio.Task[Appended] | None) -> Appended:
        if before is not None:
            await asyncio.wait([before])
        [appended] = await self._store.append([append])
        return appended

    def _written(self, key: SessionKey, task: asyncio.Task[Appended]) -> None:
        if self._last.get(key) is task:
            del self._last[key]
