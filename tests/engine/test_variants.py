"""The recorded requests that need a vLLM with keys, ids in its answers' headers and a bounded queue, asked again as in `test_differential`.

One such vLLM serves all of them, behind two gateways: one without a key of its own, which passes on what a client brings, and for what
it answers itself one that has a key, without which it learns nothing of the engine's models.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from tests import captures, client
from tests.captures import Capture
from tests.engine.engines import MODEL, Engine, OwnVllm, read_load
from tests.engine.gateways import configured_gateway, running_gateway
from tests.engine.replays import WAIT_SECONDS, replay, same_both_ways
from tests.own_answers import OWN_ANSWERS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300, func_only=True)]

FLAGS = (
    *("--scheduling-policy", "fcfs"),
    *("--api-key", "sk-one", "sk-two"),
    "--enable-request-id-headers",
    *("--max-num-queued-reqs", "10"),
)
RUNNING, WAITING = 8, 2
"""What such a vLLM has at most: eight slots (`engine.sh`), ten requests."""
KEY = (b"authorization", b"Bearer sk-one")
CASES = [one for one in captures.load("vllm-0.32.0") if one.is_variant]
FULL = [one for one in CASES if one.name.startswith("queue-full")]
"""Asked while the engine can take no more."""


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = OwnVllm(tmp_path_factory.mktemp("variant") / "vllm.log", flags=FLAGS)
    try:
        engine.start()
        engine.wait()
        yield Engine("vllm", engine.url)
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def keyless_gateway(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_gateway([vllm.url], tmp_path_factory.mktemp("keyless") / "gateway.log") as url:
        yield url


@pytest.fixture(scope="module")
def gateway_with_a_key(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    backend = {"url": vllm.url, "api_key": "sk-one"}
    settings = json.dumps({"pools": [{"name": "main", "backends": [backend]}]})
    with configured_gateway(settings, tmp_path_factory.mktemp("keyed") / "gateway.log") as url:
        yield url


@pytest.mark.parametrize("capture", [pytest.param(one, id=one.name) for one in CASES if one not in FULL])
async def test_keys_ids_and_priorities_come_out_as_from_vllm(
    vllm: Engine, keyless_gateway: str, gateway_with_a_key: str, capture: Capture
) -> None:
    await _alike(vllm, keyless_gateway, gateway_with_a_key, capture)


async def test_a_full_engine_is_as_full_through_the_gateway(
    vllm: Engine, keyless_gateway: str, gateway_with_a_key: str
) -> None:
    async with _full(vllm):
        for capture in FULL:
            await _alike(vllm, keyless_gateway, gateway_with_a_key, capture)


async def _alike(vllm: Engine, keyless_gateway: str, gateway_with_a_key: str, capture: Capture) -> None:
    if capture.name not in OWN_ANSWERS:
        await same_both_ways(vllm.url, keyless_gateway, capture)
        return
    assert (await replay(vllm.url, capture)).status == capture.status
    OWN_ANSWERS[capture.name].holds_for(await replay(gateway_with_a_key, capture))


@asynccontextmanager
async def _full(vllm: Engine) -> AsyncIterator[None]:
    """As many long streams as it takes, each begun or waiting."""
    port = urlsplit(vllm.url).port
    assert port is not None
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as watcher:
        connections = []
        for number in range(RUNNING + WAITING):
            asked = {
                "model": MODEL,
                "messages": [{"role": "user", "content": f"busy {number}"}],
                "stream": True,
                "max_tokens": 8_000,
                "ignore_eos": True,
            }
            connection = await client.connect(port, wait_seconds=WAIT_SECONDS)
            connections.append(connection)
            body = json.dumps(asked).encode()
            headers = [KEY, (b"content-type", b"application/json")]
            await connection.send(client.request("POST", "/v1/chat/completions", headers, body))
        await _until_has(watcher, vllm, RUNNING, WAITING)
        yield
        for connection in connections:
            connection.close()
        await _until_has(watcher, vllm, 0, 0)


async def _until_has(watcher: httpx.AsyncClient, vllm: Engine, running: int, waiting: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            load = await read_load(watcher, vllm)
            if (load.running, load.waiting) == (running, waiting):
                return
