"""What stands between a request and the store: a bound on its time, a breaker, and counts.

Every call of the protocol `SessionStore`, but that none takes longer than `timeout_seconds` and none goes while the breaker (`policies.store_breaker`) is
open: then `StoreUnavailable(OPEN)` is raised at once. While it is open one task pings the store, each time after the breaker's pause; requests never do.
Writes get `WRITE_TIMEOUTS` times as long: nobody waits for them.

Setting: `sessions.timeout_ms`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from gateway.sessions.store import (
    Append,
    Appended,
    Home,
    ResponseOwner,
    SessionKey,
    SessionStore,
    StoreFault,
    StoreUnavailable,
    Window,
)
from policies.store_breaker import StoreBreaker

_logger = logging.getLogger("headrace")
Answer = TypeVar("Answer")
WRITE_TIMEOUTS = 10
CALLS = ("window", "append", "delete", "home", "set_homes", "response", "set_responses", "ping")
OK = "ok"
LATENCY_BOUNDS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.03, 0.1, 0.3)


class GuardedStore:
    def __init__(
        self, store: SessionStore, timeout_seconds: float, jitter: Callable[[], float] = random.random
    ) -> None:
        """Needs a running event loop."""
        self.store = store
        self.timeout_seconds = timeout_seconds
        self.breaker = StoreBreaker()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Calls by name and outcome: ok, or a `StoreFault`."""
        self.seconds: dict[str, list[int]] = {call: [0] * (len(LATENCY_BOUNDS_SECONDS) + 1) for call in CALLS}
        """Calls by name and the first bound of `LATENCY_BOUNDS_SECONDS` that they stay below."""
        self.seconds_sum: dict[str, float] = dict.fromkeys(CALLS, 0.0)
        self.on_closed: Callable[[], None] = lambda: None
        """The store is back."""
        self._jitter = jitter
        self._loop = asyncio.get_running_loop()
        self._prober: asyncio.Task[None] | None = None

    async def window(self, key: SessionKey) -> Window:
        return await self._call("window", lambda: self.store.window(key))

    async def append(self, appends: Sequence[Append]) -> list[Appended]:
        return await self._call("append", lambda: self.store.append(appends), WRITE_TIMEOUTS)

    async def delete(self, key: SessionKey) -> bool:
        return await self._call("delete", lambda: self.store.delete(key))

    async def home(self, key: SessionKey) -> Home | None:
        return await self._call("home", lambda: self.store.home(key))

    async def set_homes(self, homes: Sequence[tuple[SessionKey, Home, float]]) -> None:
        await self._call("set_homes", lambda: self.store.set_homes(homes), WRITE_TIMEOUTS)

    async def response(self, response_id: str) -> ResponseOwner | None:
        return await self._call("response", lambda: self.store.response(response_id))

    async def set_responses(self, responses: Sequence[tuple[str, ResponseOwner, float]]) -> None:
        await self._call("set_responses", lambda: self.store.set_responses(responses), WRITE_TIMEOUTS)

    async def ping(self) -> None:
        await self._call("ping", self.store.ping)

    async def close(self) -> None:
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.gather(self._prober, return_exceptions=True)
            self._prober = None
        await self.store.close()

    async def _call(self, name: str, call: Callable[[], Awaitable[Answer]], timeouts: int = 1) -> Answer:
        breaker = self.breaker
        if breaker.is_open:
            self.outcomes[name, StoreFault.OPEN] += 1
            raise StoreUnavailable(StoreFault.OPEN, "The session store is being left alone after failures")
        generation = breaker.generation
        try:
            answer = await self._timed(name, call, timeouts)
        except StoreUnavailable as failure:
            if breaker.failed(generation, self._loop.time()):
                _logger.warning("the session store is left alone: %s", failure)
                self._prober = self._loop.create_task(self._probe())
            raise
        breaker.succeeded(generation, self._loop.time())
        return answer

    async def _timed(self, name: str, call: Callable[[], Awaitable[Answer]], timeouts: int) -> Answer:
        began = time.perf_counter()
        outcome: str = OK
        try:
            async with asyncio.timeout(timeouts * self.timeout_seconds):
                return await call()
        except TimeoutError:
            outcome = StoreFault.TIMEOUT
            raise StoreUnavailable(StoreFault.TIMEOUT, "The session store did not answer in time") from None
        except StoreUnavailable as failure:
            outcome = failure.reason
            raise
        finally:
            took = time.perf_counter() - began
            self.outcomes[name, outcome] += 1
            self.seconds_sum[name] += took
            slot = sum(took > bound for bound in LATENCY_BOUNDS_SECONDS)
            self.seconds[name][slot] += 1

    async def _probe(self) -> None:
        breaker = self.breaker
        while breaker.is_open:
            await asyncio.sleep(breaker.pause_seconds(self._jitter()))
            try:
                await self._timed("ping", self.store.ping, WRITE_TIMEOUTS)
            except StoreUnavailable:
                breaker.probed(False)
            else:
                breaker.probed(True)
        _logger.warning("the session store is in use again")
        self.on_closed()
