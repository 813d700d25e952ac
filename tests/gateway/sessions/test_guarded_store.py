"""A store in trouble costs a request its bound at most, and after a few nobody waits."""

from __future__ import annotations

import asyncio

import pytest

from gateway.sessions.guarded_store import MAX_CALLS, OK, GuardedStore, StoreCall
from gateway.sessions.store import NO_WINDOW, Append, StoreFault, StoreUnavailable, Turn
from tests.fake_store import FakeStore
from tests.virtual_loop import VirtualLoop, in_virtual_time

KEY = "k" * 32


def guarded(timeout_seconds: float = 0.03) -> tuple[FakeStore, GuardedStore]:
    clock = asyncio.get_running_loop().time
    store = FakeStore(clock)
    return store, GuardedStore(store, timeout_seconds, clock, jitter=lambda: 0.0)


async def refused(guard: GuardedStore) -> StoreFault:
    with pytest.raises(StoreUnavailable) as caught:
        await guard.window(KEY)
    return caught.value.reason


@in_virtual_time
async def test_a_good_store_is_asked_and_counted() -> None:
    _, guard = guarded()
    assert await guard.window(KEY) == NO_WINDOW
    assert await guard.home(KEY) is None
    assert await guard.response("r") is None
    assert await guard.delete(KEY) is False
    [appended] = await guard.append([Append(KEY, Turn("t", b"{}", 1), 60.0)])
    assert appended.seq == 1
    assert all(guard.calls[call, OK] == 1 for call in (StoreCall.WINDOW, StoreCall.HOME, StoreCall.APPEND))
    assert sum(guard.seconds[StoreCall.WINDOW].counts) == 1


@in_virtual_time
async def test_a_frozen_store_costs_three_reads_their_bound_and_then_nobody_waits() -> None:
    store, guard = guarded()
    store.freeze()
    loop = asyncio.get_running_loop()
    waits = []
    faults = []
    for _ in range(100):
        began = loop.time()
        faults.append(await refused(guard))
        waits.append(loop.time() - began)
    assert waits == pytest.approx([0.03] * 3 + [0.0] * 97)
    assert faults == [StoreFault.TIMEOUT] * 3 + [StoreFault.OPEN] * 97
    assert guard.calls[StoreCall.WINDOW, StoreFault.OPEN] == 97
    assert store.calls == ["window"] * 3
    await guard.close()


@in_virtual_time
async def test_it_is_found_again_by_probes_alone_within_two_seconds_of_its_return() -> None:
    store, guard = guarded()
    loop = asyncio.get_running_loop()
    store.freeze()
    for _ in range(3):
        await refused(guard)
    await asyncio.sleep(30)
    assert await refused(guard) is StoreFault.OPEN
    assert set(store.calls[3:]) == {"ping"} and 25 <= len(store.calls[3:]) <= 32
    back = loop.time()
    await store.thaw()
    assert await guard.wait_closed(60)
    assert loop.time() - back < 2
    assert await guard.window(KEY) == NO_WINDOW
    asked = len(store.calls)
    await asyncio.sleep(10)
    assert len(store.calls) == asked  # a closed breaker asks nothing by itself


@in_virtual_time
async def test_calls_that_all_wait_when_it_freezes_open_it_once() -> None:
    store, guard = guarded()
    store.freeze()
    refusals = await asyncio.gather(*(refused(guard) for _ in range(20)))
    assert refusals == [StoreFault.TIMEOUT] * MAX_CALLS + [StoreFault.OPEN] * (20 - MAX_CALLS), (
        "those whose turn had not come wait no longer than the first"
    )
    assert await refused(guard) is StoreFault.OPEN
    await asyncio.sleep(0.6)
    assert store.calls.count("ping") == 1
    await guard.close()


@pytest.mark.parametrize(
    ("fault", "opens"),
    [
        (StoreFault.CONNECTION, True),
        (StoreFault.LOADING, True),
        (StoreFault.REFUSED, True),
        (StoreFault.TIMEOUT, True),
        (StoreFault.READ_ONLY, False),
        (StoreFault.FULL, False),
        (StoreFault.ANSWERED, False),
        (StoreFault.OTHER, True),
    ],
)
@in_virtual_time
async def test_a_store_that_answers_what_is_wrong_with_a_write_is_still_read(
    fault: StoreFault, opens: bool
) -> None:
    store, guard = guarded()
    store.fault = fault
    for _ in range(5):
        await refused(guard)
    assert guard.is_open is opens
    assert guard.calls[StoreCall.WINDOW, fault] == (3 if opens else 5)
    await guard.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionResetError(), StoreFault.CONNECTION),
        (TimeoutError(), StoreFault.TIMEOUT),
        (ValueError("secret"), StoreFault.OTHER),
    ],
)
@in_virtual_time
async def test_whatever_a_store_raises_is_that_it_is_unavailable_and_tells_no_content(
    error: Exception, reason: StoreFault
) -> None:
    store, guard = guarded()
    store.error = error
    with pytest.raises(StoreUnavailable) as caught:
        await guard.window(KEY)
    assert caught.value.reason is reason and "secret" not in str(caught.value)


@in_virtual_time
async def test_callers_that_leave_say_nothing_about_the_store_and_break_nothing() -> None:
    store, guard = guarded()
    store.delay_seconds = 0.02
    for _ in range(10):
        task = asyncio.create_task(guard.window(KEY))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
    assert not guard.is_open
    assert not guard.calls
    assert await guard.window(KEY) == NO_WINDOW


@in_virtual_time
async def test_a_write_has_more_time_than_a_read() -> None:
    store, guard = guarded()
    store.delay_seconds = 0.1
    await guard.set_homes([])
    assert await refused(guard) is StoreFault.TIMEOUT


@in_virtual_time
async def test_closing_ends_the_probe_and_the_store() -> None:
    store, guard = guarded()
    store.freeze()
    for _ in range(3):
        await refused(guard)
    await asyncio.sleep(0.51)  # the probe is under way
    await guard.close()
    assert store.is_closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not await guard.wait_closed(5)


@in_virtual_time
async def test_a_crowd_waits_its_turn_and_is_no_fault_of_the_store() -> None:
    store, guard = guarded()
    store.delay_seconds = 0.025
    answers = await asyncio.gather(*(guard.home("k") for _ in range(4 * MAX_CALLS)))
    assert answers == [None] * 4 * MAX_CALLS
    assert not guard.is_open
    with pytest.raises(StoreUnavailable):
        await asyncio.gather(*(guard.home("k") for _ in range(8 * MAX_CALLS)))
    assert not guard.is_open, "nor is one that has waited too long for those before it"
    await guard.close()


@in_virtual_time
async def test_time_in_which_this_process_was_busy_is_not_the_stores() -> None:
    store, guard = guarded()
    store.delay_seconds = 0.02
    asking = asyncio.create_task(guard.home("k"))
    await asyncio.sleep(0.001)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.is_busy_for(1.0)
    assert await asking is None
    await guard.close()
