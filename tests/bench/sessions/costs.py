"""What sessions cost a request: the parts that it pays itself in microseconds, and round trips to a server on a Unix socket of the same machine.

Medians of `ROUNDS` rounds. `put_home` is with the gathering timer armed, as it is under load; the affinity decision of a fresh session is the look that finds that no store has to be
asked, and the note of where it went.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median

from gateway.sessions.encryption import Sealing
from gateway.sessions.guarded_store import GuardedStore
from gateway.sessions.redis_store import RedisStore
from gateway.sessions.redis_url import RedisAddress, client
from gateway.sessions.shared_homes import SharedHomes
from gateway.sessions.store import Append, Home, Turn, session_key
from gateway.sessions.write_behind import WriteBehind
from policies.session_window import WindowRules
from policies.terms import BackendId, PoolName
from routing.backend import BackendPlan
from routing.decision import Intent, Lease
from routing.router import Router
from routing.rules import Rules
from tests.bench.figures import Figure
from tests.redis_server import redis_server

ROUNDS = 7
KEYS = 2000
TURNS = 32
AFFINITY_US = 15.0
SESSION = 7


def measured() -> list[Figure]:
    with redis_server() as url, asyncio.Runner() as runner:
        return runner.run(_measured(url))


async def _measured(url: str) -> list[Figure]:
    clock = asyncio.get_running_loop().time
    rules = WindowRules(TURNS, 1 << 20, 1 << 18, 1 << 24)
    store = RedisStore(client(RedisAddress(url), 5.0, "", ""), rules, Sealing([]))
    guard = GuardedStore(store, 5.0, clock, jitter=lambda: 0.5)
    writes = WriteBehind(guard, 10_000, 1 << 26, clock)
    keys = [session_key("tenant", f"session {number}") for number in range(KEYS)]
    home = Home("backend")
    put_us, fresh_us = [], []
    router = Router(Rules())
    router.configure([BackendPlan(BackendId("b"), PoolName("p"))], Rules())
    lease = router.arrive("m", clock(), Intent())
    assert isinstance(lease, Lease)
    homes = SharedHomes(guard, writes.put_home, router, 3600.0, lambda: 300.0, clock)
    router.placement.learn(SESSION, lease.backend, 0, clock())
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for key in keys:
            writes.put_home(key, home, 300.0)
        put_us.append((time.perf_counter() - began) / KEYS * 1e6)
        await writes.flush(10.0)
        began = time.perf_counter()
        for _ in keys:
            key = session_key("tenant", "session 7")
            assert not homes.must_ask(SESSION)
            homes.went(key, lease)
        fresh_us.append((time.perf_counter() - began) / KEYS * 1e6)
    turns = [
        Append(keys[0], Turn(f"t{number}", b'{"role":"user","content":"' + b"x" * 1000 + b'"}', 250), 300.0)
        for number in range(KEYS)
    ]
    pending = iter(turns)
    appended = await _trips(lambda: guard.append([next(pending)]))
    window = await _trips(lambda: guard.window(keys[0]))
    read = await _trips(lambda: guard.home(keys[0]))
    await writes.close()
    await guard.close()
    return [
        _figure("put_home", median(put_us), "us", "sync, with its share of the queue's bookkeeping"),
        _figure("affinity, local copy fresh", median(fresh_us), "us", "key, look and note", bar=AFFINITY_US),
        _figure("append, round trip", appended, "us", "one turn of 1 KB, through the guard"),
        _figure("window, round trip", window, "us", f"{TURNS} turns of 1 KB, through the guard"),
        _figure("home, round trip", read, "us", "through the guard"),
    ]


async def _trips(ask: Callable[[], Awaitable[object]], count: int = 200) -> float:
    """The median of one in microseconds."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        taken.append((time.perf_counter() - began) * 1e6)
    return median(taken)


def _figure(name: str, value: float, unit: str, detail: str, bar: float | None = None) -> Figure:
    return Figure(topic="sessions", name=name, value=value, unit=unit, detail=detail, bar=bar)
