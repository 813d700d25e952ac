"""What a fleet can do at most: on each port so many clients that call again as soon as they are answered."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping

from tests.bench.slo.exchange import Exchange


async def answers_per_second(
    clients: Mapping[str, int], make: Callable[[int], bytes], *, seconds: float, warm_up_seconds: float
) -> float:
    """`clients` by port, `make(port)` gives the next request; counted after the warm-up."""
    loop = asyncio.get_running_loop()
    answered = wrong = 0

    def again(port: int, one: Exchange, status: int) -> None:
        nonlocal answered, wrong
        answered += status == 200
        wrong += status != 200
        one.call = -1
        if not one.closed:
            one.send(0, make(port))

    async def client(port: int) -> None:
        _, made = await loop.create_connection(
            lambda: Exchange(lambda one, status: again(port, one, status)), "127.0.0.1", port
        )
        made.send(0, make(port))

    for port, count in clients.items():
        for _ in range(count):
            await client(int(port))
    without_pauses()
    await asyncio.sleep(warm_up_seconds)
    before, began = answered, time.monotonic()
    await asyncio.sleep(seconds)
    rate = (answered - before) / (time.monotonic() - began)
    if wrong:
        raise RuntimeError(f"{wrong} answers of the engines were no answers")
    return rate


def without_pauses() -> None:
    """What is allocated from here on has no cycles worth a pause of the clock."""
    gc.collect()
    gc.freeze()
    gc.disable()
