"""The real gateway as a child process: `async with GatewayProcess("--backend", url) as gateway`, then `gateway.port`.

Starts `python -m gateway serve` on a free port of 127.0.0.1 and waits until `/readyz` says 200 (`ready=False`: until the port
accepts). What it writes is collected in `gateway.stdout` and `gateway.stderr`. The block's end sends SIGTERM, and SIGKILL to that
very process if it has not ended within `END_SECONDS`; `gateway.returncode` then tells how it ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from types import TracebackType

from tests import client

START_SECONDS = 30
END_SECONDS = 15
POLL_SECONDS = 0.02


def free_port(host: str = "127.0.0.1") -> int:
    """Free a moment ago; the kernel does not hand it out again soon, so a child can take it."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class GatewayProcess:
    def __init__(
        self,
        *arguments: str,
        port: int = 0,
        ready: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` is added to this process's own."""
        self.port = port or free_port()
        self.arguments = [*arguments, "--host", "127.0.0.1", "--port", str(self.port)]
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._wait_ready = ready
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process
        self._ended: asyncio.Task[int]
        self._collectors: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        """Until it has ended by itself; its exit status."""
        async with asyncio.timeout(END_SECONDS):
            return await asyncio.shield(self._ended)

    async def __aenter__(self) -> GatewayProcess:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", *self.arguments),
            stdout=pipe,
            stderr=pipe,
            env=self._environment,
        )
        self._ended = asyncio.create_task(self._process.wait())
        assert self._process.stdout is not None and self._process.stderr is not None
        self._collectors = [
            asyncio.create_task(_collect(self._process.stdout, self.stdout)),
            asyncio.create_task(_collect(self._process.stderr, self.stderr)),
        ]
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._started()
        except BaseException as error:
            await self._stop()
            error.add_note(f"the gateway wrote:\n{(self.stdout + self.stderr).decode(errors='replace')}")
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _started(self) -> None:
        while not await self._answers():
            # Between two attempts, wait for the one thing that would make further ones pointless.
            await asyncio.wait([self._ended], timeout=POLL_SECONDS)
            if self._ended.done():
                raise ChildProcessError(f"the gateway ended with {self._ended.result()} before it was ready")

    async def _answers(self) -> bool:
        try:
            if not self._wait_ready:
                (await client.connect(self.port)).close()
                return True
            answer = await client.send(self.port, client.request("GET", "/readyz"))
        except (ConnectionError, EOFError):
            return False
        return answer.status == 200

    async def _stop(self) -> None:
        if not self._ended.done():
            self._process.terminate()
            await asyncio.wait([self._ended], timeout=END_SECONDS)
        if not self._ended.done():
            self._process.kill()
        await self._ended
        await asyncio.gather(*self._collectors)


async def _collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    while data := await stream.read(65536):
        into += data
