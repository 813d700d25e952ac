"""Waiting for a slot, and the races around a grant, with each interleaving placed by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.errors import Refused
from gateway.turnstile import Turnstile
from policies.capacity_tokens import TokenRules
from policies.fairness import FairnessRules
from policies.lengths import TextSize
from policies.terms import BackendId, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import NO_INTENT, Intent, Lease
from routing.router import Router
from routing.rules import Rules

LONG = 3600.0


def turnstile(window: int | None = 1, max_waiting: int = 10, max_wait_seconds: float = LONG) -> Turnstile:
    rules = Rules(fairness=FairnessRules(max_waiting=max_waiting))
    router = Router(rules)
    router.configure([BackendPlan(BackendId("b"), PoolName("p"), window)], rules)
    return Turnstile(router, max_wait_seconds)


class Visit:
    """A request that holds its slot until `release` is set."""

    def __init__(self, gate: Turnstile, model: str = "m") -> None:
        self.release = asyncio.Event()
        self.lease: Lease | None = None
        self.task = asyncio.create_task(self._run(gate, model))

    async def _run(self, gate: Turnstile, model: str) -> str:
        async with gate.lease(model) as lease:
            self.lease = lease
            await self.release.wait()
        return "served"


async def settle(rounds: int = 5) -> None:
    """Let everything run that can."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def in_flight(gate: Turnstile) -> int:
    return sum(backend.in_flight for backend in gate.router.fleet)


async def is_served(gate: Turnstile) -> bool:
    """Whether a new request gets a slot at once; it gives it back."""
    async with gate.lease("m"):
        return in_flight(gate) > 0


async def refusal(ending: Awaitable[Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        await ending
    return caught.value


async def enter(gate: Turnstile, model: str = "m") -> None:
    async with gate.lease(model):
        raise AssertionError("there was no slot to get")


async def test_the_slot_lives_as_long_as_the_block() -> None:
    gate = turnstile()
    async with gate.lease("m") as lease:
        assert lease.backend.id == "b" and in_flight(gate) == 1
    assert in_flight(gate) == 0 and not lease.open


async def test_the_slot_comes_back_whatever_ends_the_block() -> None:
    gate = turnstile()
    with pytest.raises(ZeroDivisionError):
        async with gate.lease("m"):
            raise ZeroDivisionError
    visit = Visit(gate)
    await settle()
    visit.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await visit.task
    assert in_flight(gate) == 0
    assert await is_served(gate)


async def test_who_waits_is_served_in_order_of_arrival() -> None:
    gate = turnstile()
    visits = [Visit(gate) for _ in range(4)]
    await settle()
    for visit in visits:
        assert [other.lease is not None for other in visits] == [other is visit for other in visits]
        visit.lease = None
        visit.release.set()
        await settle()
        assert visit.task.result() == "served"
    assert in_flight(gate) == 0


async def test_a_grant_for_nobody_who_waits_here_is_not_needed_to_pump() -> None:
    gate = turnstile()
    gate.pump()
    assert await is_served(gate)


async def test_a_full_queue_refuses() -> None:
    gate = turnstile(max_waiting=1)
    running, waiting = Visit(gate), Visit(gate)
    await settle()
    refused = await refusal(enter(gate))
    assert refused.reason is Refusal.QUEUE_FULL
    running.release.set()
    waiting.release.set()
    await waiting.task


async def test_an_unknown_model_is_named_in_the_refusal_and_cut_to_a_length() -> None:
    gate = turnstile()
    gate.router.engines.learn_models(BackendId("b"), frozenset({"m"}))
    refused = await refusal(enter(gate, "n" * 1000))
    assert (refused.reason, refused.param) == (Refusal.UNKNOWN_MODEL, "model")
    assert "n" * 200 in refused.message and "n" * 201 not in refused.message


async def test_without_a_backend_there_is_nothing_to_wait_for() -> None:
    gate = turnstile()
    [backend] = gate.router.fleet
    gate.router.unreachable(backend, asyncio.get_running_loop().time())
    assert (await refusal(enter(gate))).reason is Refusal.NO_BACKEND


async def test_who_waits_is_refused_when_the_last_backend_goes() -> None:
    for reason in (Refusal.NO_BACKEND, Refusal.UNKNOWN_MODEL):
        gate = turnstile()
        running, waiting = Visit(gate), Visit(gate)
        await settle()
        if reason is Refusal.NO_BACKEND:
            [backend] = gate.router.fleet
            gate.router.unreachable(backend, asyncio.get_running_loop().time())
        else:
            gate.router.engines.learn_models(BackendId("b"), frozenset({"another"}))
        gate.pump()
        assert (await refusal(waiting.task)).reason is reason
        running.release.set()
        await running.task


async def test_the_longest_wait_is_read_at_each_wait() -> None:
    gate = turnstile(max_wait_seconds=0)
    running = Visit(gate)
    await settle()
    assert (await refusal(enter(gate))).reason is Refusal.QUEUE_TIMEOUT
    assert gate.router.waiting == 0
    gate.max_wait_seconds = LONG
    patient = Visit(gate)
    await settle(50)
    assert not patient.task.done()
    running.release.set()
    patient.release.set()
    assert await patient.task == "served"


async def test_a_wait_that_is_cancelled_leaves_the_queue() -> None:
    gate = turnstile()
    running, waiting, behind = Visit(gate), Visit(gate), Visit(gate)
    await settle()
    waiting.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting.task
    assert gate.router.waiting == 1
    running.release.set()
    behind.release.set()
    assert await behind.task == "served"
    assert await is_served(gate)


class LeaseHolder:
    """Holds a slot without a task, so that a test gives it back in the very tick it wants."""

    def __init__(self, gate: Turnstile) -> None:
        lease = gate.try_enter("m", NO_INTENT)
        assert isinstance(lease, Lease)
        self.lease = lease


Steps = Callable[[Turnstile, LeaseHolder, Visit], None]


def _cancel(gate: Turnstile, holder: LeaseHolder, visit: Visit) -> None:
    visit.task.cancel()


def _release(gate: Turnstile, holder: LeaseHolder, visit: Visit) -> None:
    gate.leave(holder.lease)


@pytest.mark.parametrize("steps", [(_cancel, _release), (_release, _cancel), (_cancel, _release, _cancel)])
async def test_a_grant_in_the_tick_of_the_cancellation_is_given_back(steps: tuple[Steps, ...]) -> None:
    gate = turnstile()
    holder = LeaseHolder(gate)
    visit, behind = Visit(gate), Visit(gate)
    await settle()
    for step in steps:
        step(gate, holder, visit)
    with pytest.raises(asyncio.CancelledError):
        await visit.task
    assert visit.lease is None
    await settle()
    assert behind.lease is not None, "the slot went to who waited behind"
    behind.release.set()
    await behind.task
    assert in_flight(gate) == 0 and gate.router.waiting == 0
    assert await is_served(gate)


async def test_a_refusal_in_the_tick_of_the_cancellation_owes_nothing() -> None:
    for cancel_first in (True, False):
        gate = turnstile()
        holder = LeaseHolder(gate)
        visit = Visit(gate)
        await settle()
        if cancel_first:
            visit.task.cancel()
        gate.router.configure([], gate.router.rules)
        gate.pump()
        visit.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visit.task
        gate.leave(holder.lease)
        assert holder.lease.backend.in_flight == 0 and gate.router.waiting == 0


async def test_a_slot_that_came_free_between_the_move_and_the_wait_for_it_is_used() -> None:
    gate = turnstile()
    rules = gate.router.rules
    gate.router.configure([BackendPlan(BackendId(id), PoolName("p"), 1) for id in ("b", "c")], rules)
    failed, other = LeaseHolder(gate).lease, LeaseHolder(gate).lease
    assert not gate.move(failed, Verdict.IGNORED, False, True)
    assert gate.move(failed, Verdict.FAULT, False, True)
    gate.leave(other)
    await gate.resume(failed)
    assert failed.backend is other.backend
    gate.leave(failed)
    assert in_flight(gate) == 0 and gate.router.waiting == 0


class ManualTimeouts(asyncio.SelectorEventLoop):
    """A loop whose clock stands still until the test moves it."""

    offset = 0.0

    def time(self) -> float:
        return 1000.0 + self.offset


async def _time_out_and(gate: Turnstile, loop: ManualTimeouts, grant_first: bool) -> str:
    holder = LeaseHolder(gate)
    visit = Visit(gate)
    await settle()

    def grant() -> None:
        gate.leave(holder.lease)

    # Both callbacks run in one iteration of the loop: timers become ready together, in order of their times.
    loop.call_at(loop.time() + (LONG - 1 if grant_first else LONG + 1), grant)
    loop.offset += LONG + 2
    visit.release.set()
    try:
        result = await visit.task
    except Refused as refused:
        result = refused.reason.value
    assert in_flight(gate) == 0 and gate.router.waiting == 0
    assert await is_served(gate)
    return result


@pytest.mark.parametrize(("grant_first", "result"), [(True, "served"), (False, "queue_timeout")])
def test_a_grant_in_the_tick_of_the_timeout_is_used_if_it_came_first_and_given_back_otherwise(
    grant_first: bool, result: str
) -> None:
    with asyncio.Runner(loop_factory=ManualTimeouts) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, ManualTimeouts)

        async def main() -> str:
            return await _time_out_and(turnstile(), loop, grant_first)

        assert runner.run(main()) == result


@pytest.mark.timeout(240)  # seconds on a quiet machine
async def test_no_slot_is_lost_in_twenty_thousand_rounds_of_releases_and_cancellations() -> None:
    """One slot and three waiters; in each round the slot comes back and some waiters leave, in any order and number of ticks."""
    chance = random.Random(20250601)
    gate = turnstile()
    for _ in range(20_000):
        holder = LeaseHolder(gate)
        visits = [Visit(gate) for _ in range(3)]
        await asyncio.sleep(0)
        steps: list[Callable[[], object]] = [lambda lease=holder.lease: gate.leave(lease)]  # type: ignore[misc]
        steps += [visit.task.cancel for visit in visits if chance.random() < 0.6]
        chance.shuffle(steps)
        for step in steps:
            step()
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        for visit in visits:
            visit.release.set()
        await asyncio.gather(*(visit.task for visit in visits), return_exceptions=True)
        assert in_flight(gate) == 0 and gate.router.waiting == 0
    assert await is_served(gate)


async def test_who_waits_behind_one_that_is_too_large_goes_when_that_one_leaves() -> None:
    rules = Rules()
    router = Router(rules)
    router.configure(
        [BackendPlan(BackendId("b"), PoolName("p"), 8, tokens=TokenRules(max_tokens=100))], rules
    )
    gate = Turnstile(router, LONG)
    entered: list[int] = []

    async def visit(tokens: int) -> None:
        async with gate.lease("m", Intent(size=TextSize(token_ids=tokens), max_tokens=0)):
            entered.append(tokens)
            await asyncio.Event().wait()

    visits = []
    for tokens in (60, 90, 30):
        visits.append(asyncio.create_task(visit(tokens)))
        await settle()
    assert entered == [60]
    visits[1].cancel()
    await settle()
    assert entered == [60, 30]
    for one in visits:
        one.cancel()
    await asyncio.gather(*visits, return_exceptions=True)
    assert in_flight(gate) == 0
