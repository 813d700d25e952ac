"""The load of one measurement, run in a process of its own: a job as JSON in, an outcome as JSON out.

Closed loop: `connections` clients, each sending its next request when the last is answered, for `seconds` after `warm_up_seconds`
or until `requests` are done. Open loop (`rate` > 0): Poisson arrivals at `rate` per second whatever the answers do, seeded, so that
every peer meets the same schedule; a request that finds no free connection waits for one and the wait counts. Streams ask for
`chunks` content chunks on average; the first stream of each connection is shorter by a random amount, so that they do not end in step.
`large_per_second` sends plain calls of `large_bytes` among them, on a connection of their own.

The CPU of the process tree `watch_pid` is read at the window's two ends, by this process, next to its own counts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field

import uvloop

from tests.bench.chat_bodies import chat_body, chat_request, chat_requests
from tests.bench.children import ROOT
from tests.bench.exchange import Exchange, Tally
from tests.bench.json_child import tell
from tests.bench.process_tree import cpu_seconds, run_queue_seconds

MAX_REQUEST_SECONDS = 60.0
SHADOW_NS = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    port: int
    connections: int = 32
    seconds: float = 5.0
    warm_up_seconds: float = 1.0
    requests: int = 0
    rate: float = 0.0
    chunks: int = 0
    timed: bool = False
    stamped: bool = False
    large_per_second: float = 0.0
    large_bytes: int = 500_000
    watch_pid: int = 0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Counts are those of the measured window; `cpu_seconds` is the watched tree's."""

    seconds: float
    cpu_seconds: float
    starved_share: float
    """Part of the window this process itself was ready to run without getting a core: how far its times can be trusted."""
    requests: int
    chunks: int
    coalesced: int
    errors: int
    first_error: str
    latencies_ms: list[float] = field(default_factory=list)
    first_bytes_ms: list[float] = field(default_factory=list)
    transits_ms: list[float] = field(default_factory=list)
    near_large_ms: list[float] = field(default_factory=list)
    """Transits of chunks that arrived while a large call was in flight or within `SHADOW_NS` after it."""
    large_requests: int = 0


def run_job(job: Job) -> Outcome:
    """Run `job` in a child process and wait for its outcome."""
    limit = job.warm_up_seconds + job.seconds + MAX_REQUEST_SECONDS + job.requests / 200
    done = subprocess.run(_argv(job), capture_output=True, cwd=ROOT, timeout=limit, check=False)
    if done.returncode:
        raise RuntimeError(f"the load generator failed: {done.stderr.decode()[-2000:]}")
    outcome = Outcome(**json.loads(done.stdout))
    if outcome.errors:
        raise RuntimeError(
            f"{outcome.errors} of {outcome.requests} answers were not as expected, the first: {outcome.first_error}"
        )
    return outcome


def _argv(job: Job) -> list[str]:
    return [sys.executable, "-m", "tests.bench.load_generator", json.dumps(asdict(job))]


class Load:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.tally = Tally()
        self.requests = chat_requests(job.port, chunks=job.chunks)
        self.idle: list[Exchange] = []
        self.backlog: deque[int] = deque()
        self.large_spans: list[tuple[int, int]] = []
        self.sent = 0
        self.stopping = False
        self.finished = asyncio.Event()
        self.chance = random.Random(7)

    async def connect(self) -> Exchange:
        loop = asyncio.get_running_loop()
        job = self.job

        def protocol() -> Exchange:
            return Exchange(self.tally, self.ended, timed=job.timed, stamped=job.stamped)

        _, exchange = await loop.create_connection(protocol, "127.0.0.1", job.port)
        return exchange

    def next_request(self) -> bytes:
        self.sent += 1
        return self.requests[self.sent % len(self.requests)]

    def ended(self, exchange: Exchange) -> None:
        """Closed loop: go on at once. Open loop: serve the backlog or become idle."""
        if exchange.lost and exchange in self.idle:
            self.idle.remove(exchange)  # a server may close a connection that is not used for long
            return
        if exchange.lost:
            self.tally.errors += not self.stopping
            self.tally.first_error = (
                self.tally.first_error or "the connection was closed between two requests"
            )
            if not self.stopping and self.job.requests:
                self.finished.set()
            return
        if self.stopping or (self.job.requests and self.sent >= self.job.requests):
            if self.job.requests and self.tally.requests >= self.job.requests:
                self.finished.set()
            return
        if not self.job.rate:
            exchange.send(self.next_request())
        elif self.backlog:
            exchange.send(self.next_request(), self.backlog.popleft())
        else:
            self.idle.append(exchange)

    async def arrivals(self) -> None:
        due = time.monotonic()
        while True:
            due += self.chance.expovariate(self.job.rate)
            if (delay := due - time.monotonic()) > 0:
                await asyncio.sleep(delay)
            if self.idle:
                self.idle.pop().send(self.next_request())
            else:
                self.backlog.append(time.monotonic_ns())

    async def large_calls(self) -> None:
        """One at a time, at even intervals."""
        request = chat_request(self.job.port, chat_body(size=self.job.large_bytes))
        answered = asyncio.Event()
        tally = Tally()

        def note(exchange: Exchange) -> None:
            self.large_spans.append((exchange.sent_ns, time.monotonic_ns()))
            answered.set()

        loop = asyncio.get_running_loop()
        connect = loop.create_connection(
            lambda: Exchange(tally, note, timed=False, stamped=False), "127.0.0.1", self.job.port
        )
        _, exchange = await connect
        try:
            while not exchange.lost:
                answered.clear()
                exchange.send(request)
                await answered.wait()
                self.tally.errors += tally.errors
                self.tally.first_error = self.tally.first_error or tally.first_error
                await asyncio.sleep(1 / self.job.large_per_second)
        finally:
            exchange.transport.abort()

    async def run(self) -> Outcome:
        job = self.job
        exchanges = [await self.connect() for _ in range(job.connections)]
        gc.freeze()
        gc.set_threshold(200_000, 50, 50)
        background: set[asyncio.Task[None]] = set()
        if job.rate:
            self.idle = list(exchanges)
            background.add(asyncio.create_task(self.arrivals()))
        else:
            for exchange in exchanges[: job.requests or None]:
                exchange.send(self._opening_request())
        if job.large_per_second:
            background.add(asyncio.create_task(self.large_calls()))
        if not job.requests:
            await asyncio.sleep(job.warm_up_seconds)
        self._forget_warm_up()
        cpu_before, waited, began = self._watched_cpu(), run_queue_seconds(os.getpid()), time.monotonic()
        if job.requests:
            await self.finished.wait()
        else:
            await asyncio.sleep(job.seconds)
        cpu, seconds = self._watched_cpu() - cpu_before, time.monotonic() - began
        self.stopping = True
        outcome = self._outcome(seconds, cpu, (run_queue_seconds(os.getpid()) - waited) / seconds)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for exchange in exchanges:
            exchange.transport.abort()
        return outcome

    def _opening_request(self) -> bytes:
        if not self.job.chunks:
            return self.next_request()
        self.sent += 1
        return chat_request(self.job.port, chat_body(chunks=self.chance.randint(1, self.job.chunks)))

    def _forget_warm_up(self) -> None:
        tally = self.tally
        tally.requests = tally.chunks = tally.coalesced = 0
        tally.latencies.clear()
        tally.first_bytes.clear()
        tally.transits.clear()
        self.large_spans.clear()

    def _watched_cpu(self) -> float:
        return cpu_seconds(self.job.watch_pid) if self.job.watch_pid else 0.0

    def _outcome(self, seconds: float, cpu: float, starved_share: float) -> Outcome:
        tally = self.tally
        spans = self.large_spans
        near = [
            transit
            for arrived, transit in tally.transits
            if any(sent <= arrived <= done + SHADOW_NS for sent, done in spans)
        ]
        return Outcome(
            seconds=seconds,
            cpu_seconds=cpu,
            starved_share=starved_share,
            requests=tally.requests,
            chunks=tally.chunks,
            coalesced=tally.coalesced,
            errors=tally.errors,
            first_error=tally.first_error,
            latencies_ms=[value / 1e6 for value in tally.latencies],
            first_bytes_ms=[value / 1e6 for value in tally.first_bytes],
            transits_ms=[transit / 1e6 for _, transit in tally.transits],
            near_large_ms=[transit / 1e6 for transit in near],
            large_requests=len(spans),
        )


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))

    async def run() -> Outcome:
        return await Load(job).run()

    tell(asdict(uvloop.run(run())))


if __name__ == "__main__":
    main()
