"""Clients that behave badly, in a process of their own: they leave, reset and stall at random points, and end by themselves.

    python -m tests.bench.soak_clients PORT COUNT SEED

`AT_ONCE` clients run visit after visit until COUNT visits are done, each on a connection of its own. A visit is one of `VISITS`,
and ends with a close or a reset (`SO_LINGER` 0), evenly. Progress lines go to standard output, at the end one line of counts:
visits by kind, and answers by status.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import uvloop

from tests.bench.chat_bodies import FLOOD_TOKENS, chat_body, chat_request

AT_ONCE = 128
VISIT_SECONDS = 20.0
LONGEST_STALL_SECONDS = 0.4
CHUNKS = 30


class Visitor:
    """One connection and what it has seen; `chance` decides where it goes wrong."""

    def __init__(self, port: int, chance: random.Random, counts: Counter[str]) -> None:
        self.port = port
        self.chance = chance
        self.counts = counts
        self.at_end = False

    async def visit(self) -> None:
        kind, (_, behave) = self.chance.choices(
            list(VISITS.items()), weights=[weight for weight, _ in VISITS.values()]
        )[0]
        try:
            async with asyncio.timeout(VISIT_SECONDS):
                self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4096)
                try:
                    await behave(self)
                finally:
                    self._leave()
        except TimeoutError:
            kind = f"{kind}: hung for {VISIT_SECONDS:.0f} s"
        except (OSError, asyncio.IncompleteReadError):
            kind = f"{kind}: cut by the other side"
        self.counts[kind] += 1

    def _leave(self) -> None:
        if self.chance.random() < 0.5:
            raw: socket.socket = self.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()

    def _request(self, chunks: int) -> bytes:
        usage = chunks > 0 and self.chance.random() < 0.5
        body = chat_body(chunks=chunks, variant=self.chance.randrange(64), include_usage=usage)
        return chat_request(self.port, body)

    async def _status(self) -> None:
        line = await self.reader.readuntil(b"\r\n")
        self.counts[f"status {line[9:12].decode()}"] += 1

    async def _read_some(self, most_bytes: int) -> None:
        """Some bytes of the answer, at most to its end: the connection stays open after it and nothing more would come."""
        left = self.chance.randint(1, most_bytes)
        tail = b""
        while left > 0 and tail != b"0\r\n\r\n" and (data := await self.reader.read(4096)):
            left -= len(data)
            tail = (tail + data)[-5:]
            self.at_end = tail == b"0\r\n\r\n"

    async def incomplete_request(self) -> None:
        """Leaves in the middle of its head or body."""
        request = self._request(self.chance.choice((0, CHUNKS)))
        self.writer.write(request[: self.chance.randrange(len(request))])
        await self._pause(0.01)

    async def before_the_answer(self) -> None:
        """Sends a whole request and leaves at once or within a few milliseconds."""
        self.writer.write(self._request(self.chance.choice((0, CHUNKS))))
        await self._pause(0.005)

    async def in_the_stream(self) -> None:
        self.writer.write(self._request(CHUNKS))
        await self._status()
        await self._read_some(8_000)

    async def stalled_in_the_stream(self) -> None:
        """Stops reading for a while, then reads on or leaves."""
        self.writer.write(self._request(CHUNKS))
        await self._status()
        await self._read_some(4_000)
        await self._pause(LONGEST_STALL_SECONDS)
        if not self.at_end:
            await self._read_some(8_000)

    async def stalled_in_a_flood(self) -> None:
        """An answer of 1 MiB that comes as fast as it is read, so that every buffer on the way is full."""
        self.writer.write(self._request(FLOOD_TOKENS))
        await self._status()
        await self._pause(LONGEST_STALL_SECONDS)
        await self._read_some(400_000)

    async def half_closed(self) -> None:
        """Ends its own side after the request and waits for what the gateway makes of it."""
        self.writer.write(self._request(CHUNKS))
        self.writer.write_eof()
        await self._read_some(8_000)

    async def well_behaved(self) -> None:
        """Now and then a call that is read to its end, on which a leaked slot would be missed."""
        self.writer.write(self._request(0))
        await self._status()
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(
            (line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0"
        )
        await self.reader.readexactly(int(length))

    async def _pause(self, longest_seconds: float) -> None:
        await asyncio.sleep(self.chance.choice((0.0, self.chance.uniform(0, longest_seconds))))


Behaviour = Callable[[Visitor], Awaitable[None]]
VISITS: dict[str, tuple[int, Behaviour]] = {
    "incomplete request": (2, Visitor.incomplete_request),
    "left before the answer": (3, Visitor.before_the_answer),
    "left in the stream": (4, Visitor.in_the_stream),
    "stalled in the stream": (2, Visitor.stalled_in_the_stream),
    "stalled in a flood": (1, Visitor.stalled_in_a_flood),
    "half closed": (1, Visitor.half_closed),
    "well behaved": (1, Visitor.well_behaved),
}


async def soak(port: int, count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    started = 0

    async def client() -> None:
        nonlocal started
        while started < count:
            started += 1
            if started % max(1, count // 20) == 0:
                print(f"{started:,} of {count:,} visits", flush=True)
            await Visitor(port, chance, counts).visit()

    await asyncio.gather(*(client() for _ in range(min(AT_ONCE, count))))
    return counts


def main() -> None:
    port, count, seed = map(int, sys.argv[1:4])
    print(json.dumps(uvloop.run(soak(port, count, seed))), flush=True)


if __name__ == "__main__":
    main()
