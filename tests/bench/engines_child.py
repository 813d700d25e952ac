"""What a process with several emulated engines in it is made of: it starts them, and ends when it is told to.

One process, because eight would spend more of a small machine's cores on the emulation. Idle connections are kept for a minute, so that no proxy is
judged by how it meets an engine's closing them.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Sequence

from gateway.emulator.server import EmulatedServer, start
from gateway.emulator.settings import EngineSettings

KEEP_ALIVE_SECONDS = 60.0


async def started(settings: Sequence[EngineSettings], ports: Sequence[int]) -> list[EmulatedServer]:
    servers = [await start(one, "127.0.0.1", port) for one, port in zip(settings, ports, strict=True)]
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    return servers


def told_to_end() -> asyncio.Event:
    """Set by SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for asked_to_end in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(asked_to_end, stop.set)
    return stop
