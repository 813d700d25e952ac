"""Many streams held open at once, in a process of their own: for the memory that one open stream costs.

    python -m tests.bench.held_streams PORT COUNT

Opens COUNT streams, `OPENING_AT_ONCE` at a time, waits until each has brought its first content chunk, prints a line and keeps
reading until standard input is closed; then every client leaves at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

import uvloop

from tests.bench.chat_bodies import chat_body, chat_request
from tests.bench.children import ROOT, end, raise_descriptor_limit
from tests.bench.exchange import Exchange, Tally

OPENING_AT_ONCE = 100
CHUNKS = 10_000
"""Never reached: the streams are left long before."""


@contextlib.contextmanager
def held_streams(port: int, count: int) -> Iterator[None]:
    """`count` streams are open through `port` while the block runs."""
    argv = [sys.executable, "-m", "tests.bench.held_streams", str(port), str(count)]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        if line.strip() != b"open":
            raise RuntimeError(f"the {count} streams did not all open: {line.decode()}")
        yield
        process.stdin.close()
        process.wait(30)
    finally:
        end(process)


class HeldStream(Exchange):
    def __init__(self, tally: Tally) -> None:
        super().__init__(tally, lambda _: self.flowing.set(), timed=False, stamped=False)
        self.flowing = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.seen_chunks or self.tally.errors:
            self.flowing.set()


async def hold(port: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    tally = Tally()
    room = asyncio.Semaphore(OPENING_AT_ONCE)
    request = chat_request(port, chat_body(chunks=CHUNKS))

    async def open_stream() -> HeldStream:
        async with room:
            _, stream = await loop.create_connection(lambda: HeldStream(tally), "127.0.0.1", port)
            stream.send(request)
        await stream.flowing.wait()
        return stream

    streams = await asyncio.gather(*(open_stream() for _ in range(count)))
    print(f"errors: {tally.errors}, the first: {tally.first_error}" if tally.errors else "open", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    for stream in streams:
        stream.transport.close()


def main() -> None:
    raise_descriptor_limit()
    uvloop.run(hold(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
