"""Engines and the gateway before them, one engine after the other for the whole test run.

Two real engines at once need 5 GB and the cores the tests need; only `test_prefix_affinity` has them. pytest runs all tests of one engine before
it starts the next, as long as each test gets its engine from a `parametrize` of the engine alone: beside a second
name the parameter would be the single test's, and each test would start an engine.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator

import openai
import pytest

from tests.engine.engines import Engine, running_engine
from tests.engine.gateways import running_gateway

ANSWER_SECONDS = 60


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The engine named by the test's parameter."""
    log = tmp_path_factory.mktemp("engine") / f"{request.param}.log"
    with running_engine(request.param, log) as running:
        yield running


@pytest.fixture(scope="session")
def gateway(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway in front of the engine, started without a configuration file.

    With `HEADRACE_GATEWAY_URL` in the environment it is the one running there (an image under test, say).
    """
    given = os.environ.get("HEADRACE_GATEWAY_URL")
    if given:
        yield given.rstrip("/")
        return
    with running_gateway([engine.url], tmp_path_factory.mktemp("gateway") / f"{engine.name}.log") as url:
        yield url


@pytest.fixture
async def openai_client() -> AsyncIterator[Callable[[str], openai.AsyncOpenAI]]:
    """Makes official clients, all closed at the end of the test."""
    clients: list[openai.AsyncOpenAI] = []

    def make(url: str) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="EMPTY", max_retries=0, timeout=ANSWER_SECONDS
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
