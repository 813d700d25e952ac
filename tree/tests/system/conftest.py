"""System tests run on the event loop that `headrace serve` runs on: its transports differ from asyncio's own in what they buffer and report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.gateway.upstream.loops import NamedUvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": NamedUvloop}
