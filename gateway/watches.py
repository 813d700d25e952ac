"""One task for each thing that is watched; things come and go with the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, TypeVar

Watched = TypeVar("Watched", bound=Hashable)


class Watches(Generic[Watched]):
    def __init__(self, watch: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
        """`watch` goes on until it is cancelled."""
        self._watch = watch
        self._tasks: dict[Watched, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def keep(self, wanted: Iterable[Watched]) -> None:
        """Those of what is not wanted any more end; those of what still is go on."""
        wanted = set(wanted)
        for one in [known for known in self._tasks if known not in wanted]:
            self._tasks.pop(one).cancel()
        for one in wanted:
            if one not in self._tasks:
                self._tasks[one] = asyncio.create_task(self._watch(one))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
