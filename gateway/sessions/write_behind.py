"""What requests leave for the store, written behind them in batches.

`put_home` and `put_response` cost a dictionary entry; of several homes of one session the newest is written. They leave `BATCH_SECONDS` after the first of
them. An `append` leaves in the next turn of the loop, since the client's next request may come through another gateway, with all that wait by then; those of
one session keep their order. One task writes, and only while there is something to write. What fails is written again, whole: the store knows each turn by its
id, so nothing is there twice. While the guard's breaker is open nothing is tried; its end starts the writing.

Bounds: `max_queued` writes and `MAX_QUEUED_BYTES` of turns. Beyond them homes go first (an affinity is lost, no more), then responses, then the
oldest turns; so do turns older than `MAX_AGE_SECONDS`. What went is counted in `dropped`, and an append that went ends with `StoreUnavailable`.
Setting: `sessions.max_queued_writes`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from itertools import islice

from gateway.sessions.guarded_store import GuardedStore
from gateway.sessions.store import (
    Append,
    Appended,
    Home,
    ResponseOwner,
    SessionKey,
    StoreFault,
    StoreUnavailable,
)

BATCH_SECONDS = 0.005
BATCH_WRITES = 256
MAX_QUEUED_BYTES = 64 * 1024 * 1024
MAX_AGE_SECONDS = 60.0
RETRY_SECONDS = 0.05
KINDS = ("home", "response", "turn")

Pending = tuple[Append, "asyncio.Future[Appended]", float]


class WriteBehind:
    def __init__(self, store: GuardedStore, max_queued: int) -> None:
        """Needs a running event loop."""
        self._store = store
        self._max_queued = max_queued
        self._loop = asyncio.get_running_loop()
        self._homes: dict[SessionKey, tuple[Home, float]] = {}
        self._responses: dict[str, tuple[ResponseOwner, float]] = {}
        self._turns: deque[Pending] = deque()
        self._turn_bytes = 0
        self._of: dict[SessionKey, asyncio.Future[Appended]] = {}
        """The last turn of each session that waits."""
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._writer: asyncio.Task[None] | None = None
        self.dropped: Counter[str] = Counter()
        store.on_closed = self._start

    @property
    def queued(self) -> int:
        return len(self._homes) + len(self._responses) + len(self._turns)

    def put_home(self, key: SessionKey, home: Home, ttl_seconds: float) -> None:
        self._homes.pop(key, None)
        self._homes[key] = home, ttl_seconds
        self._bound()
        self._start_in(BATCH_SECONDS)

    def put_response(self, response_id: str, owner: ResponseOwner, ttl_seconds: float) -> None:
        self._responses[response_id] = owner, ttl_seconds
        self._bound()
        self._start_in(BATCH_SECONDS)

    def append(self, append: Append) -> asyncio.Future[Appended]:
        """What became of it, for whoever wants to know."""
        future: asyncio.Future[Appended] = self._loop.create_future()
        future.add_done_callback(_look_at)
        self._turns.append((append, future, self._loop.time()))
        self._turn_bytes += _size(append)
        self._of[append.key] = future
        self._bound()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._start_in(0.0)
        return future

    def pending(self, key: SessionKey) -> asyncio.Future[Appended] | None:
        """The last turn of a session that is not in the store yet; who reads the session waits for it."""
        return self._of.get(key)

    async def flush(self, seconds: float) -> bool:
        """Write what is left, for so long at most. Whether nothing is."""
        deadline = self._loop.time() + seconds
        while self.queued and self._loop.time() < deadline and not self._store.breaker.is_open:
            self._start()
            writer = self._writer
            if writer is not None:
                await asyncio.wait({writer}, timeout=max(0.0, deadline - self._loop.time()))
        return not self.queued

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        while self._turns:
            self._drop_turn()

    def _start_in(self, seconds: float) -> None:
        if self._timer is not None or self._writer is not None or self._store.breaker.is_open:
            return
        if seconds:
            self._timer = self._loop.call_later(seconds, self._start)
        else:
            self._timer = self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._timer = None
        if self._writer is None and self.queued and not self._store.breaker.is_open:
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self.queued and not self._store.breaker.is_open:
                try:
                    await self._write_turns()
                    await self._write_homes()
                    await self._write_responses()
                except StoreUnavailable:
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._writer = None

    async def _write_turns(self) -> None:
        oldest = self._loop.time() - MAX_AGE_SECONDS
        while self._turns and self._turns[0][2] < oldest:
            self._drop_turn()
        batch = list(islice(self._turns, BATCH_WRITES))
        if not batch:
            return
        results = await self._store.append([one for one, _, _ in batch])
        # Some of the batch may have been dropped from the front in the meantime; what was written is done with either way.
        for (append, future, _), result in zip(batch, results, strict=True):
            if self._turns and self._turns[0][1] is future:
                self._take_turn()
            if not future.done():
                future.set_result(result)
            self._forget(append.key, future)

    async def _write_homes(self) -> None:
        batch = [(key, home, ttl) for key, (home, ttl) in islice(self._homes.items(), BATCH_WRITES)]
        if batch:
            await self._store.set_homes(batch)
            for key, home, ttl in batch:
                if self._homes.get(key) == (home, ttl):
                    del self._homes[key]

    async def _write_responses(self) -> None:
        batch = [(id, owner, ttl) for id, (owner, ttl) in islice(self._responses.items(), BATCH_WRITES)]
        if batch:
            await self._store.set_responses(batch)
            for id, _, _ in batch:
                self._responses.pop(id, None)

    def _bound(self) -> None:
        while self.queued > self._max_queued or self._turn_bytes > MAX_QUEUED_BYTES:
            if self._homes and self.queued > self._max_queued:
                del self._homes[next(iter(self._homes))]
                self.dropped["home"] += 1
            elif self._responses and self.queued > self._max_queued:
                del self._responses[next(iter(self._responses))]
                self.dropped["response"] += 1
            else:
                self._drop_turn()

    def _drop_turn(self) -> None:
        append, future = self._take_turn()
        self.dropped["turn"] += 1
        if not future.done():
            future.set_exception(
                StoreUnavailable(StoreFault.TIMEOUT, "The turn could not be written in time")
            )
        self._forget(append.key, future)

    def _take_turn(self) -> tuple[Append, asyncio.Future[Appended]]:
        append, future, _ = self._turns.popleft()
        self._turn_bytes -= _size(append)
        return append, future

    def _forget(self, key: SessionKey, future: asyncio.Future[Appended]) -> None:
        if self._of.get(key) is future:
            del self._of[key]


def _size(append: Append) -> int:
    return len(append.turn.messages) + len(append.system or b"")


def _look_at(future: asyncio.Future[Appended]) -> None:
    """So that the loop does not complain where nobody wanted to know."""
    if not future.cancelled():
        future.exception()
