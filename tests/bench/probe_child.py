"""An idle gateway that measures itself, in a process of its own: `run` starts one. As `headrace serve`, on the same loop, but for its ticks.

With ticks it has a timer due every `TICK_SECONDS`, and `longest_stall_ms` is the most CPU time that the loop's thread spent between two ticks: for so long nothing
else had its turn. Waiting for a core, which other work on the machine causes, is not in it. Ticks cost CPU, so that figure is taken without them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

import uvloop

from gateway.gpu_settings import GpuSettings
from gateway.server import Server
from gateway.settings import (
    BackendSettings,
    LogSettings,
    PoolSettings,
    ProbeSettings,
    ServerSettings,
    Settings,
)
from tests.bench.json_child import run_in_child, tell

TICK_SECONDS = 0.001
SETTLE_SECONDS = 3.0
"""Start-up, and the first readings."""
NEVER_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    ports: list[int]
    seconds: float
    load_seconds: float = NEVER_SECONDS
    gpu_seconds: float = NEVER_SECONDS
    ticks: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    cpu_share: float
    """Of one core."""
    longest_stall_ms: float
    """0 without ticks."""


def run(job: Job) -> Outcome:
    return Outcome(**run_in_child("tests.bench.probe_child", asdict(job), job.seconds + SETTLE_SECONDS))


async def _measured(job: Job) -> Outcome:
    server = Server(_settings(job), None, lambda lines: None)
    serving = asyncio.create_task(server.serve())
    await asyncio.sleep(SETTLE_SECONDS)
    ticks = _Ticks() if job.ticks else None
    began, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(job.seconds)
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    longest = ticks.stop() if ticks is not None else 0.0
    server.stop()
    await serving
    return Outcome(share, longest * 1e3)


def _settings(job: Job) -> Settings:
    urls = [f"http://127.0.0.1:{port}" for port in job.ports]
    backends = tuple(
        BackendSettings(
            url=url, gpu=GpuSettings(url=f"{url}/gpu", interval_seconds=job.gpu_seconds, stale_seconds=10.0)
        )
        for url in urls
    )
    return Settings(
        pools=(PoolSettings(name="default", backends=backends),),
        server=ServerSettings(port=0),
        probes=ProbeSettings(load_seconds=job.load_seconds),
        log=LogSettings(requests=False),
    )


class _Ticks:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = 0.0
        self._at = time.thread_time()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> float:
        self._timer.cancel()
        return self._longest

    def _tick(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._at)
        self._at = now
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)


def main() -> None:
    tell(asdict(uvloop.run(_measured(Job(**json.load(sys.stdin))))))


if __name__ == "__main__":
    main()
