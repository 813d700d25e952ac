"""The session store as the gateway asks it: each call with a bound on its time, behind a breaker, counted.

Bounds: reads (`window`, `home`, `response`, `delete`) take `timeout_seconds` at most; writes and the probe, for which no request waits, `WRITE_TIMEOUTS` times that.
A call has them from when its turn has come: `MAX_CALLS` go at once.
`policies.store_breaker` decides when the store is not asked: then a call raises `StoreUnavailable(StoreFault.OPEN)` at once, and one background task, which exists
only meanwhile, asks `ping` until it is answered. An answer that names what is wrong with a write or a single key (`FULL`, `READ_ONLY`, `OTHER`) came in time and does
not open the breaker: reads go on. A call whose caller left (cancelled) says nothing about the store.

Limit: a store that swallows a cancellation is not bounded here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final, Literal, TypeVar

from gateway.series import Latency
from gateway.sessions.patience import Patience
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
from policies.store_breaker import CLOSED, BreakerRules, after_call, after_probe, probe_is_due, probing

_logger = logging.getLogger("headrace")
MAX_CALLS = 8
"""At once, and so connections: to make one costs as much as several calls, which a crowd that comes at once could not wait for."""
WRITE_TIMEOUTS = 4.0
WAIT_TIMEOUTS = 4.0
"""How long a call may wait for those before it."""
SECONDS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25)
ANSWERED = frozenset({StoreFault.FULL, StoreFault.READ_ONLY, StoreFault.ANSWERED})
"""The store is there. Whatever is not known to be its own words counts against it: a client library finds ever new ways to say that nobody answers."""

OK: Final = "ok"
Outcome = StoreFault | Literal["ok"]
Value = TypeVar("Value")


class StoreCall(StrEnum):
    WINDOW = "window"
    APPEND = "append"
    DELETE = "delete"
    HOME = "home"
    SET_HOMES = "set_homes"
    RESPONSE = "response"
    SET_RESPONSES = "set_responses"
    PING = "ping"


class GuardedStore:
    """`clock` in seconds, monotonic; `jitter` draws from 0 to 1."""

    def __init__(
        self,
        store: SessionStore,
        timeout_seconds: float,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        rules: BreakerRules | None = None,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.calls: defaultdict[tuple[StoreCall, Outcome], int] = defaultdict(int)
        self.seconds = {call: Latency(SECONDS_BOUNDS) for call in StoreCall}
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._rules = rules or BreakerRules()
        self._breaker = CLOSED
        self._probe: asyncio.Task[None] | None = None
        self._closed_again = asyncio.Event()
        self._turns = asyncio.Semaphore(MAX_CALLS)

    @property
    def is_open(self) -> bool:
        """Whether calls are refused now."""
        return self._breaker.is_open

    async def window(self, key: SessionKey) -> Window:
        return await self._asked(StoreCall.WINDOW, lambda: self._store.window(key), self.timeout_seconds)

    async def home(self, key: SessionKey) -> Home | None:
        return await self._asked(StoreCall.HOME, lambda: self._store.home(key), self.timeout_seconds)

    async def response(self, response_id: str) -> ResponseOwner | None:
        return await self._asked(
            StoreCall.RESPONSE, lambda: self._store.response(response_id), self.timeout_seconds
        )

    async def delete(self, key: SessionKey) -> bool:
        return await self._asked(StoreCall.DELETE, lambda: self._store.delete(key), self.timeout_seconds)

    async def append(self, appends: Sequence[Append]) -> list[Appended]:
        return await self._written(StoreCall.APPEND, lambda: self._store.append(appends))

    async def set_homes(self, homes: Sequence[tuple[SessionKey, Home, float]]) -> None:
        await self._written(StoreCall.SET_HOMES, lambda: self._store.set_homes(homes))

    async def set_responses(self, responses: Sequence[tuple[str, ResponseOwner, float]]) -> None:
        await self._written(StoreCall.SET_RESPONSES, lambda: self._store.set_responses(responses))

    async def ping(self) -> None:
        await self._written(StoreCall.PING, self._store.ping)

    async def wait_closed(self, seconds: float) -> bool:
        """Until the breaker is closed, but no longer than that; whether it is."""
        if self.is_open:
            try:
                async with asyncio.timeout(seconds):
                    await self._closed_again.wait()
            except TimeoutError:
                pass
        return not self.is_open

    async def close(self) -> None:
        """The store too."""
        if (probe := self._probe) is not None:
            probe.cancel()
            await asyncio.wait([probe])
        await self._store.close()

    async def _written(self, call: StoreCall, ask: Callable[[], Awaitable[Value]]) -> Value:
        return await self._asked(call, ask, self.timeout_seconds * WRITE_TIMEOUTS)

    async def _asked(self, call: StoreCall, ask: Callable[[], Awaitable[Value]], seconds: float) -> Value:
        self._refuse_if_open(call)
        try:
            async with asyncio.timeout(WAIT_TIMEOUTS * seconds):
                await self._turns.acquire()  # a crowd that comes at once is no fault of the store
        except TimeoutError:
            self.calls[call, StoreFault.TIMEOUT] += 1
            raise StoreUnavailable(StoreFault.TIMEOUT) from None
        try:
            self._refuse_if_open(call)
            return await self._told(call, ask, seconds)
        finally:
            self._turns.release()

    def _refuse_if_open(self, call: StoreCall) -> None:
        if self._breaker.is_open:
            self.calls[call, StoreFault.OPEN] += 1
            raise StoreUnavailable(StoreFault.OPEN)

    async def _told(self, call: StoreCall, ask: Callable[[], Awaitable[Value]], seconds: float) -> Value:
        breaker = self._breaker
        try:
            value = await self._bounded(call, ask, seconds)
        except StoreUnavailable as fault:
            self._called(breaker.epoch, fault.reason in ANSWERED)
            raise
        self._called(breaker.epoch, True)
        return value

    async def _bounded(self, call: StoreCall, ask: Callable[[], Awaitable[Value]], seconds: float) -> Value:
        """The one place where the store is asked. Whatever goes wrong in it is a `StoreUnavailable`: requests go on without it."""
        began = self._clock()
        try:
            async with asyncio.timeout(None) as bound:
                patience = Patience(bound, seconds)
                try:
                    value = await ask()
                finally:
                    patience.end()
        except StoreUnavailable as fault:
            self._count(call, fault.reason, began)
            raise
        except TimeoutError as error:
            self._count(call, StoreFault.TIMEOUT, began)
            raise StoreUnavailable(StoreFault.TIMEOUT) from error
        except OSError as error:
            self._count(call, StoreFault.CONNECTION, began)
            raise StoreUnavailable(StoreFault.CONNECTION) from error
        except Exception as error:  # whatever a client library raises: no request fails for its session
            self._count(call, StoreFault.OTHER, began)
            raise StoreUnavailable(StoreFault.OTHER, type(error).__name__) from error
        self._count(call, OK, began)
        return value

    def _count(self, call: StoreCall, outcome: Outcome, began: float) -> None:
        self.calls[call, outcome] += 1
        self.seconds[call].observe(self._clock() - began)

    def _called(self, epoch: int, good: bool) -> None:
        before = self._breaker
        self._breaker = after_call(before, epoch, good, self._clock(), self._jitter(), self._rules)
        if self._breaker.is_open and not before.is_open:
            _logger.warning("the session store does not answer; it is left alone until it does")
            self._closed_again.clear()
            self._probe = asyncio.get_running_loop().create_task(self._probe_until_closed())

    async def _probe_until_closed(self) -> None:
        try:
            while (at := self._breaker.probe_at) is not None:
                now = self._clock()
                if not probe_is_due(self._breaker, now):
                    await asyncio.sleep(at - now)
                    continue
                self._breaker = probing(self._breaker)
                try:
                    # It may have to connect first.
                    await self._bounded(
                        StoreCall.PING, self._store.ping, self.timeout_seconds * WRITE_TIMEOUTS
                    )
                    good = True
                except StoreUnavailable as fault:
                    good = fault.reason in ANSWERED
                self._breaker = after_probe(self._breaker, good, self._clock(), self._jitter(), self._rules)
        finally:
            self._probe = None
        _logger.warning("the session store answers again")
        self._closed_again.set()
