"""Latency targets where windows are full: who is told at once that it will not be in time, and whose wait ends with its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from gateway.settings import AnonymousSettings, BusinessTypeSettings, MatchSettings, SheddingSettings
from tests.emulator.running import until
from tests.running import Running, running
from tests.system.crowd import (
    INTERACTIVE,
    Crowd,
    Header,
    Held,
    assert_refused,
    clock_passes,
    question,
)

URGENT = (BusinessTypeSettings(name="urgent", latency_target_ms=1, match=MatchSettings(models=("m",))),)
BUSY = 24


async def measured(held: Held, crowd: Crowd, *headers: Header) -> None:
    """A queue whose drain is known: `BUSY` requests, of which the first held its slot for 50 ms and the last still runs.

    So a place in the queue takes 50 ms / `BUSY` = 2 ms at least, however fast the machine is.
    """
    for number in range(BUSY):
        await crowd.send(number, *headers)
    await clock_passes(0.05)
    held.let(*range(BUSY - 1))
    for number in range(BUSY - 1):
        assert (await crowd.answer(number)).status == 200
    await held.has(*range(BUSY))


@pytest.mark.parametrize("stream", [False, True])
async def test_who_cannot_be_in_time_is_refused_on_arrival_and_told_when_to_come_back(stream: bool) -> None:
    held = Held()
    async with (
        held.backend as backend,
        running(backend, window=1, business_types=URGENT) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await measured(held, crowd)
        late = await gateway.post({**question(90), "model": "m", "stream": stream})
        assert_refused(late, 503, b"overloaded")
        assert int(late.value(b"retry-after") or 0) >= 1
        assert len(backend.exchanges) == BUSY and not backend.exchanges[-1].answered.is_set()
        await crowd.send(91)  # without a deadline it may wait
        held.let(BUSY - 1, 91, 92)
        assert (await crowd.answer(91)).status == 200
        await until(gateway.is_quiet)
        assert (await gateway.post({**question(92), "model": "m"})).status == 200, "a free slot is no wait"
        assert gateway.metric("headrace_refusals_total", reason="overloaded") == 1


async def test_with_shedding_off_nobody_is_refused_on_arrival() -> None:
    held = Held()
    shedding = SheddingSettings(enabled=False)
    async with (
        held.backend as backend,
        running(backend, window=1, business_types=URGENT, shedding=shedding) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await measured(held, crowd)
        late = await stack.enter_async_context(await gateway.begin({**question(90), "model": "m"}))
        await clock_passes(0.01)
        held.let(BUSY - 1, 90)
        await late.read_answer()
        assert gateway.metric("headrace_refusals_total", reason="overloaded") == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_that_passes_in_the_queue_ends_the_wait(stream: bool) -> None:
    """Nothing is measured yet, so the request is let in."""
    held = Held()
    types = (BusinessTypeSettings(name="urgent", latency_target_ms=20, match=MatchSettings(models=("m",))),)
    async with (
        held.backend as backend,
        running(backend, window=1, business_types=types) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        await crowd.send(0)
        late = await gateway.post({**question(1), "model": "m", "stream": stream})
        assert_refused(late, 503, b"deadline")
        assert int(late.value(b"retry-after") or 0) >= 1
        assert held.order == [0] and gateway.gateway.router.waiting == 0
        held.let(0)
        assert (await crowd.answer(0)).status == 200


@pytest.mark.parametrize(
    ("is_trusted", "target_ms", "asked_ms"),
    [(False, 60_000, b"20"), (True, 60_000, b"20"), (False, 20, b"60000")],
)
async def test_an_untrusted_client_may_name_a_nearer_deadline_only(
    is_trusted: bool, target_ms: float, asked_ms: bytes
) -> None:
    async with one_slot_taken(is_trusted, target_ms) as (held, gateway):
        hint = (b"x-headrace-deadline-ms", asked_ms)
        late = await gateway.post({**question(1), "model": "m"}, headers=[hint])
        assert_refused(late, 503, b"deadline")
        assert held.order == [0]


async def test_a_trusted_client_may_name_a_later_deadline() -> None:
    hint = (b"x-headrace-deadline-ms", b"60000")
    async with (
        one_slot_taken(is_trusted=True, target_ms=20) as (held, gateway),
        await gateway.begin({**question(1), "model": "m"}, headers=[hint]) as waiting,
    ):
        await until(lambda: gateway.gateway.router.waiting == 1)
        await clock_passes(0.05)
        held.let(0, 1)
        assert (await waiting.read_answer()).status == 200


@asynccontextmanager
async def one_slot_taken(is_trusted: bool, target_ms: float) -> AsyncIterator[tuple[Held, Running]]:
    """The only one, by request 0; requests for `m` have a latency target."""
    held = Held()
    match = MatchSettings(models=("m",))
    sections: dict[str, Any] = {
        "business_types": (BusinessTypeSettings(name="urgent", latency_target_ms=target_ms, match=match),),
        "anonymous": AnonymousSettings(trust_headers=is_trusted),
    }
    async with (
        held.backend as backend,
        running(backend, window=1, **sections) as gateway,
        AsyncExitStack() as stack,
    ):
        await Crowd(gateway, stack).send(0)
        yield held, gateway
        held.let(0)


@pytest.mark.parametrize("is_measured", [False, True])
async def test_who_would_rather_be_late_goes_on_in_the_batch_lane(is_measured: bool) -> None:
    held = Held()
    headers: list[Header] = [(b"x-headrace-relegate", b"true"), (b"x-headrace-deadline-ms", b"1")]
    async with (
        held.backend as backend,
        running(backend, window=1) as gateway,
        AsyncExitStack() as stack,
    ):
        crowd = Crowd(gateway, stack)
        if is_measured:
            await measured(held, crowd)
        else:
            await crowd.send(0)
        await crowd.send(90, INTERACTIVE, *headers)
        await clock_passes(0.01)
        held.let(0, BUSY - 1, 90)
        assert (await crowd.route(90))["lane"] == "batch"
