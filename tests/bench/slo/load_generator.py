"""Makes the calls of a schedule: an open loop, in a process of its own (`load_job`).

A call is made when it is due, whatever became of the others, on an idle connection or a new one, so that none waits for a connection of this
process; its latency counts from the moment it was due to the last byte of its answer. After `PATIENCE_SECONDS` the client leaves.
A connection that was idle for `IDLE_SECONDS` is not used again. Timers of the loop have a resolution of 1 ms, which latencies include.

At each phase's beginning and at the end it reads the CPU time of the watched processes and how long it has itself waited for a core.
What a call is, only the maker of the requests knows; here it is something that is due at a time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tests.bench.process_tree import cpu_seconds, run_queue_seconds
from tests.bench.slo import exchange
from tests.bench.slo.exchange import LOST, Exchange

PATIENCE_SECONDS = 10.0
IDLE_SECONDS = 3.0
TIMED_OUT = -1
"""In the place of a status: the client left."""
OPENED_BEFOREHAND = 256
_SWEEP_SECONDS = 0.05
_LEAD_SECONDS = 0.3
OWN = "load generator"


class Timed(Protocol):
    @property
    def due(self) -> float:
        """Seconds since the schedule's beginning."""
        ...


Due = TypeVar("Due", bound=Timed)
DueIn = TypeVar("DueIn", bound=Timed, contravariant=True)


class Maker(Protocol[DueIn]):
    def make(self, call: DueIn) -> bytes:
        """The bytes of its request."""
        ...


@dataclass(slots=True, kw_only=True)
class Reading:
    """CPU seconds used so far by each watched tree, and what this process has waited for a core."""

    at: float
    cpu: dict[str, float]
    waited: float


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Columns with one entry for each call, in the order of the schedule."""

    status: list[int]
    latency_ms: list[float]
    first_byte_ms: list[float]
    """Below 0 where no answer began."""
    sent_late_ms: list[float]
    queue_ms: list[float]
    business: list[str]
    reason: list[str]
    began: float = 0.0
    """When the schedule did, by the monotonic clock."""
    connections: int = 0
    readings: list[Reading] = field(default_factory=list)


class Load(Generic[Due]):
    """`edges` are the seconds of the schedule at which to read the watched processes, and then to call `on_edge` with the edge's number.

    `connection` makes the client's side of one, given what it is to call at the end of each exchange.
    """

    def __init__(
        self,
        port: int,
        schedule: Sequence[Due],
        requests: Maker[Due],
        edges: Sequence[float],
        watch: Mapping[str, int],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        opened_beforehand: int = OPENED_BEFOREHAND,
        on_edge: Callable[[int], None] = lambda _: None,
        connection: Callable[[Callable[[Exchange, int], None]], Exchange] = Exchange,
    ) -> None:
        count = len(schedule)
        self.outcome = Outcome(
            status=[LOST] * count,
            latency_ms=[0.0] * count,
            first_byte_ms=[-1.0] * count,
            sent_late_ms=[0.0] * count,
            queue_ms=[-1.0] * count,
            business=[""] * count,
            reason=[""] * count,
        )
        self._port = port
        self._patience_seconds = patience_seconds
        self._opened_beforehand = opened_beforehand
        self._schedule = schedule
        self._requests = requests
        self._edges = edges
        self._on_edge = on_edge
        self._connection = connection
        self._watch = {**watch, OWN: os.getpid()}
        self._idle: list[Exchange] = []
        self._under_way: deque[tuple[float, int, Exchange]] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._next = 0
        self._left = count
        self._done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._began = 0.0

    async def run(self) -> Outcome:
        for _ in range(self._opened_beforehand):
            self._idle.append(await self._connect())
        self._began = self.outcome.began = time.monotonic() + _LEAD_SECONDS
        for one in self._idle:
            one.idle_since = self._began
        sweep = self._loop.create_task(self._sweep())
        readings = self._loop.create_task(self._read_watched())
        if self._schedule:
            self._loop.call_later(_LEAD_SECONDS, self._send_due)
            await self._done.wait()
        await readings
        sweep.cancel()
        for one in self._idle:
            one.give_up()
        return self.outcome

    async def _connect(self) -> Exchange:
        _, made = await self._loop.create_connection(
            lambda: self._connection(self._ended), "127.0.0.1", self._port
        )
        self.outcome.connections += 1
        return made

    def _send_due(self) -> None:
        schedule, number, began = self._schedule, self._next, self._began
        while number < len(schedule):
            now = time.monotonic()
            ahead = began + schedule[number].due - now
            if ahead > 0:
                self._loop.call_later(ahead, self._send_due)
                break
            self._send(number, now)
            number += 1
        self._next = number

    def _send(self, number: int, now: float) -> None:
        call = self._schedule[number]
        self.outcome.sent_late_ms[number] = (now - self._began - call.due) * 1000
        request = self._requests.make(call)
        while self._idle:
            free = self._idle.pop()
            if free.closed:
                continue
            if now - free.idle_since > IDLE_SECONDS:
                # The one on top was used last, so all below are older still.
                for old in (free, *self._idle):
                    old.give_up()
                self._idle.clear()
                break
            self._begin(number, free, request)
            return
        task = self._loop.create_task(self._send_on_new(number, request))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _send_on_new(self, number: int, request: bytes) -> None:
        try:
            made = await self._connect()
        except OSError:
            self._settle(number, LOST)
            return
        self._begin(number, made, request)

    def _begin(self, number: int, on: Exchange, request: bytes) -> None:
        self._under_way.append(
            (self._began + self._schedule[number].due + self._patience_seconds, number, on)
        )
        on.send(number, request)

    def _ended(self, ended: Exchange, status: int) -> None:
        number = ended.call
        outcome = self.outcome
        if ended.first_byte_at:
            due_at = self._began + self._schedule[number].due
            outcome.first_byte_ms[number] = (ended.first_byte_at - due_at) * 1000
        if status != LOST:
            head = ended.head
            if status == 200:
                outcome.queue_ms[number] = exchange.queue_ms(head)
                outcome.business[number] = exchange.business(head)
            else:
                outcome.reason[number] = exchange.reason(head)
        ended.call = -1
        self._settle(number, status)
        if not ended.closed:
            ended.idle_since = time.monotonic()
            self._idle.append(ended)

    def _settle(self, number: int, status: int) -> None:
        outcome = self.outcome
        outcome.status[number] = status
        outcome.latency_ms[number] = (time.monotonic() - self._began - self._schedule[number].due) * 1000
        self._left -= 1
        if not self._left:
            self._done.set()

    async def _sweep(self) -> None:
        """Patience ends in the order in which the calls were due, give or take the time a connection took to open."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            while self._under_way and self._under_way[0][0] <= now:
                _, number, on = self._under_way.popleft()
                if on.call == number:
                    on.give_up()
                    self._settle(number, TIMED_OUT)

    async def _read_watched(self) -> None:
        for number, edge in enumerate(self._edges):
            await asyncio.sleep(max(0.0, self._began + edge - time.monotonic()))
            cpu = {name: cpu_seconds(pid) for name, pid in self._watch.items()}
            self.outcome.readings.append(Reading(at=edge, cpu=cpu, waited=run_queue_seconds(os.getpid())))
            self._on_edge(number)
