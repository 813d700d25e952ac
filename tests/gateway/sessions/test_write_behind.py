"""What waits to be written: in order, in batches, bounded, nothing twice, and nobody has to look."""

from __future__ import annotations

import asyncio
import gc
from itertools import pairwise

import pytest

from gateway.sessions.guarded_store import GuardedStore
from gateway.sessions.store import (
    Append,
    Appended,
    Home,
    ResponseOwner,
    Result,
    StoreFault,
    StoreUnavailable,
    Turn,
)
from gateway.sessions.write_behind import (
    APPEND_BYTES,
    GATHER_SECONDS,
    HOME_BYTES,
    MAX_AGE_SECONDS,
    MAX_BATCH,
    WriteBehind,
    WriteKind,
)
from policies.session_window import WindowRules
from tests.fake_store import FakeStore
from tests.virtual_loop import in_virtual_time

LARGE = 1 << 30


def append(turn: str, key: str = "k", text: bytes = b"{}", seq: int | None = None) -> Append:
    return Append(key, Turn(turn, text, 1), 600.0, None, seq)


class Stage:
    def __init__(
        self, max_queued: int = 1000, max_bytes: int = LARGE, rules: WindowRules | None = None
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.store = FakeStore(clock, rules)
        self.guard = GuardedStore(self.store, 0.03, clock, jitter=lambda: 0.0)
        self.writes = WriteBehind(self.guard, max_queued, max_bytes, clock)

    async def kept(self, key: str = "k") -> list[str]:
        return [turn.id for turn in (await self.store.inner.window(key)).turns]

    async def opens(self) -> None:
        self.store.freeze()
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await self.guard.home("other")
        assert self.guard.is_open

    async def done(self) -> None:
        assert await self.writes.flush(1000) == 0
        await self.writes.close()
        await self.guard.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_appends_of_one_turn_of_the_loop_leave_in_the_next_in_one_call_and_in_order() -> None:
    stage = Stage()
    ids = [f"t{number}" for number in range(20)]
    futures = [stage.writes.append(append(id)) for id in ids]
    assert stage.store.batches == []
    assert [(await one).seq for one in futures] == list(range(1, 21))
    assert stage.store.batches == [ids]
    assert asyncio.get_running_loop().time() == 0
    assert await stage.kept() == ids
    await stage.done()


@in_virtual_time
async def test_homes_are_gathered_and_only_the_newest_of_a_key_is_written() -> None:
    stage = Stage()
    for backend in ("a", "b"):
        for key in ("k", "l"):
            stage.writes.put_home(key, Home(backend, 7), 60)
    stage.writes.put_response("r", ResponseOwner("tenant", "a"), 60)
    assert len(asyncio.all_tasks()) == 1  # no task until they leave
    await asyncio.sleep(GATHER_SECONDS / 2)
    assert stage.store.calls == []
    await stage.writes.flush(1)
    assert sorted(stage.store.calls) == ["set_homes", "set_responses"]
    assert await stage.store.inner.home("k") == Home("b", 7) == await stage.store.inner.home("l")
    assert await stage.store.inner.response("r") == ResponseOwner("tenant", "a")
    await stage.done()


@in_virtual_time
async def test_homes_leave_at_most_five_milliseconds_after_the_first() -> None:
    stage = Stage()
    for _ in range(20):
        stage.writes.put_home("k", Home("a"), 60)
        await asyncio.sleep(0.001)
    assert 3 <= stage.store.calls.count("set_homes") <= 4
    await stage.done()


@in_virtual_time
async def test_a_home_put_while_an_older_one_is_on_its_way_is_written_after_it() -> None:
    stage = Stage()
    stage.store.delay_seconds = 0.01
    stage.writes.put_home("k", Home("a"), 60)
    await asyncio.sleep(GATHER_SECONDS + 0.001)
    stage.writes.put_home("k", Home("b"), 60)
    await stage.done()
    assert stage.store.calls == ["set_homes"] * 2
    assert await stage.store.inner.home("k") == Home("b")


@in_virtual_time
async def test_one_batch_at_a_time_and_what_came_meanwhile_leaves_together() -> None:
    stage = Stage()
    stage.store.delay_seconds = 0.01
    for number in range(6):
        _ = stage.writes.append(append(f"t{number}"))
        await asyncio.sleep(0.002)
    await stage.done()
    assert stage.store.batches == [["t0"], ["t1", "t2", "t3", "t4"], ["t5"]]
    assert await stage.kept() == [f"t{number}" for number in range(6)]


@pytest.mark.parametrize("lost", [1, 2, 3, 5])
@in_virtual_time
async def test_a_batch_whose_reply_was_lost_is_sent_again_whole_and_nothing_is_written_twice(
    lost: int,
) -> None:
    stage = Stage()
    stage.store.lost_replies = lost
    first = [stage.writes.append(append(id)) for id in ("a", "b")]
    await asyncio.sleep(0.001)
    later = stage.writes.append(append("c"))
    assert [(await one).result for one in first] == [Result.DUPLICATE] * 2
    assert (await later).result in (Result.APPENDED, Result.DUPLICATE)
    assert await stage.kept() == ["a", "b", "c"]
    for before, after in pairwise(stage.store.batches):
        assert after[: len(before)] == before or "c" in after
    await stage.done()


@in_virtual_time
async def test_a_store_frozen_for_long_has_every_append_once_and_in_order_after_it_thawed() -> None:
    """Also what it received before and does late, after the gateway has given up on it."""
    stage = Stage(max_queued=10_000)
    loop = asyncio.get_running_loop()
    stage.store.freeze()
    ids = [f"t{number}" for number in range(900)]
    for number, id in enumerate(ids):
        _ = stage.writes.append(append(id))
        stage.writes.put_home("k", Home(f"b{number}"), 600)
        await asyncio.sleep(1 / 30)
    assert stage.guard.is_open and stage.writes.queued == 901
    back = loop.time()
    await stage.store.thaw()
    assert await stage.writes.flush(60) == 0
    assert loop.time() - back < 2
    assert await stage.kept() == ids
    assert await stage.store.inner.home("k") == Home("b899")
    assert max(map(len, stage.store.batches)) == MAX_BATCH
    await stage.done()


@pytest.mark.parametrize("fault", [StoreFault.FULL, StoreFault.READ_ONLY, StoreFault.ANSWERED])
@in_virtual_time
async def test_a_store_that_takes_no_writes_is_asked_ever_less_often_until_it_does(fault: StoreFault) -> None:
    stage = Stage()
    stage.store.fault = fault
    future = stage.writes.append(append("t"))
    await asyncio.sleep(20)
    assert stage.store.calls.count("append") < 30
    assert not stage.guard.is_open
    stage.store.fault = None
    assert (await future).result is Result.APPENDED
    await stage.done()


@in_virtual_time
async def test_strict_appends_that_conflict_say_so_also_when_their_first_reply_was_lost() -> None:
    stage = Stage()
    stage.store.lost_replies = 1
    results = [stage.writes.append(append(id, seq=0)) for id in ("a", "b")]
    assert [(await one).result for one in results] == [Result.DUPLICATE, Result.CONFLICT]
    assert await stage.kept() == ["a"]
    await stage.done()


@in_virtual_time
async def test_too_many_writes_put_out_the_oldest_homes_then_responses_then_appends() -> None:
    stage = Stage(max_queued=4)
    await stage.opens()
    for number in range(6):
        stage.writes.put_home(f"h{number}", Home("a"), 600)
    stage.writes.put_response("r", ResponseOwner("t", "a"), 600)
    assert (stage.writes.queued, stage.writes.dropped[WriteKind.HOME]) == (4, 3)
    futures = [stage.writes.append(append(f"t{number}")) for number in range(6)]
    assert stage.writes.dropped == {WriteKind.HOME: 6, WriteKind.RESPONSE: 1, WriteKind.APPEND: 2}
    with pytest.raises(StoreUnavailable):
        await futures[0]
    await stage.store.thaw()
    await stage.done()
    assert await stage.kept() == ["t2", "t3", "t4", "t5"]


@in_virtual_time
async def test_bytes_are_bounded_as_well_and_counted_down_to_nothing() -> None:
    stage = Stage(max_bytes=3 * APPEND_BYTES + HOME_BYTES)
    await stage.opens()
    stage.writes.put_home("h", Home("a"), 600)
    _ = stage.writes.append(append("small"))
    _ = stage.writes.append(append("large", text=b"x" * (2 * APPEND_BYTES)))
    assert stage.writes.size_bytes <= 3 * APPEND_BYTES + HOME_BYTES
    assert stage.writes.dropped == {WriteKind.HOME: 1, WriteKind.RESPONSE: 0, WriteKind.APPEND: 1}
    too_large = stage.writes.append(append("larger", text=b"x" * (5 * APPEND_BYTES)))
    assert too_large.done() and stage.writes.queued == 0 == stage.writes.size_bytes
    _ = stage.writes.append(append("last"))
    stage.writes.put_home("h", Home("a"), 600)
    stage.writes.put_home("h", Home("b"), 600)
    await stage.store.thaw()
    await stage.done()
    assert stage.writes.size_bytes == 0
    assert await stage.kept() == ["last"]


@in_virtual_time
async def test_appends_dropped_while_on_their_way_do_not_take_others_with_them() -> None:
    stage = Stage(max_queued=3)
    stage.store.delay_seconds = 0.02
    for number in range(3):
        _ = stage.writes.append(append(f"t{number}"))
    await asyncio.sleep(0.01)
    futures = [stage.writes.append(append(f"t{number}")) for number in (3, 4)]
    assert [(await one).result for one in futures] == [Result.APPENDED] * 2
    assert await stage.kept() == ["t0", "t1", "t2", "t3", "t4"]
    await stage.done()
    assert stage.writes.size_bytes == 0


@in_virtual_time
async def test_what_is_too_old_is_dropped_and_what_is_not_is_written() -> None:
    stage = Stage()
    await stage.opens()
    _ = stage.writes.append(append("old"))
    stage.writes.put_home("h", Home("a"), 30)
    await asyncio.sleep(MAX_AGE_SECONDS - 20)
    _ = stage.writes.append(append("young"))
    await asyncio.sleep(25)
    assert stage.writes.queued == 1
    assert stage.writes.dropped == {WriteKind.HOME: 1, WriteKind.RESPONSE: 0, WriteKind.APPEND: 1}
    await stage.store.thaw()
    await stage.done()
    assert await stage.kept() == ["young"]


@in_virtual_time
async def test_the_time_a_home_waited_is_not_added_to_its_life() -> None:
    stage = Stage()
    await stage.opens()
    stage.writes.put_home("h", Home("a"), 30)
    await asyncio.sleep(20)
    await stage.store.thaw()
    assert await stage.writes.flush(10) == 0
    assert await stage.store.inner.home("h") == Home("a")
    await asyncio.sleep(10)
    assert await stage.store.inner.home("h") is None
    await stage.done()


@in_virtual_time
async def test_a_read_of_the_same_session_waits_for_its_own_writes_and_for_no_others() -> None:
    stage = Stage()
    stage.store.delay_seconds = 0.005
    assert stage.writes.pending("k") is None
    _ = stage.writes.append(append("t"))
    stage.writes.put_home("h", Home("a"), 60)
    assert stage.writes.pending("other") is None
    for key in ("k", "h"):
        waiting = stage.writes.pending(key)
        assert waiting is not None
        await waiting
    assert await stage.kept() == ["t"]
    assert await stage.store.inner.home("h") == Home("a")
    await stage.done()


@in_virtual_time
async def test_such_a_read_waits_no_longer_than_a_read_may_and_not_at_all_while_the_store_is_not_asked() -> (
    None
):
    stage = Stage()
    loop = asyncio.get_running_loop()
    stage.store.freeze()
    _ = stage.writes.append(append("t"))
    waiting = stage.writes.pending("k")
    assert waiting is not None
    await waiting
    assert loop.time() == pytest.approx(0.03)
    await stage.opens()
    assert stage.writes.pending("k") is None
    await stage.store.thaw()
    await stage.done()


@in_virtual_time
async def test_readers_and_waiters_that_leave_take_no_write_back() -> None:
    stage = Stage()
    stage.store.delay_seconds = 0.01

    async def waits(future: asyncio.Future[Appended]) -> None:
        await future

    async def reads() -> None:
        waiting = stage.writes.pending("k")
        assert waiting is not None
        await waiting

    task = asyncio.create_task(waits(stage.writes.append(append("t"))))
    other = asyncio.create_task(reads())
    still = asyncio.create_task(reads())
    await asyncio.sleep(0.005)
    task.cancel()
    other.cancel()
    await asyncio.wait([task, other])
    await still
    await stage.done()
    assert await stage.kept() == ["t"]


@in_virtual_time
async def test_an_append_that_nobody_awaits_warns_of_nothing() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    stage = Stage(max_queued=1)
    await stage.opens()
    for number in range(5):
        _ = stage.writes.append(append(f"t{number}"))
    await stage.writes.close()
    gc.collect()
    assert complaints == []
    assert stage.writes.dropped[WriteKind.APPEND] == 5
    await stage.done()


@in_virtual_time
async def test_a_drain_ends_at_its_deadline_and_says_what_is_left() -> None:
    stage = Stage()
    loop = asyncio.get_running_loop()
    await stage.opens()
    began = loop.time()
    future = stage.writes.append(append("t"))
    assert await stage.writes.flush(3) == 1
    assert loop.time() - began == pytest.approx(3)
    await stage.writes.close()
    with pytest.raises(StoreUnavailable):
        await future
    await stage.done()


@in_virtual_time
async def test_a_drain_writes_everything_at_once_without_the_gathering() -> None:
    stage = Stage()
    for number in range(3 * MAX_BATCH):
        stage.writes.put_home(f"h{number}", Home("a"), 60)
    assert await stage.writes.flush(1) == 0
    assert asyncio.get_running_loop().time() == 0
    assert stage.store.calls == ["set_homes"] * 3
    await stage.done()


@in_virtual_time
async def test_an_idle_queue_has_no_task_and_writes_put_after_the_end_are_dropped() -> None:
    stage = Stage()
    await stage.writes.append(append("t"))
    await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) == 1
    await stage.writes.close()
    stage.writes.put_home("h", Home("a"), 60)
    assert stage.writes.append(append("u")).done()
    assert stage.writes.queued == 0
    await stage.done()
