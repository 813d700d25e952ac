"""The clients of a soak: closed loops with pauses, most of which wait for their answers, while others misbehave."""

from __future__ import annotations

import asyncio
from random import Random

from tests.bench.soak.client import Client, misbehave
from tests.bench.soak.ledger import End, Fate, Ledger
from tests.bench.soak.requests import Requests

WAITING = 40
LEAVING = 12
FLOODS = 0.15
"""Share of the calls of those that leave."""
PAUSE_SECONDS = 0.35
"""On average, between two calls of one client."""


async def traffic(
    port: int,
    ledger: Ledger,
    chance: Random,
    requests: Requests,
    over: asyncio.Event,
    leaving: int = LEAVING,
) -> None:
    """Until it is over and every client has its answer."""
    clients = [_waits(port, ledger, Random(chance.random()), requests, over) for _ in range(WAITING)]
    clients += [_leaves(port, ledger, Random(chance.random()), requests, over) for _ in range(leaving)]
    await asyncio.gather(*clients)


async def _waits(port: int, ledger: Ledger, chance: Random, requests: Requests, over: asyncio.Event) -> None:
    now = asyncio.get_running_loop().time
    client = Client(port)
    while await _pause(chance, over):
        call = requests.make()
        began = now()
        end, status = await client.ask(call.data)
        ledger.client_saw(call.request_id, Fate(call.kind, end, status, began, now()))
        if chance.random() < 0.02:
            client.close()
    client.close()


async def _leaves(port: int, ledger: Ledger, chance: Random, requests: Requests, over: asyncio.Event) -> None:
    now = asyncio.get_running_loop().time
    while await _pause(chance, over):
        call = requests.make_flood() if chance.random() < FLOODS else requests.make()
        began = now()
        await misbehave(Client(port), call.data, chance)
        ledger.client_saw(call.request_id, Fate(call.kind, End.LEFT, 0, began, now()))


async def _pause(chance: Random, over: asyncio.Event) -> bool:
    """Whether it goes on."""
    try:
        async with asyncio.timeout(chance.expovariate(1 / PAUSE_SECONDS)):
            await over.wait()
    except TimeoutError:
        return True
    return False
