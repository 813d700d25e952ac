"""Clients that never finish their request's head, in a process of their own.

    python -m tests.bench.soak.slow_clients PORT COUNT

Holds COUNT connections, each with the beginning of a head and one more byte now and then; one that the gateway ends is opened anew at once. They come evenly over
`OPENING_SECONDS`, as those that keep a gateway busy for long would. Prints a line when all are open, and leaves when standard input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import cast

import uvloop

from tests.bench.children import ROOT, end, raise_descriptor_limit

OPENING_SECONDS = 9.0
"""Less than a head may take, so that all are open at a time."""
BYTE_SECONDS = (3.0, 9.0)
_BEGINNING = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "


@contextlib.contextmanager
def slow_clients(port: int, count: int) -> Iterator[None]:
    """While the block runs there are `count` of them."""
    argv = [sys.executable, "-m", "tests.bench.soak.slow_clients", str(port), str(count)]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        if line.strip() != b"open":
            raise RuntimeError(f"the {count} slow clients did not all open: {line.decode()}")
        yield
        process.stdin.close()
        process.wait(10)
    finally:
        end(process)


class _Slow(asyncio.Protocol):
    def __init__(self, chance: Random) -> None:
        self.ended = asyncio.Event()
        self._chance = chance
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(_BEGINNING)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self.ended.set()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(self._chance.uniform(*BYTE_SECONDS), self._another_byte)

    def _another_byte(self) -> None:
        self.transport.write(b"x")
        self._wait()


async def _hold(port: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    chance = Random(count)
    opened = 0
    all_open = asyncio.Event()

    async def one(number: int) -> None:
        nonlocal opened
        is_first = True
        await asyncio.sleep(OPENING_SECONDS * number / count)
        while True:
            _, slow = await loop.create_connection(lambda: _Slow(chance), "127.0.0.1", port)
            opened += is_first
            is_first = False
            if opened == count:
                all_open.set()
            await slow.ended.wait()

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    await all_open.wait()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


def main() -> None:
    raise_descriptor_limit()
    uvloop.run(_hold(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
