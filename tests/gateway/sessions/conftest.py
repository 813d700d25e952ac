"""Real servers, started once for all that ask for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis_server import SentinelTrio, redis_cluster, redis_server, sentinel_trio, tcp_server


@pytest.fixture(scope="package")
def server() -> Iterator[str]:
    with redis_server() as url:
        yield url


@pytest.fixture(scope="package")
def locked_port() -> Iterator[int]:
    with tcp_server("--requirepass", "open sesame") as locked:
        yield locked.port


@pytest.fixture(scope="package")
def cluster() -> Iterator[str]:
    with redis_cluster() as url:
        yield url


@pytest.fixture(scope="package")
def trio() -> Iterator[SentinelTrio]:
    with sentinel_trio() as three:
        yield three
