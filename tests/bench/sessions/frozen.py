"""Redis frozen under load: a gateway process in affinity mode before emulated engines, while its Redis is stopped by SIGSTOP and goes on at SIGCONT.

Open loop of `RATE` Poisson arrivals per second; each request names its session, `NEW_SHARE` of them one that nobody has seen, whose home has to be looked up in the store, the
others one of `SESSIONS` in turn. `/metrics` is read every `SCRAPE_SECONDS` throughout, so that all phases pay for it alike.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import uvloop

from tests.bench.arithmetic import percentile
from tests.bench.children import free_port, get, running
from tests.bench.figures import Figure
from tests.bench.slo.closed_loop import without_pauses
from tests.bench.slo.load_generator import Load, Outcome
from tests.redis_server import TcpServer, tcp_server

RATE = 300.0
SESSIONS = 500
NEW_SHARE = 0.2
ENGINES = 4
BATCH = 32
WARM_UP_SECONDS = 5.0
BACK_SECONDS = 2.0
SCRAPE_SECONDS = 0.1
BEFORE, FROZEN, AFTER = 1, 2, 3
"""Numbers of the phases; 0 is the warm-up."""


class Call(NamedTuple):
    due: float
    phase: int
    session: str


class Sample(NamedTuple):
    at: float
    is_open: bool
    queued: float


def schedule(edges: list[float], seed: int) -> list[Call]:
    chance = Random(f"sessions {seed}")
    calls: list[Call] = []
    due = chance.expovariate(RATE)
    while due < edges[-1]:
        phase = sum(due >= edge for edge in edges[1:])
        is_new = chance.random() < NEW_SHARE
        calls.append(Call(due, phase, f"new-{len(calls)}" if is_new else f"s-{chance.randrange(SESSIONS)}"))
        due += chance.expovariate(RATE)
    return calls


class Requests:
    def __init__(self, port: int) -> None:
        self._head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"

    def make(self, call: Call) -> bytes:
        messages = [{"role": "user", "content": f"{call.session} " + "asks the same again. " * 20}]
        body = json.dumps({"model": "bench", "messages": messages, "max_tokens": 20})
        return f"{self._head}x-headrace-session: {call.session}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


class Scraper(threading.Thread):
    """Reads the gateway's page until it is told to end."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[Sample] = []
        self.stop = threading.Event()
        self._port = port

    def run(self) -> None:
        while not self.stop.wait(SCRAPE_SECONDS):
            with contextlib.suppress(OSError):
                page = get(self._port, "/metrics")[1].decode()
                values = dict(
                    line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("headrace_session_")
                )
                self.samples.append(
                    Sample(
                        time.monotonic(),
                        values.get("headrace_session_store_breaker_open") == "1.0",
                        float(values.get("headrace_session_writes_queued", "nan")),
                    )
                )


@contextlib.contextmanager
def gateway_running(scratch: Path, redis_url: str) -> Iterator[int]:
    with contextlib.ExitStack() as stack:
        engines = []
        for number in range(ENGINES):
            port = free_port()
            argv = [sys.executable, "-m", "gateway", "engine", "--port", str(port), "--model", "bench"]
            argv += [
                "--max-num-seqs",
                str(BATCH),
                "--base-ms",
                "30",
                "--slope-ms",
                "0.5",
                "--seed",
                str(number),
            ]
            stack.enter_context(running(argv, port, "/health", scratch / f"engine-{number}.log"))
            engines.append({"url": f"http://127.0.0.1:{port}"})
        port = free_port()
        file = scratch / "headrace.yaml"
        configuration = {
            "server": {"host": "127.0.0.1", "port": port},
            "pools": [{"name": "fleet", "window": {"max": BATCH}, "backends": engines}],
            "sessions": {"redis_url": redis_url},
            "log": {"requests": False},
        }
        file.write_text(json.dumps(configuration))  # JSON is YAML
        argv = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
        stack.enter_context(running(argv, port, "/readyz", scratch / "headrace.log"))
        yield port


def measured(scratch: Path, frozen_seconds: float, around_seconds: float, seed: int) -> list[Figure]:
    edges = [0.0]
    for seconds in (WARM_UP_SECONDS, around_seconds, frozen_seconds, around_seconds):
        edges.append(edges[-1] + seconds)
    calls = schedule(edges, seed)
    thawed: list[float] = []
    with tcp_server() as redis, gateway_running(scratch, redis.url) as port:
        scraper = Scraper(port)
        scraper.start()
        outcome = uvloop.run(_load(port, calls, edges, redis, thawed))
        scraper.stop.set()
        scraper.join()
    return figures(calls, outcome, scraper.samples, thawed[0], frozen_seconds)


async def _load(
    port: int, calls: list[Call], edges: list[float], redis: TcpServer, thawed: list[float]
) -> Outcome:
    def on_edge(number: int) -> None:
        if number == FROZEN:
            redis.freeze()
        elif number == AFTER:
            redis.thaw()
            thawed.append(time.monotonic())

    load = Load(port, calls, Requests(port), edges, {}, on_edge=on_edge)
    without_pauses()
    return await load.run()


def figures(
    calls: list[Call], outcome: Outcome, samples: list[Sample], thawed_at: float, frozen_seconds: float
) -> list[Figure]:
    """Raises `RuntimeError` where the breaker never opened: then nothing was tried."""
    if not any(sample.is_open for sample in samples):
        raise RuntimeError("the breaker never opened")
    failed = sum(status != 200 for status in outcome.status)
    p99 = {
        phase: percentile(
            [taken for call, taken in zip(calls, outcome.latency_ms, strict=True) if call.phase == phase],
            0.99,
        )
        for phase in (BEFORE, FROZEN, AFTER)
    }
    closed = [sample.at for sample in samples if sample.at >= thawed_at and not sample.is_open]
    back = closed[0] - thawed_at if closed else float("inf")
    queued = max(sample.queued for sample in samples)
    topic = f"Redis frozen for {frozen_seconds:g} s"
    load = f"{RATE:g} requests/s, affinity mode, {NEW_SHARE:.0%} of new sessions"

    def figure(name: str, value: float, unit: str, detail: str, bar: float | None = None) -> Figure:
        return Figure(topic=topic, name=name, value=value, unit=unit, detail=detail, bar=bar)

    return [
        figure("failed requests", failed, "", f"of {len(calls)}; {load}", bar=0),
        figure("P99 before", p99[BEFORE], "ms", "from the moment at which a request was due"),
        figure("P99 while frozen", p99[FROZEN], "ms", "the same"),
        figure("P99 after", p99[AFTER], "ms", "the same"),
        figure("P99 added", p99[FROZEN] - p99[BEFORE], "ms", "while frozen less before", bar=1.0),
        figure("writes queued at most", queued, "", "as the gateway's page says", bar=10_000),
        figure("until in use again", back, "s", "from SIGCONT to a closed breaker", bar=BACK_SECONDS),
    ]
