"""One client's connection: sends a call, reads its answer to the end or leaves in the middle, and says how it ended."""

from __future__ import annotations

import asyncio
import socket
import struct
from random import Random
from typing import NamedTuple

from tests.bench.faults.watched_exchange import is_broken
from tests.bench.soak.configuration import PATIENCE_SECONDS
from tests.bench.soak.ledger import End

_TAIL_BYTES = 512


class Seen(NamedTuple):
    end: End
    status: int = 0


class Client:
    """Keeps its connection for as long as the gateway does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._has_begun = False

    async def connect(self) -> None:
        if self._reader is None or self._reader.at_eof():
            self.close()
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, data: bytes) -> Seen:
        """To the answer's end."""
        self.status = 0
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.connect()
                self.write(data)
                return await self._answer()
        except TimeoutError:
            self.close()
            return Seen(End.HUNG, self.status)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return Seen(End.CUT if self.status else End.LOST, self.status)

    def write(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def end_own_side(self) -> None:
        assert self._writer is not None
        self._writer.write_eof()

    async def read_some(self, count: int) -> bytes:
        assert self._reader is not None
        return await self._reader.read(count)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    def reset(self) -> None:
        if self._writer is not None:
            raw: socket.socket = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _answer(self) -> Seen:
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        self.status = int(head[9:12])
        tail = b""
        if b"transfer-encoding: chunked" in head:
            while size := int((await self._reader.readline() or b"").strip() or self._ended(), 16):
                tail = (tail + (await self._reader.readexactly(size + 2))[:-2])[-_TAIL_BYTES:]
            await self._reader.readexactly(2)
        else:
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            await self._reader.readexactly(int(length))
        if b"connection: close" in head:
            self.close()
        if self.status == 200 and is_broken(head, tail):
            return Seen(End.CUT, self.status)
        return Seen(End.ANSWERED, self.status)

    @staticmethod
    def _ended() -> bytes:
        raise asyncio.IncompleteReadError(b"", None)


async def misbehave(client: Client, data: bytes, chance: Random) -> None:
    """Sends all of the call or a part, reads some of the answer or none, stalls or does not, and leaves by a close or a reset."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await client.connect()
            how = chance.choice(
                ("in the request", "at once", "in the answer", "in the answer", "stalled", "half closed")
            )
            client.write(data[: chance.randrange(1, len(data))] if how == "in the request" else data)
            if how == "half closed":
                client.end_own_side()
            if how in ("in the answer", "stalled", "half closed"):
                await client.read_some(chance.randint(1, 4000))
            if how == "stalled":
                await asyncio.sleep(chance.uniform(0, 4))
            elif how == "in the answer":
                await asyncio.sleep(chance.uniform(0, 0.3))
    except (OSError, TimeoutError):
        pass
    finally:
        if chance.random() < 0.5:
            client.close()
        else:
            client.reset()
