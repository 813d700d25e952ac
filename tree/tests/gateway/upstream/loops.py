"""Event loops whose name service and clock are the test's choice.

`NamedAsyncioLoop` and `NamedUvloop` resolve what `names` has: a list of addresses, an error to raise, or an event that never comes to hang
on; `asked` counts. `ShiftedLoop` is asyncio's with a clock that `advance` moves, so that minutes of silence pass at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any, Protocol, cast

import uvloop

Answer = list[str] | OSError | asyncio.Event


class Names(Protocol):
    names: dict[str, Answer]
    asked: Counter[str]


def names_of_running_loop() -> Names:
    return cast(Names, asyncio.get_running_loop())


async def _look_up(loop: Names, host: str, port: int) -> list[Any]:
    loop.asked[host] += 1
    answer = loop.names[host]
    if isinstance(answer, asyncio.Event):
        await answer.wait()
        return []
    if isinstance(answer, OSError):
        raise answer
    return [
        (
            socket.AF_INET6 if ":" in address else socket.AF_INET,
            socket.SOCK_STREAM,
            6,
            "",
            (address, port),
        )
        for address in answer
    ]


class NamedAsyncioLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, Answer] = {}
        self.asked: Counter[str] = Counter()

    async def getaddrinfo(self, host: Any, port: Any, **kinds: Any) -> list[Any]:
        if host in self.names:
            return await _look_up(self, host, port)
        return await super().getaddrinfo(host, port, **kinds)


class NamedUvloop(uvloop.Loop):
    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, Answer] = {}
        self.asked: Counter[str] = Counter()

    async def getaddrinfo(self, host: Any, port: Any, **kinds: Any) -> Any:
        if host in self.names:
            return await _look_up(self, host, port)
        return await super().getaddrinfo(host, port, **kinds)


class ShiftedLoop(NamedAsyncioLoop):
    _shift_seconds = 0.0

    def time(self) -> float:
        return super().time() + self._shift_seconds

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and all that is due then happen."""
        self._shift_seconds += seconds
        for _ in range(10):
            await asyncio.sleep(0)


def shifted() -> ShiftedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ShiftedLoop)
    return loop
