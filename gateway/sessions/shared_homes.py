"""Where a session's KV cache is, known to every gateway: asks a shared store where this one does not know, and tells it where a session went.

    if homes.must_ask(session, now): await homes.ask(session, key)      before a backend is chosen
    homes.went(key, lease)                                              after a good answer

A session that was sent somewhere from here, or learnt, less than `fresh_seconds` ago needs no look. A store that does not answer costs the time that its
guard allows and is worth no error: the session is placed as a new one. What is told goes behind the request, at most one write for each session and
flush, and none where the store knows the same already and for long enough.

Settings: `sessions.fresh_seconds`; times to live by `ttl_seconds`.
Limits: between a session's move through one gateway and the end of `fresh_seconds` another may send it to the backend that it left: a slower answer, not
a wrong one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from gateway.sessions.store import Home, SessionKey, StoreUnavailable
from policies.terms import BackendId
from routing.decision import Lease
from routing.router import Router

_TOLD_AGAIN_SHARE = 0.25
"""Of the time to live: after that the same home is told again, to keep it alive."""
_REMEMBERED = 16_384


class HomeReader(Protocol):
    async def home(self, key: SessionKey) -> Home | None: ...


class SharedHomes:
    def __init__(
        self,
        reader: HomeReader,
        put_home: Callable[[SessionKey, Home, float], None],
        router: Router,
        fresh_seconds: float,
        ttl_seconds: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._put_home = put_home
        self._router = router
        self._fresh_seconds = fresh_seconds
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._told: OrderedDict[SessionKey, tuple[Home, float]] = OrderedDict()
        """What the store was told last, and until when that is enough."""

    def must_ask(self, session: int) -> bool:
        return self._router.placement.sessions.known_for(session, self._clock()) > self._fresh_seconds

    async def ask(self, session: int, key: SessionKey) -> None:
        try:
            home = await self._reader.home(key)
        except StoreUnavailable:
            return
        router = self._router
        backend = None if home is None else router.fleet.get(BackendId(home.backend))
        if home is not None and backend is not None:
            router.placement.learn(session, backend, home.fingerprint, self._clock())

    def went(self, key: SessionKey, lease: Lease) -> None:
        cache_key = lease.tag.key
        hashes = cache_key.prefix.hashes if cache_key is not None else ()
        home = Home(lease.backend.id, hashes[-1] if hashes else 0)
        now = self._clock()
        told = self._told.get(key)
        if told is not None and told[0] == home and now < told[1]:
            return
        ttl_seconds = self._ttl_seconds()
        self._remember(key, home, now + _TOLD_AGAIN_SHARE * ttl_seconds)
        self._put_home(key, home, ttl_seconds)

    def _remember(self, key: SessionKey, home: Home, until: float) -> None:
        self._told[key] = home, until
        self._told.move_to_end(key)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
