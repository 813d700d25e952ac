"""The page shows every series from the start, none that a client could make, and counts what happened."""

from __future__ import annotations

import asyncio
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.sessions import store_metrics
from gateway.sessions.guarded_store import GuardedStore
from gateway.sessions.store import Append, Home, StoreUnavailable, Turn
from gateway.sessions.store_metrics import StoreNow
from gateway.sessions.write_behind import WriteBehind
from tests.fake_store import FakeStore
from tests.virtual_loop import in_virtual_time


def shown(state: tuple[GuardedStore, WriteBehind] | None) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(StoreNow(lambda: state))
    lines = generate_latest(registry).decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


@in_virtual_time
async def test_everything_that_is_promised_is_there_at_zero_and_then_counted() -> None:
    clock = asyncio.get_running_loop().time
    store = FakeStore(clock)
    guard = GuardedStore(store, 0.03, clock, jitter=lambda: 0.0)
    writes = WriteBehind(guard, max_queued=2, max_bytes=1 << 20, clock=clock)
    before = shown((guard, writes))
    names = {re.split(r"[{ ]", name)[0] for name in before}
    promised = re.findall(r"^\| (session_\w+) \|", store_metrics.__doc__ or "", re.MULTILINE)
    assert promised
    for name in promised:
        assert {f"headrace_{name}", f"headrace_{name}_count"} & names, name
    assert set(before.values()) == {0.0}

    await guard.home("k")
    store.freeze()
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            await guard.home("k")
    for number in range(3):
        writes.put_home(f"h{number}", Home("a"), 60)
        _ = writes.append(Append(f"secret-{number}", Turn("t", b"{}", 1), 60.0))
    after = shown((guard, writes))
    assert after.keys() == before.keys()
    assert after['headrace_session_store_calls_total{call="home",outcome="ok"}'] == 1
    assert after['headrace_session_store_calls_total{call="home",outcome="timeout"}'] == 3
    assert after['headrace_session_store_calls_total{call="home",outcome="open"}'] == 1
    assert after['headrace_session_store_seconds_count{call="home"}'] == 4
    assert after["headrace_session_store_breaker_open"] == 1
    assert after["headrace_session_writes_queued"] == 2
    assert after['headrace_session_writes_dropped_total{kind="home"}'] == 3
    assert after['headrace_session_writes_dropped_total{kind="append"}'] == 1
    await writes.close()
    await guard.close()


def test_without_a_store_that_is_asked_there_is_nothing() -> None:
    assert shown(None) == {}
