"""Where sessions are kept: the protocol that the process's own memory and Redis both speak, and its words.

A session is known by `SessionKey`, a hash of tenant and session id, so that no store holds an id or mixes two tenants. It has two parts that live and
expire apart: its *home* (the backend that it went to last, with the fingerprint of what that one holds of it) and its *window* (the turns themselves, as
`policies.session_window` bounds them, and the system message beside them).

An append is one step that cannot be half done: it checks whether the turn's `id` is known already (then nothing changes and the answer is `DUPLICATE`: a
retry after a lost reply is safe; the last `REMEMBERED_IDS` ids of a session are known), whether `expected_seq` is still the session's (else `CONFLICT`, nothing
changes), then puts the turn at the end, raises `seq` by one and drops what no longer fits. Turns keep the order in which they arrived.

Every call may raise `StoreUnavailable`, and none takes longer than its implementation says; a window or a home that cannot be read (another schema
version, a key that is not known any more) counts as absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

SCHEMA_VERSION = 1
REMEMBERED_IDS = 64
"""Ids of turns that a session remembers: more than its turns that can be on their way at once."""

SessionKey = str
"""32 hexadecimal digits."""


def session_key(tenant: str, session: str) -> SessionKey:
    return hashlib.blake2b(f"{len(tenant)}:{tenant}{session}".encode(), digest_size=16).hexdigest()


class StoreUnavailable(Exception):
    """`reason` is one of a closed set of short words, fit for a metric's label."""

    def __init__(self, reason: StoreFault, message: str = "") -> None:
        super().__init__(message or str(reason))
        self.reason = reason


class StoreFault(StrEnum):
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    LOADING = "loading"
    READ_ONLY = "read_only"
    FULL = "full"
    REFUSED = "refused"
    """The password, the user or the TLS handshake."""
    OPEN = "open"
    """Not asked: the breaker around the store is open."""
    ANSWERED = "answered"
    """It answered with an error of another kind, which says nothing about its other calls."""
    OTHER = "other"


class Turn(NamedTuple):
    """`id` is unique to the request (1 to 64 printable ASCII characters). `messages` is JSON: message objects with commas between them, no brackets around.

    `is_cut`: the answer broke off; kept for the record, and part of a prompt only where the configuration says so.
    """

    id: str
    messages: bytes
    tokens: int
    follows: bool = False
    is_cut: bool = False


class Window(NamedTuple):
    """`seq` is the number of turns ever appended, 0 for a session that is not known. `system` is JSON as `Turn.messages`, empty without one."""

    seq: int = 0
    system: bytes = b""
    turns: tuple[Turn, ...] = ()
    dropped_turns: int = 0
    dropped_tokens: int = 0


NO_WINDOW = Window()


class Result(StrEnum):
    APPENDED = "appended"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"


class Appended(NamedTuple):
    """`seq` after it; `turns` and `tokens` are what the window holds now, the dropped ones what this append dropped."""

    result: Result
    seq: int
    turns: int = 0
    tokens: int = 0
    dropped_turns: int = 0
    dropped_tokens: int = 0


class Home(NamedTuple):
    """`fingerprint` is the deepest boundary of the last prompt that `backend` was sent, 0 where there was none."""

    backend: str
    fingerprint: int = 0


class Append(NamedTuple):
    """One turn to put behind the others. `system` None keeps the one that is there. `expected_seq` None takes any."""

    key: SessionKey
    turn: Turn
    ttl_seconds: float
    system: bytes | None = None
    expected_seq: int | None = None


class SessionStore(Protocol):
    async def window(self, key: SessionKey) -> Window:
        """`NO_WINDOW` where there is none or its time is over. Reading does not prolong it."""

    async def append(self, appends: Sequence[Append]) -> list[Appended]:
        """In this order; one round trip for all. Sets each session's time anew. Raises where any of it may not have happened: all may be sent again."""

    async def delete(self, key: SessionKey) -> bool:
        """Window and home; whether there was a window."""

    async def home(self, key: SessionKey) -> Home | None: ...

    async def set_homes(self, homes: Sequence[tuple[SessionKey, Home, float]]) -> None:
        """Each with its time to live in seconds; one round trip for all."""

    async def response(self, response_id: str) -> ResponseOwner | None:
        """Which tenant made a stored response, and where it is."""

    async def set_responses(self, responses: Sequence[tuple[str, ResponseOwner, float]]) -> None: ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


class ResponseOwner(NamedTuple):
    tenant: str
    backend: str
