"""Field cases run on the event loop that `headrace serve` runs on, as system tests do."""

from __future__ import annotations

from tests.system.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
