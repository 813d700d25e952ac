"""What the machine keeps from the processes of a soak: time in which one was ready to run and no core was free, as the kernel counts it.

A bound on time that was missed for that says nothing about the gateway. So each such time becomes a span of its own, with the process as its subject: `LATE` is
half of what Redis has for an answer, `STARVED` is nearly all of a look, which the shortest bound on an engine would not survive twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.bench.process_tree import run_queue_seconds
from tests.bench.soak.configuration import STORE_MS
from tests.bench.soak.trouble import LATE, STARVED, Spans

GATEWAY, REDIS = "gateway", "redis"
LOOK_SECONDS = 0.5
LATE_SECONDS = STORE_MS / 1000 / 2
STARVED_SECONDS = 0.4


class Cores:
    def __init__(
        self,
        spans: Spans,
        processes: Callable[[], Mapping[str, int]],
        waited: Callable[[int], float] = run_queue_seconds,
    ) -> None:
        """`processes` are their pids by name; `waited` is for how long one has waited since it began, and raises `OSError` for one that has ended."""
        self.waited_seconds: dict[str, float] = {}
        self._spans = spans
        self._processes = processes
        self._waited = waited
        self._before: dict[int, float] = {}
        self._looked_at = 0.0

    async def watch(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.look(loop.time())
            await asyncio.sleep(LOOK_SECONDS)

    def look(self, now: float) -> None:
        before, self._before = self._before, {}
        since, self._looked_at = self._looked_at, now
        for name, pid in self._processes().items():
            try:
                waited = self._before[pid] = self._waited(pid)
            except OSError:  # it is being killed
                continue
            seconds = waited - before.get(pid, waited)
            self.waited_seconds[name] = self.waited_seconds.get(name, 0.0) + seconds
            for trouble, least in ((LATE, LATE_SECONDS), (STARVED, STARVED_SECONDS)):
                if seconds >= least:
                    self._spans.begin(trouble, name, since).ended = now
