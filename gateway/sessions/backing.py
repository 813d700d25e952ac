"""Which store stands behind the sessions, and how one configuration takes the place of another.

Without a `redis_url` the store is this process's memory: nothing waits, nothing can be away, and no other gateway shares it. With one it is Redis behind a guard,
written behind requests; then homes and responses are shared too. A new configuration of a store in memory changes its bounds and keeps what is there; any change of
one in Redis opens it anew, and what was still to be written to the old one is written first, within `FLUSH_SECONDS`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from gateway.session_settings import SessionSettings
from gateway.sessions.encryption import Sealing
from gateway.sessions.guarded_store import MAX_CALLS, WRITE_TIMEOUTS, GuardedStore
from gateway.sessions.history import Sessions
from gateway.sessions.memory import MemoryStore
from gateway.sessions.redis_url import RedisAddress, client
from gateway.sessions.shared_homes import SharedHomes
from gateway.sessions.store import ResponseOwner, SessionKey
from gateway.sessions.turn_metrics import TurnMetrics
from gateway.sessions.write_behind import WriteBehind
from gateway.sessions.writer import DirectWriter
from policies.cache_lifetime import LifetimeRules, lifetime_seconds
from policies.session_window import WindowRules
from routing.router import Router

FLUSH_SECONDS = 2.0
MAX_QUEUED_BYTES = 64 * 1024 * 1024


class Backing:
    current: Sessions
    """For the histories of a configuration."""

    def __init__(self, router: Router, metrics: TurnMetrics, clock: Callable[[], float]) -> None:
        self._router = router
        self._metrics = metrics
        self._clock = clock
        self._settings: SessionSettings | None = None
        self._memory: MemoryStore | None = None
        self.shared: tuple[GuardedStore, WriteBehind] | None = None
        """Where there is a store that other gateways share."""
        self.homes: SharedHomes | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def configure(self, settings: SessionSettings) -> None:
        if settings == self._settings:
            return
        self._settings = settings
        before, self.shared, self.homes = self.shared, None, None
        connecting, self._connecting = self._connecting, None
        rules = WindowRules(
            settings.max_turns,
            settings.max_tokens,
            int(settings.max_entry_kb * 1024),
            int(settings.max_session_kb * 1024),
        )
        if settings.redis_url:
            self._memory = None
            self._share(settings, rules)
        else:
            self._keep(settings, rules)
        if before is not None:
            self._start(_closed(*before, connecting))

    def ttl_seconds(self) -> float:
        settings = self._settings
        assert settings is not None
        mean_gap_seconds = self._router.placement.sessions.mean_gap_seconds
        bounds = LifetimeRules(settings.min_ttl_seconds, settings.max_ttl_seconds)
        return lifetime_seconds(mean_gap_seconds, bounds)

    async def response(self, response_id: str) -> ResponseOwner | None:
        """Of another gateway. Raises `StoreUnavailable`."""
        return None if self.shared is None else await self.shared[0].response(response_id)

    def put_response(self, response_id: str, owner: ResponseOwner, ttl_seconds: float) -> None:
        if self.shared is not None:
            self.shared[1].put_response(response_id, owner, ttl_seconds)

    async def close(self) -> None:
        if self.shared is not None:
            await _closed(*self.shared, self._connecting)
            self.shared = None
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _keep(self, settings: SessionSettings, rules: WindowRules) -> None:
        max_bytes = int(settings.max_memory_mb * 1024 * 1024)
        if self._memory is None:
            self._memory = MemoryStore(rules, settings.max_sessions, max_bytes, self._clock)
            self.current = Sessions(self._memory, DirectWriter(self._memory), self._metrics, self._ttl_of)
        else:
            self._memory.configure(rules, settings.max_sessions, max_bytes)

    def _share(self, settings: SessionSettings, rules: WindowRules) -> None:
        from gateway.sessions.redis_store import RedisStore

        timeout_seconds = settings.timeout_ms / 1000
        connection = client(
            RedisAddress(settings.redis_url),
            WRITE_TIMEOUTS * timeout_seconds,
            settings.redis_ca_file,
            settings.sentinel_password,
        )
        redis = RedisStore(connection, rules, Sealing(settings.encryption_keys))
        store = GuardedStore(redis, timeout_seconds, self._clock, random.random)
        writer = WriteBehind(store, settings.max_queued_writes, MAX_QUEUED_BYTES, self._clock)
        self.shared = store, writer
        self.current = Sessions(store, writer, self._metrics, self._ttl_of)
        self.homes = SharedHomes(
            store, writer.put_home, self._router, settings.fresh_seconds, self.ttl_seconds, self._clock
        )
        self._connecting = asyncio.create_task(_connected(store))

    def _ttl_of(self, _: SessionKey) -> float:
        return self.ttl_seconds()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _connected(store: GuardedStore) -> None:
    """All connections, before the first request, which has less time than one may take to be made."""
    await asyncio.gather(*[store.ping() for _ in range(MAX_CALLS)], return_exceptions=True)


async def _closed(store: GuardedStore, writer: WriteBehind, connecting: asyncio.Task[None] | None) -> None:
    if connecting is not None:
        await asyncio.wait({connecting})  # else its connection would be made after the end of all others
    await writer.flush(FLUSH_SECONDS)
    await writer.close()
    await store.close()
