"""An engine full of requests that have answered nothing, and an emergency that takes the slot of one of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.errors import Refused
from gateway.settings import EmergencySettings, LanesSettings
from policies.terms import Refusal
from routing.preemption import Running
from tests.backend import Backend, Exchange, Gate, Request, Script, sse_script
from tests.running import running
from tests.system.crowd import (
    BATCH,
    INTERACTIVE,
    Crowd,
    Header,
    Held,
    assert_refused,
    clock_passes,
    question,
    route,
)
from tests.system.test_emergencies import BANK, EMERGENCY, SHOP, TENANTS

LONGER_THAN_THE_THRESHOLD = 0.4
NO_RESERVE = LanesSettings(emergency=EmergencySettings(reserved_per_pool=0))


def tries(backend: Backend, number: int) -> list[Exchange]:
    """What the engine saw of request `number`."""
    return [
        one for one in backend.exchanges if one.body_complete.is_set() and one.request.json()["n"] == number
    ]


async def full(crowd: Crowd, held: Held, *headers: Header) -> None:
    """Requests 0 and 1 run."""
    for number in (0, 1):
        await crowd.send(number, SHOP, *headers)
    await held.has(0, 1)


async def test_an_emergency_takes_the_slot_of_a_batch_request_that_is_answered_later_in_full() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=2, tenants=TENANTS, lanes=NO_RESERVE) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await full(crowd, held, BATCH)
        await crowd.send(2, SHOP, INTERACTIVE)
        await crowd.send(9, BANK, EMERGENCY)
        await backend.until(lambda: bool(tries(backend, 9)))
        [first] = tries(backend, 1)
        await first.peer_closed.wait()
        held.let(9)
        served = await crowd.route(9)
        assert (served["lane"], served["attempts"]) == ("emergency", "1")
        await backend.until(lambda: len(tries(backend, 1)) == 2)
        assert not tries(backend, 2), "it has its old place, before who came later"
        router = gateway.gateway.router
        assert router.preempted == 1 and gateway.present() == [True]
        held.let(0, 1, 2)
        again = await crowd.answer(1)
        assert again.body == b"{}"
        assert (route(again)["attempts"], route(again)["lane"]) == ("2", "batch")
        assert "queue_ms" in route(again)
        for number in (0, 2):
            assert (await crowd.route(number))["attempts"] == "1"
        assert len(tries(backend, 0)) == 1 and not tries(backend, 0)[0].peer_closed.is_set()
        assert gateway.metric("headrace_retries_total") == 0


@pytest.mark.parametrize(
    "reason", ["switched off", "no key for it", "its head has left", "it is not repeatable"]
)
async def test_nobody_gives_way_where(reason: str) -> None:
    gate, ends = Gate(), Gate()

    def script(request: Request) -> Script:
        if request.json()["n"] == 0 and reason == "its head has left":
            return sse_script(ends, b"[DONE]")
        return Script(before_head=gate, chunks=[b"{}"])

    extra: dict[str, Any] = {}
    if reason == "its head has left":
        extra = {"stream": True}
    elif reason == "it is not repeatable":
        extra = {"store": True}
    lanes = LanesSettings(
        emergency=EmergencySettings(reserved_per_pool=0, preemption=reason != "switched off")
    )
    async with (
        Backend(script) as backend,
        running(backend, window=1, tenants=TENANTS, lanes=lanes) as gateway,
        AsyncExitStack() as stack,
    ):
        connection = await stack.enter_async_context(
            await gateway.begin({**question(0), **extra}, headers=[SHOP, BATCH])
        )
        exchange = await backend.exchange()
        if reason == "its head has left":
            await connection.read_head()
        crowd = Crowd(gateway, stack)
        await crowd.send(9, SHOP if reason == "no key for it" else BANK, EMERGENCY)
        await clock_passes(LONGER_THAN_THE_THRESHOLD)
        assert not exchange.peer_closed.is_set() and gateway.gateway.router.preempted == 0
        gate.set()
        ends.set()
        assert (await crowd.answer(9)).status == 200


async def test_a_request_that_has_to_end_in_the_moment_in_which_it_gives_way_leaves_nothing_behind() -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, tenants=TENANTS, lanes=NO_RESERVE) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0, SHOP, BATCH)
        await held.has(0)
        await crowd.send(9, BANK, EMERGENCY)
        router = gateway.gateway.router
        [(victim, attempt)] = [
            (one, attempt)
            for one in gateway.gateway.proxy.live
            if (attempt := one.spare_attempt()) is not None
        ]
        later = asyncio.get_running_loop().time() + LONGER_THAN_THE_THRESHOLD
        assert router.preemption.choose(lambda: [Running(attempt[0], 0.0)], later) == [attempt[0]]
        victim.end_attempt()
        victim.interrupt(Refused(Refusal.SHUTTING_DOWN, "The gateway is shutting down"))
        assert_refused(await crowd.answer(0), 503, b"shutting_down")
        await backend.until(lambda: bool(tries(backend, 9)))
        held.let(9)
        assert (await crowd.answer(9)).status == 200
        assert router.preempted == 0 and len(tries(backend, 0)) == 1 and not attempt[0].gives_way
        await crowd.send(10, SHOP, BATCH)
        held.let(10)
        assert (await crowd.answer(10)).status == 200
