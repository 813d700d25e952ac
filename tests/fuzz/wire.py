"""The client's and the engine's side of the gateway without sockets: bytes in, cut anywhere, and what was made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from uvicorn.config import Config
from uvicorn.server import ServerState

from gateway.front import FrontProtocol
from gateway.settings import ServerSettings
from gateway.upstream.incoming import Incoming

Request = tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]
SETTINGS = ServerSettings(max_header_kb=2)


class _Wire(asyncio.Transport):
    """A client that reads all at once and sends only while it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False
        self.reading = True
        self.protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol


async def _quiet() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def _served(pieces: Sequence[bytes], seen: list[Request], faults: list[Any]) -> bytes:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        seen.append((scope["method"].encode(), scope["raw_path"], scope["headers"], body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    config = Config(app, interface="asgi3", lifespan="off", log_config=None, access_log=False, ws="none", server_header=False, date_header=False)  # fmt: skip
    config.load()
    wire = _Wire()
    front = FrontProtocol(config, ServerState(), SETTINGS, lambda: False, loop)
    front.connection_made(wire)
    waiting = list(pieces)
    while waiting and not wire.closed:
        if wire.reading:
            front.data_received(waiting.pop(0))
        await _quiet()
    await _quiet()
    front.connection_lost(None)
    await _quiet()
    return bytes(wire.written)


def served(pieces: Sequence[bytes]) -> tuple[list[Request], bytes]:
    """The requests that an application behind the front got in full, and what was written to the client."""
    seen: list[Request] = []
    faults: list[Any] = []
    written = asyncio.run(_served(pieces, seen, faults))
    assert not faults, faults
    return seen, written


class Read(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_complete: bool
    """Its framing has come to its end."""
    is_reusable: bool
    """The connection may carry another request."""
    most_held: int


class _Engine(Incoming):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.aborted = False
        self._reading = _Wire()

    @property
    def is_open(self) -> bool:
        return not self.aborted

    def abort(self) -> None:
        self.aborted = True


async def _answered(pieces: Sequence[bytes], has_ended: bool) -> Read:
    engine = _Engine(asyncio.get_running_loop())
    engine.busy = True
    body = b""
    most = 0
    for piece in pieces:
        if engine.aborted:
            break
        engine.get_buffer(-1)[: len(piece)] = piece
        engine.buffer_updated(len(piece))
        read = engine.read_nowait()
        most = max(most, len(read), sum(len(name) + len(value) for name, value in engine.headers))
        body += read
    if has_ended and not engine.aborted:
        engine.eof_received()
    is_sound = engine.complete and engine._failure is None
    return Read(engine.status, engine.headers, body, is_sound, is_sound and engine._reusable, most)


def answered(pieces: Sequence[bytes], has_ended: bool) -> Read:
    """What the gateway takes an engine's bytes for."""
    return asyncio.run(_answered(pieces, has_ended))
