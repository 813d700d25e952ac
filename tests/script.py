"""The words a test uses to tell `tests.backend` what to answer, and what it gets back: `Script` in, `Exchange` out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tests.framing import Head

Gate = asyncio.Event
JSON = (b"content-type", b"application/json")
SSE = (b"content-type", b"text/event-stream; charset=utf-8")


class Framing(Enum):
    LENGTH = auto()
    """`content-length` is added unless the script's headers have one; needs all chunks before the first gate opens."""
    CHUNKED = auto()
    """Each chunk of the script becomes one chunk on the wire; `transfer-encoding` is added unless given."""
    UNTIL_CLOSE = auto()
    """No framing header; a clean end closes the connection."""
    RAW = auto()
    """The chunks are everything there is on the wire, status line and framing included."""


class Ending(Enum):
    CLEAN = auto()
    """The body's end as its framing wants it; the connection stays open unless framing or headers say otherwise."""
    CLOSE_AFTER = auto()
    """A clean end, and the connection is closed behind it although nothing announced that."""
    CUT = auto()
    """Close without the terminal chunk (or with bytes missing, if `content-length` promised more)."""
    RESET = auto()
    """The same with a RST."""
    SILENT = auto()
    """Nothing more is sent; the connection stays open until the peer leaves."""
    STOP_READING = auto()
    """Silent, and nothing is read any more either, from before the answer's first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One answer. `informational` are whole 1xx heads without their blank line; `before_head` holds even the status line."""

    status: int = 200
    reason: bytes = b"OK"
    headers: Sequence[tuple[bytes, bytes]] = ()
    chunks: Iterable[bytes | Gate] = ()
    framing: Framing = Framing.LENGTH
    ending: Ending = Ending.CLEAN
    informational: Sequence[bytes] = ()
    before_head: Gate | None = None


def read_apart(turns: int = 8) -> Gate:
    """A gate between two chunks that a peer on this loop is to read one by one; it opens once so many turns of the loop have passed.

    One turn is not enough: uvloop keeps what is written until the turn's end, and would send both at once.
    """
    gate = Gate()
    loop = asyncio.get_running_loop()

    def turn(left: int) -> None:
        gate.set() if left == 0 else loop.call_soon(turn, left - 1)

    turn(turns)
    return gate


def json_script(content: Any, *, status: int = 200, reason: bytes = b"OK") -> Script:
    return Script(status=status, reason=reason, headers=[JSON], chunks=[json.dumps(content).encode()])


def sse_script(*events: bytes | Gate, ending: Ending = Ending.CLEAN) -> Script:
    """One chunk per event; `events` come without `data: ` and blank line, gates stand where the answer is to be held."""
    chunks = [event if isinstance(event, Gate) else b"data: " + event + b"\n\n" for event in events]
    return Script(headers=[SSE], chunks=chunks, framing=Framing.CHUNKED, ending=ending)


@dataclass(frozen=True, slots=True, eq=False)
class Request(Head):
    """`body` is what has come so far, decoded from its chunked coding; `raw_head` includes the blank line."""

    raw_head: bytes = b""
    pieces: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        self.pieces[:] = [b"".join(self.pieces)]
        return self.pieces[0]

    @property
    def method(self) -> str:
        return self.start_line.split(b" ")[0].decode()

    @property
    def target(self) -> str:
        return self.start_line.split(b" ")[1].decode("latin-1")

    @property
    def path(self) -> str:
        return self.target.split("?", 1)[0]

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True, eq=False)
class Exchange:
    """One recorded request and how its answer went."""

    request: Request
    connection: int
    """Number of the connection it came on, from 0: equal numbers mean that it was reused."""
    script: Script | None = None
    chunks_sent: int = 0
    """Chunks that the kernel has taken from the answer."""
    bytes_sent: int = 0
    peer_reset: bool = False
    body_complete: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """The script was played to its end."""
    closed_at: float = 0.0
    """On the loop's clock, when `peer_closed` was set."""
    peer_closed: asyncio.Event = field(default_factory=asyncio.Event)
    """The peer closed, half-closed or reset the connection before the answer was complete, or after it while idle."""
