"""What is written to the session store, after the requests that it is about: no request waits for it.

- Homes and responses: the newest per key, gathered for `GATHER_SECONDS` after the first. Appends: in their order, from the next turn of the loop on, because a client's
  next turn may come at once through another gateway. What waits together leaves together, up to `MAX_BATCH` writes and `MAX_BATCH_BYTES` per call.
- One batch at a time. One that failed is sent again whole and first, when the breaker is closed; meanwhile the store may have done it already, which its
  rules for `Turn.id` make harmless. Faults that leave the breaker closed are waited out for `RETRY_SECONDS`, doubled to `MAX_RETRY_SECONDS`.
- Bounds: `max_queued` writes and `max_bytes`. Beyond them go the oldest homes, then the oldest responses, then the oldest appends; an append of more than
  `MAX_AGE_SECONDS` goes too, its session is over, as does a home or a response whose time is over. All are counted in `dropped`, and a dropped append's future
  raises `StoreUnavailable` with the store's last fault.

A write costs one entry in a dictionary; the one task that sends exists only while something waits. Who deletes a session waits for `pending` first.

Limit: what waits when the process is killed is lost. One append that the store can never take (`OTHER`) holds those behind it up until it is too old.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
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

GATHER_SECONDS = 0.005
MAX_BATCH = 256
MAX_BATCH_BYTES = 1 << 20
RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
MAX_AGE_SECONDS = 60.0
MIN_TTL_SECONDS = 0.001
"""A store may refuse a time that is over."""
HOME_BYTES = 400
"""What a waiting home or response takes in memory with its place in the queue, rounded up."""
APPEND_BYTES = 800
"""As much of an append, besides its text."""


class WriteKind(StrEnum):
    HOME = "home"
    RESPONSE = "response"
    APPEND = "append"


class _Waiting:
    __slots__ = ("append", "at", "done", "size_bytes")

    def __init__(self, append: Append, at: float, done: asyncio.Future[Appended]) -> None:
        self.append = append
        self.at = at
        self.done = done
        self.size_bytes = APPEND_BYTES + len(append.turn.messages) + len(append.system or b"")


class WriteBehind:
    """`clock` in seconds, monotonic."""

    def __init__(
        self, store: GuardedStore, max_queued: int, max_bytes: int, clock: Callable[[], float]
    ) -> None:
        self.dropped: dict[WriteKind, int] = dict.fromkeys(WriteKind, 0)
        self.size_bytes = 0
        self._store = store
        self._max_queued = max_queued
        self._max_bytes = max_bytes
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._homes: OrderedDict[SessionKey, tuple[Home, float]] = OrderedDict()
        self._responses: OrderedDict[str, tuple[ResponseOwner, float]] = OrderedDict()
        self._appends: deque[_Waiting] = deque()
        self._appends_of: dict[SessionKey, int] = {}
        self._last_fault = StoreFault.OTHER
        self._retry_seconds = RETRY_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def queued(self) -> int:
        """Writes that the store has not confirmed."""
        return len(self._homes) + len(self._responses) + len(self._appends)

    def put_home(self, key: SessionKey, home: Home, ttl_seconds: float) -> None:
        if key not in self._homes:
            self.size_bytes += HOME_BYTES
        self._homes[key] = home, self._clock() + ttl_seconds
        self._homes.move_to_end(key)
        self._gather()

    def put_response(self, response_id: str, owner: ResponseOwner, ttl_seconds: float) -> None:
        if response_id not in self._responses:
            self.size_bytes += HOME_BYTES
        self._responses[response_id] = owner, self._clock() + ttl_seconds
        self._responses.move_to_end(response_id)
        self._gather()

    def append(self, append: Append) -> asyncio.Future[Appended]:
        """The future need not be awaited, and one that is cancelled takes nothing back."""
        waiting = _Waiting(append, self._clock(), self._loop.create_future())
        self._appends.append(waiting)
        self._appends_of[append.key] = self._appends_of.get(append.key, 0) + 1
        self.size_bytes += waiting.size_bytes
        self._bound()
        self._start()
        return waiting.done

    def pending(self, key: SessionKey) -> Awaitable[None] | None:
        """None where nothing of that session waits or the store is not asked now; else what lasts until its writes are done or the store is not asked any more. Whoever awaits it bounds it."""
        return self._until_written(key) if self._holds_up(key) else None

    async def flush(self, seconds: float) -> int:
        """Until nothing waits, but no longer than that; how much still waits."""
        deadline = self._loop.time() + seconds
        while self.queued and (left := deadline - self._loop.time()) > 0:
            self._start()
            await asyncio.wait([self._next_settled()], timeout=left)
        return self.queued

    async def close(self) -> None:
        """What still waits is dropped."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])
        self._max_queued = 0
        self._bound()
        self._settle()

    def _gather(self) -> None:
        self._bound()
        if self._task is None and self._timer is None and not self._is_closed:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None and not self._is_closed:
            self._task = self._loop.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self.queued:
                if await self._store.wait_closed(MAX_RETRY_SECONDS) and not await self._send_batch():
                    await self._back_off()
                self._drop_outdated()
                self._settle()
        finally:
            self._task = None

    async def _back_off(self) -> None:
        self._settle()
        if not self._store.is_open:
            await asyncio.sleep(self._retry_seconds)
            self._retry_seconds = min(2 * self._retry_seconds, MAX_RETRY_SECONDS)

    async def _send_batch(self) -> bool:
        """Whether the store took it. Appends first: their clients may be back at once."""
        try:
            if self._appends:
                await self._send_appends()
            if self._homes:
                homes = list(islice(self._homes.items(), MAX_BATCH))
                await self._store.set_homes([(key, one, self._left(until)) for key, (one, until) in homes])
                self._confirm(self._homes, homes)
            if self._responses:
                owners = list(islice(self._responses.items(), MAX_BATCH))
                await self._store.set_responses([(id, one, self._left(until)) for id, (one, until) in owners])
                self._confirm(self._responses, owners)
        except StoreUnavailable as fault:
            self._last_fault = fault.reason
            return False
        self._retry_seconds = RETRY_SECONDS
        return True

    async def _send_appends(self) -> None:
        batch: list[_Waiting] = []
        size_bytes = 0
        for waiting in islice(self._appends, MAX_BATCH):
            size_bytes += waiting.size_bytes
            if batch and size_bytes > MAX_BATCH_BYTES:
                break
            batch.append(waiting)
        results = await self._store.append([waiting.append for waiting in batch])
        for waiting, result in zip(batch, results, strict=True):
            # One that was dropped while it was on its way has left the queue, and those behind it are its head.
            if self._appends and self._appends[0] is waiting:
                self._forget_append()
            if not waiting.done.done():
                waiting.done.set_result(result)
        self._settle()

    def _left(self, until: float) -> float:
        return max(until - self._clock(), MIN_TTL_SECONDS)

    def _confirm(
        self,
        queue: OrderedDict[str, tuple[Home, float]] | OrderedDict[str, tuple[ResponseOwner, float]],
        sent: Sequence[tuple[str, tuple[Home | ResponseOwner, float]]],
    ) -> None:
        """One that was put anew meanwhile stays."""
        for key, value in sent:
            if queue.get(key) is value:
                del queue[key]
                self.size_bytes -= HOME_BYTES
        self._settle()

    def _forget_append(self) -> _Waiting:
        waiting = self._appends.popleft()
        self.size_bytes -= waiting.size_bytes
        key = waiting.append.key
        left = self._appends_of[key] - 1
        if left:
            self._appends_of[key] = left
        else:
            del self._appends_of[key]
        return waiting

    def _bound(self) -> None:
        while self.queued > self._max_queued or (self.size_bytes > self._max_bytes and self.queued):
            if self._homes:
                self._drop_oldest(self._homes, WriteKind.HOME)
            elif self._responses:
                self._drop_oldest(self._responses, WriteKind.RESPONSE)
            else:
                self._drop_append()

    def _drop_outdated(self) -> None:
        now = self._clock()
        while self._appends and now - self._appends[0].at > MAX_AGE_SECONDS:
            self._drop_append()
        while self._homes and next(iter(self._homes.values()))[1] <= now:
            self._drop_oldest(self._homes, WriteKind.HOME)
        while self._responses and next(iter(self._responses.values()))[1] <= now:
            self._drop_oldest(self._responses, WriteKind.RESPONSE)

    def _drop_oldest(
        self,
        queue: OrderedDict[str, tuple[Home, float]] | OrderedDict[str, tuple[ResponseOwner, float]],
        kind: WriteKind,
    ) -> None:
        queue.popitem(last=False)
        self.size_bytes -= HOME_BYTES
        self.dropped[kind] += 1

    def _drop_append(self) -> None:
        waiting = self._forget_append()
        self.dropped[WriteKind.APPEND] += 1
        if not waiting.done.done():
            waiting.done.set_exception(StoreUnavailable(self._last_fault, "not written"))
            waiting.done.exception()  # counts as read: nobody has to look at it

    def _holds_up(self, key: SessionKey) -> bool:
        return (key in self._appends_of or key in self._homes) and not self._store.is_open

    async def _until_written(self, key: SessionKey) -> None:
        self._start()
        while self._holds_up(key):
            await asyncio.wait([self._next_settled()])

    def _next_settled(self) -> asyncio.Future[None]:
        if self._settled is None:
            self._settled = self._loop.create_future()
        return self._settled

    def _settle(self) -> None:
        """A batch has ended: whoever waits looks anew."""
        if self._settled is not None:
            self._settled.set_result(None)
            self._settled = None
