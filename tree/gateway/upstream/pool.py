"""Kept connections to one backend.

Decides: reuse the most recently used idle connection, open a new one, or fail with `PoolFull`. The last in is the first out, so that the
surplus of a burst grows old and closes.
Settings: `UpstreamSettings`. Bound: `max_connections` open or opening at any time, so a caller never waits here unseen.
"""

from __future__ import annotations

import asyncio

from gateway.settings import TimeoutSettings, UpstreamSettings
from gateway.upstream.connection import Connection
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.failures import PoolFull


class ConnectionPool:
    def __init__(self, endpoint: Endpoint, settings: UpstreamSettings, timeouts: TimeoutSettings) -> None:
        self.endpoint = endpoint
        self.settings = settings
        self.timeouts = timeouts
        self.opened = 0
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._opening = 0
        self._closed = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def busy(self) -> int:
        return len(self._open) + self._opening - len(self._idle)

    def take_idle(self) -> Connection | None:
        """A kept connection for one exchange, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.is_quiet:
                return connection
            self._drop(connection)
        return None

    async def open(self) -> Connection:
        """A fresh connection for one exchange."""
        if len(self._open) + self._opening >= self.settings.max_connections:
            if not self._idle:
                raise PoolFull(f"{self.endpoint.name} has {self.settings.max_connections} connections in use")
            self._drop(self._idle.pop(0))
        self._opening += 1
        made: list[Connection] = []

        def make() -> Connection:
            made.append(Connection(self._loop, self.settings.idle_seconds, self._lost))
            return made[-1]

        try:
            connection = await self.endpoint.connect(make, self.timeouts.connect_seconds)
        except BaseException:
            for connection in made:
                connection.abort()  # cancelled when it was just there: a polite TLS goodbye may take half a minute
            raise
        finally:
            self._opening -= 1
        self._open.add(connection)
        self.opened += 1
        return connection

    def give_back(self, connection: Connection) -> None:
        """The exchange on it is over, finished or not."""
        if not connection.end():
            self._open.discard(connection)
        elif self._closed or len(self._idle) >= self.settings.max_idle_connections:
            self._drop(connection)
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle now and the rest as it comes back."""
        self._closed = True
        while self._idle:
            self._drop(self._idle.pop())

    def _drop(self, connection: Connection) -> None:
        """Its place is free at once, not only when the loop has closed it."""
        self._open.discard(connection)
        connection.abort()

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not connection.busy and connection in self._idle:
            self._idle.remove(connection)
