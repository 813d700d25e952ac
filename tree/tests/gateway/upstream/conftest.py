from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from tests.gateway.upstream.loops import NamedAsyncioLoop, NamedUvloop, ShiftedLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Everything on the loop that serves and on the one that debuggers know; what is about time on one whose clock can be moved."""
    if item.path.stem == "test_timeouts":
        return {"shifted": ShiftedLoop}
    return {"asyncio": NamedAsyncioLoop, "uvloop": NamedUvloop}


@pytest_asyncio.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left
