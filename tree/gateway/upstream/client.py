"""The way to the engines: one connection pool per backend, one exchange per attempt.

    async with Exchange(upstream.pool(backend_id), head, body, body_expected) as answer:
        answer.status, answer.headers
        while data := await answer.read(): ...

Leaving the block gives the connection back if the answer was read to its end and closes it otherwise, at whatever await the caller was
cancelled. A kept connection that turns out dead before any byte of the answer costs one free new try on a fresh one; a request that is
not `repeatable` gets a fresh one to begin with.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from gateway.upstream.connection import Connection
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.failures import StaleConnection
from gateway.upstream.pool import ConnectionPool
from policies.terms import BackendId


class Exchange:
    __slots__ = ("_body", "_body_expected", "_connection", "_head", "_pool", "_repeatable")

    def __init__(
        self, pool: ConnectionPool, head: bytes, body: bytes, body_expected: bool, repeatable: bool = True
    ) -> None:
        self._pool = pool
        self._head = head
        self._body = body
        self._body_expected = body_expected
        self._repeatable = repeatable
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        pool = self._pool
        # On a kept connection a request may have to be sent twice.
        kept = pool.take_idle() if self._repeatable else None
        try:
            if kept is not None:
                try:
                    self._begin(kept)
                    await kept.read_head()
                    return kept
                except StaleConnection:
                    self._give_back()
            fresh = await pool.open()
            self._begin(fresh)
            await fresh.read_head()
            return fresh
        except BaseException:
            self._give_back()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _begin(self, connection: Connection) -> None:
        self._connection = connection
        connection.begin(self._pool.timeouts, self._body_expected, self._head, self._body)

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection)


class Upstream:
    def __init__(self) -> None:
        self._pools: dict[BackendId, ConnectionPool] = {}
        self._retired: dict[BackendId, ConnectionPool] = {}

    def configure(
        self,
        backends: Iterable[tuple[BackendId, BackendSettings]],
        upstream: UpstreamSettings,
        timeouts: TimeoutSettings,
    ) -> None:
        """Take over a configuration. A backend whose settings are the same keeps its connections; running exchanges keep theirs anyway."""
        # First, since an authority's file may have gone since it was checked: all of a configuration or nothing.
        endpoints = [(id, Endpoint(settings, upstream.resolve_seconds)) for id, settings in backends]
        kept = self._pools
        self._pools = {}
        for id, endpoint in endpoints:
            pool = kept.pop(id, None)
            if pool is not None and pool.endpoint.is_same(endpoint):
                pool.settings, pool.timeouts = upstream, timeouts
                pool.endpoint.resolve_seconds = upstream.resolve_seconds
            else:
                if pool is not None:
                    pool.close()
                pool = ConnectionPool(endpoint, upstream, timeouts)
            self._pools[id] = pool
        # A lease granted in this very tick may still come for its pool; by the next configuration it has.
        self._retired = {id: pool for id, pool in self._retired.items() if pool.busy} | kept
        for pool in kept.values():
            pool.close()

    def pool(self, backend_id: BackendId) -> ConnectionPool:
        """Of a backend that a lease names, be it one that was retired since."""
        pool = self._pools.get(backend_id)
        return pool if pool is not None else self._retired[backend_id]

    def pools(self) -> Iterable[tuple[BackendId, ConnectionPool]]:
        return self._pools.items()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
