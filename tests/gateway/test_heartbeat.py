"""What happens though nobody asks: at its interval, whatever else fails, and not after the end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.heartbeat import Beat, Heartbeat
from tests.virtual_loop import VirtualLoop, in_virtual_time


@in_virtual_time
async def test_it_beats_at_its_interval_from_then_on_and_not_after_it_was_closed() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    beats: list[float] = []
    heartbeat = Heartbeat([lambda now: beats.append(now - started)])
    await asyncio.sleep(10)
    assert beats == []
    heartbeat.set_interval(2.0)
    heartbeat.set_interval(2.0)
    await asyncio.sleep(5)
    assert beats == pytest.approx([12.0, 14.0])
    heartbeat.set_interval(0.5)
    await asyncio.sleep(1.1)
    assert beats[2:] == pytest.approx([15.5, 16.0])
    heartbeat.close()
    await asyncio.sleep(10)
    assert len(beats) == 4


@in_virtual_time
async def test_one_that_fails_is_logged_and_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    others: list[float] = []

    def fails(now: float) -> None:
        raise RuntimeError("no value")

    heartbeat = Heartbeat([fails, others.append])
    heartbeat.set_interval(1.0)
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(2.5)
    heartbeat.close()
    assert len(others) == 2
    assert [record.getMessage() for record in caplog.records] == ["a periodic task failed"] * 2


@in_virtual_time
async def test_what_is_ready_goes_between_two_that_beat_and_none_goes_on_after_the_end() -> None:
    loop = asyncio.get_running_loop()
    order: list[str] = []

    def first(now: float) -> None:
        order.append("first")
        loop.call_soon(order.append, "somebody else")

    def second(now: float) -> None:
        order.append("second")

    def ends(now: float) -> None:
        order.append("ends")
        heartbeat.close()

    heartbeat = Heartbeat([first, second, ends, second])
    heartbeat.set_interval(1.0)
    await asyncio.sleep(1.5)
    assert sorted(order[1:3]) == ["second", "somebody else"]
    assert [one for one in order if one != "somebody else"] == ["first", "second", "ends"]


@in_virtual_time
async def test_all_of_a_beat_comes_though_the_loop_is_too_busy_for_its_interval() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    counts = [0] * 7

    def counting(index: int) -> Beat:
        def beat(now: float) -> None:
            counts[index] += 1

        return beat

    heartbeat = Heartbeat([counting(index) for index in range(7)])
    heartbeat.set_interval(0.01)
    for _ in range(80):
        await asyncio.sleep(0)
        loop.is_busy_for(0.02)
    heartbeat.close()
    assert counts[0] > 5 and counts[0] - counts[6] <= 1


@in_virtual_time
async def test_a_new_interval_that_comes_while_it_beats_holds_from_the_next_beat_on() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    beats: list[float] = []
    heartbeat = Heartbeat([lambda now: heartbeat.set_interval(0.5), lambda now: beats.append(now - started)])
    heartbeat.set_interval(2.0)
    await asyncio.sleep(3.2)
    heartbeat.close()
    assert beats == pytest.approx([2.0, 2.5, 3.0])
