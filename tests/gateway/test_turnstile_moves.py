"""A failed attempt whose lease has to wait for a slot elsewhere, and the races around its grant."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Refused
from gateway.turnstile import Turnstile
from policies.terms import BackendId, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import Lease
from routing.router import Router
from routing.rules import Rules
from tests.gateway.test_turnstile import LONG, in_flight, is_served, settle


def two_backends(max_wait_seconds: float = LONG) -> Turnstile:
    """Two backends of one slot each."""
    router = Router(Rules())
    plans = [BackendPlan(BackendId(id), PoolName("p"), 1) for id in ("a", "b")]
    router.configure(plans, Rules())
    return Turnstile(router, max_wait_seconds)


async def move_and_wait(gate: Turnstile, moved: asyncio.Event, leases: list[Lease]) -> str:
    async with gate.lease("") as lease:
        leases.append(lease)
        await moved.wait()
        failed = lease.backend
        assert gate.move(lease, Verdict.FAULT, first_byte_sent=False, repeatable=True)
        await gate.resume(lease)
        assert lease.backend is not failed
    return "served"


async def test_it_goes_on_where_a_slot_comes_free() -> None:
    gate = two_backends()
    moved, leases = asyncio.Event(), list[Lease]()
    task = asyncio.create_task(move_and_wait(gate, moved, leases))
    await settle()
    async with gate.lease(""):
        moved.set()
        await settle()
        assert not task.done() and gate.router.waiting == 1 and in_flight(gate) == 1
    assert await task == "served"
    assert in_flight(gate) == 0 and gate.router.waiting == 0


async def test_it_needs_no_wait_where_a_slot_is_free() -> None:
    gate = two_backends()
    async with gate.lease("") as lease:
        first = lease.backend
        assert gate.move(lease, Verdict.FAULT, first_byte_sent=False, repeatable=True)
        await gate.resume(lease)
        assert lease.backend is not first
    assert in_flight(gate) == 0


async def test_it_is_refused_when_the_wait_takes_too_long() -> None:
    gate = two_backends(max_wait_seconds=0.01)
    async with gate.lease(""):
        moved = asyncio.Event()
        moved.set()
        with pytest.raises(Refused) as caught:
            await move_and_wait(gate, moved, [])
    assert caught.value.reason is Refusal.QUEUE_TIMEOUT
    assert in_flight(gate) == 0 and gate.router.waiting == 0


@pytest.mark.parametrize("order", ["cancelled first", "granted first", "only cancelled"])
async def test_cancelled_while_it_waits_it_leaves_nothing_behind(order: str) -> None:
    gate = two_backends()
    moved, leases = asyncio.Event(), list[Lease]()
    task = asyncio.create_task(move_and_wait(gate, moved, leases))
    await settle()
    async with gate.lease(""):
        moved.set()
        await settle()
        if order != "granted first":
            task.cancel()
        if order == "only cancelled":
            await settle()
    # The other request has just left: its slot was offered in the very tick of the cancellation.
    if order == "granted first":
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert in_flight(gate) == 0 and gate.router.waiting == 0
    assert await is_served(gate)


async def test_it_is_refused_when_no_backend_is_left_to_wait_for() -> None:
    gate = two_backends()
    moved, leases = asyncio.Event(), list[Lease]()
    task = asyncio.create_task(move_and_wait(gate, moved, leases))
    await settle()
    async with gate.lease("") as other:
        moved.set()
        await settle()
        gate.router.unreachable(other.backend, asyncio.get_running_loop().time())
        gate.pump()
        with pytest.raises(Refused) as caught:
            await task
    assert caught.value.reason is Refusal.NO_BACKEND
    assert in_flight(gate) == 0
