"""The parent's side of the gateway's process: start it, see it ready, notice its end, end it.

The child is a session of its own, so that Ctrl-C reaches the demo alone and the end has an order: load first, gateway after it. Its
standard input is the leash (`served`). Its log is kept, the last `LOG_LINES` of it, to say why it ended if it did so unasked.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections import deque
from types import TracebackType

from gateway.demo.fleet import POOLS, Fleet
from gateway.demo.scrape import GatewayPages

HOST = "127.0.0.1"
READY_SECONDS = 15.0
END_SECONDS = 1.5
LOG_LINES = 60
_POLL_SECONDS = 0.05


class GatewayEnded(Exception):
    """The gateway did not start, or ended unasked."""


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the listener will: TIME_WAIT is no obstacle
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class GatewayChild:
    """`async with GatewayChild(port, fleet, redis_url) as child`: from its start to its end; "" keeps sessions in its memory."""

    def __init__(self, port: int, fleet: Fleet, redis_url: str = "") -> None:
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._plan = _plan(port, fleet, redis_url)
        self._process: asyncio.subprocess.Process
        self._ended: asyncio.Task[int]
        self._reading: asyncio.Task[None]

    async def __aenter__(self) -> GatewayChild:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.demo.served"),
            stdin=pipe,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=pipe,
            start_new_session=True,
            # The child imports what this process would, whatever lies in the directory it was started in.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._ended = asyncio.create_task(self._process.wait())
        self._reading = asyncio.create_task(self._read_log())
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._plan).encode() + b"\n")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait([self._ended], timeout=END_SECONDS)
        if not self._ended.done():
            self._process.kill()
        await self._ended
        await self._reading

    async def ready(self, pages: GatewayPages) -> None:
        """Until it can serve and knows every engine."""
        waited = 0.0
        while not await pages.is_ready():
            await asyncio.wait([self._ended], timeout=_POLL_SECONDS)
            waited += _POLL_SECONDS
            if self._ended.done() or waited > READY_SECONDS:
                raise GatewayEnded(await self._why())

    async def watch(self) -> None:
        """Raises when it ends."""
        await asyncio.shield(self._ended)
        raise GatewayEnded(await self._why())

    async def _why(self) -> str:
        if self._ended.done():
            await self._reading
            first = f"the gateway ended with status {self._ended.result()}"
        else:
            first = f"the gateway was not ready within {READY_SECONDS:g} s"
        return "\n".join([first, *self.log])

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.log.append(line.decode(errors="replace").rstrip())


def _plan(port: int, fleet: Fleet, redis_url: str) -> dict[str, object]:
    pools = [
        {
            "name": plan.name,
            "window": plan.window,
            "backends": [[member.name, member.url] for member in fleet.members if member.plan is plan],
        }
        for plan in POOLS
    ]
    return {"port": port, "redis_url": redis_url, "directory": fleet.directory, "pools": pools}
