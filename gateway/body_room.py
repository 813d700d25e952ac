"""How many bytes of request bodies the gateway holds at a time, those of requests that wait for a slot among them.

Decides, while a body comes: whether there is room for it, or `Refused` with `bodies_full` (503). Numbers of requests are bounded elsewhere (`queue.max_waiting`), but a
thousand that wait may be 10 KB or 32 GB. Bodies up to `SMALL_BYTES` are neither counted nor refused, so that ordinary calls go on beside a flood of uploads.
Counted are bytes that came, not those that were announced: who announces much and sends nothing takes nothing away.
Settings: `server.max_bodies_mb` (0.001..1048576 MB, default 1024).
Limits: what a body is decoded to is not counted: about as much again for texts, up to eight times as much for lists of token ids.
"""

from __future__ import annotations

from types import TracebackType

from gateway.errors import Refused
from policies.terms import Refusal

SMALL_BYTES = 65_536


class BodyRoom:
    """One each gateway."""

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def place(self) -> BodyPlace:
        return BodyPlace(self)


class BodyPlace:
    """Of one body; given back at the end of the block."""

    __slots__ = ("_bytes", "_room")

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self._bytes = 0

    def grows(self, size: int) -> None:
        """The body has `size` bytes by now."""
        if size <= SMALL_BYTES:
            return
        room = self._room
        if room.held_bytes + size - self._bytes > room.limit_bytes:
            raise Refused(
                Refusal.BODIES_FULL,
                "The gateway holds as many bytes of request bodies as it may (`server.max_bodies_mb`)",
            )
        room.held_bytes += size - self._bytes
        self._bytes = size

    def __enter__(self) -> BodyPlace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._room.held_bytes -= self._bytes
        self._bytes = 0
