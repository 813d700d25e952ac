"""The official openai clients, for Python and for Node, streaming one chat through a gateway: what a program would get, and what is raised."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from openai import APIError, AsyncOpenAI

from tests.running import Running

NODE = Path(__file__).parent / "node"


class Heard(NamedTuple):
    chunks: list[dict[str, Any]]
    error: str | None
    """The message of what the client raised at the end; None after a proper one."""


def official(gateway: Running, retries: int = 0, key: str = "sk-none") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=retries)


async def python_hears(gateway: Running, times: int = 1) -> list[Heard]:
    heard = []
    async with official(gateway) as api:
        for _ in range(times):
            chunks: list[dict[str, Any]] = []
            error = None
            try:
                stream = await api.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hello"}], stream=True
                )
                async for chunk in stream:
                    chunks.append(chunk.to_dict())  # noqa: PERF401  # what came before an error counts
            except APIError as raised:
                error = raised.message
            heard.append(Heard(chunks, error))
    return heard


async def node_hears(gateway: Running, times: int = 1) -> list[Heard]:
    node = shutil.which("node")
    if node is None or not (NODE / "node_modules" / "openai").is_dir():
        pytest.skip("the official client for Node is not installed (npm ci --prefix tests/field/node)")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        node, str(NODE / "converse.mjs"), f"{gateway.url}/v1", str(times), stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(60):
            written, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaints.decode()
    return [Heard(**json.loads(line)) for line in written.splitlines()]


CLIENTS = {"python": python_hears, "node": node_hears}
