"""Waiting for the store is bounded, and time in which this process was busy itself is not counted against the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.errors import Refused
from gateway.session_settings import ConflictRule, SessionSettings
from gateway.sessions.patience import is_done_within
from gateway.sessions.store import Append, Appended, Result, SessionKey
from policies.terms import Refusal
from tests.gateway.sessions.test_history import ANSWER, Stage
from tests.virtual_loop import VirtualLoop, in_virtual_time

APPENDED = Appended(Result.APPENDED, 1, 1, 1, 0, 0)


def busy(answered: asyncio.Future[Appended]) -> None:
    """The process is busy for a second, in which the answer comes; a loop sees what came after it has looked at its timers."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    def is_busy() -> None:
        loop.is_busy_for(1.0)
        _after_timers(lambda: answered.set_result(APPENDED))

    loop.call_later(0.001, is_busy)


def _after_timers(act: Callable[[], None], turns: int = 4) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(_after_timers, act, turns - 1) if turns else act()


@in_virtual_time
async def test_what_came_while_this_process_was_busy_is_seen() -> None:
    answered: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    busy(answered)
    assert await is_done_within(0.03, answered)


@in_virtual_time
async def test_what_does_not_come_is_waited_for_as_long_as_said_and_left_alone() -> None:
    loop = asyncio.get_running_loop()
    never: asyncio.Future[Appended] = loop.create_future()
    assert not await is_done_within(0.03, never)
    assert loop.time() == pytest.approx(0.03)
    waits = asyncio.create_task(is_done_within(0.03, never))
    await asyncio.sleep(0.01)
    waits.cancel()
    await asyncio.wait([waits])
    assert waits.cancelled() and not never.done()


class Pending:
    """A writer whose one write is on its way."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    def append(self, append: Append) -> asyncio.Future[Appended]:
        return self.answered

    def pending(self, key: SessionKey) -> asyncio.Future[Appended]:
        return self.answered


@in_virtual_time
async def test_a_busy_process_refuses_no_session_whose_last_turn_is_just_being_written() -> None:
    writer = Pending()
    stage = Stage(SessionSettings(timeout_ms=30), writer)
    busy(writer.answered)
    await stage.open()


@in_virtual_time
async def test_nor_a_strict_turn_that_was_taken_meanwhile() -> None:
    stage = Stage(SessionSettings(timeout_ms=30, conflicts=ConflictRule.STRICT))
    history = await stage.open()
    writer = Pending()
    stage.histories.sessions = stage.sessions._replace(writer=writer)
    busy(writer.answered)
    await history.plain_ended(ANSWER, True, None)


@in_virtual_time
async def test_a_write_that_does_not_end_refuses_the_session_after_the_stores_time() -> None:
    stage = Stage(SessionSettings(timeout_ms=30), Pending())
    with pytest.raises(Refused) as refused:
        await stage.open()
    assert refused.value.reason is Refusal.SESSION_STORE_UNAVAILABLE
    assert asyncio.get_running_loop().time() == pytest.approx(0.03)
