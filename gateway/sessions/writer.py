"""What a request asks of whoever writes turns for it, and the writer for the store in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from gateway.sessions.memory import MemoryStore
from gateway.sessions.store import Append, Appended, SessionKey


class TurnWriter(Protocol):
    def append(self, append: Append) -> asyncio.Future[Appended]:
        """Never waits. The future ends with `StoreUnavailable` where the turn was not taken."""

    def pending(self, key: SessionKey) -> Awaitable[Any] | None:
        """Done, or failed, when the last turn of this session that is on its way has been written; None where there is none."""


class DirectWriter:
    """None is ever on its way: a turn is there when `append` returns, however busy the loop is."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def append(self, append: Append) -> asyncio.Future[Appended]:
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        done.set_result(self._store.take(append))
        return done

    def pending(self, key: SessionKey) -> None:
        return None
