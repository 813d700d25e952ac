"""Field cases run on the event loop that `headrace serve` runs on, as system tests do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.gateway.upstream.loops import NamedUvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": NamedUvloop}
