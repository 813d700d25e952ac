"""Prometheus and Alertmanager, where they are installed: Debian's packages `prometheus` and `prometheus-alertmanager` have them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import client
from tests.gateway_process import free_port

START_SECONDS = 30
_POLL_SECONDS = 0.05


def tool(name: str) -> str:
    """Its path; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (apt-get install prometheus prometheus-alertmanager)")
    return found


def run(name: str, *arguments: str, folder: Path) -> str:
    """What it writes; it has to be content."""
    done = subprocess.run(
        [tool(name), *arguments], cwd=folder, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@asynccontextmanager
async def serving(name: str, *arguments: str, ready: str, folder: Path) -> AsyncIterator[int]:
    """The port on 127.0.0.1 that it was told by `--web.listen-address`; it has answered `ready` with 200, and ends with the block."""
    port, path = free_port(), tool(name)
    process = await asyncio.create_subprocess_exec(
        path,
        *arguments,
        f"--web.listen-address=127.0.0.1:{port}",
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = asyncio.create_task(process.stderr.read())
    ended = asyncio.create_task(process.wait())
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _answers(port, ready):
                await asyncio.wait([ended], timeout=_POLL_SECONDS)
                assert not ended.done(), f"{name} ended: {(await said).decode()}"
        yield port
    finally:
        if not ended.done():
            process.kill()
        await ended
        await said


async def _answers(port: int, path: str) -> bool:
    try:
        return (await client.send(port, client.request("GET", path))).status == 200
    except (ConnectionError, EOFError):
        return False
