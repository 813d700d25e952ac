"""Time a gateway adds, against the engine directly, in alternating rounds; each figure is the median of the rounds' differences.

- Plain calls: open loop, Poisson arrivals at `RATE` per second, 1.7 KB bodies; latency from the moment a call was due.
- Streams: Poisson arrivals at `STREAM_RATE` per second of streams of `CHUNKS` chunks on average, one per `STEP_MS` and stream, so that
  `STREAMS` are open on average (Little's law), stepping in `GROUPS` batches as so many engines would; time to the first body byte, and each
  chunk's transit from the engine's write to the client's read. A chunk that arrives late by x makes the gap before it longer by x, so the
  p99 of the transit bounds the p99 of what a gap grows by. Arrivals do not wait for ends: clients that begin a stream in the very step in
  which another one's ended, as a closed loop has them, arrive in bursts that measure the loop.
- The same with `LARGE_PER_SECOND` plain calls of 500 KB among them. Their own chunks aside, the p99 over all chunks has the bar; the
  p99 over only those chunks that arrive while a large call is in flight (and 20 ms after) is given as well, because it is harder.

The gateway has the first core for itself and both ends share the others, on the direct path as well: so the difference is the gateway, and
not who of the three waited for a core. Where there is one core they share it.
Other work on the machine disturbs every tail: a window of which the host took more than `MOST_STOLEN` of the cores is measured again, up to
`WINDOW_TRIES` times; what it took, and how long the load generator waited for a core, stand in the table.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.bench import figures
from tests.bench.arithmetic import median_difference, percentile
from tests.bench.children import engine_running, on_cores
from tests.bench.figures import Figure
from tests.bench.load_generator import Job, Outcome, run_job
from tests.bench.peers import Peer, peer_running
from tests.bench.process_tree import core_ticks, stolen_share

RATE = 500.0
STREAMS = 256
CHUNKS = 40
STEP_MS = 50.0
GROUPS = 16
STREAM_RATE = STREAMS / (CHUNKS * STEP_MS / 1000)
LARGE_PER_SECOND = 2.0
DIRECT = "direct"
MOST_STOLEN = 0.002
WINDOW_TRIES = 3

_STREAMED = f"{STREAMS} streams open on average, {STREAM_RATE:.0f} begin per second, one chunk per {STEP_MS:.0f} ms each in {GROUPS} batches"
_MIXED = f"the same with {LARGE_PER_SECOND:.0f} prompts of 500 KB per second"
_KINDS = ("plain", "streams", "large")


def measure_latency(
    subject: Peer,
    others: Sequence[Peer],
    scratch: Path,
    *,
    seconds: float,
    rounds: int,
    progress: Callable[[str], None],
) -> list[Figure]:
    peers = [subject, *others]
    starved: list[float] = []
    stolen: list[float] = []
    samples: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_cores(cores[1:] or cores))
        engine_port, _ = stack.enter_context(
            engine_running(scratch / "engine.log", step_ms=STEP_MS, groups=GROUPS)
        )
        ports = {DIRECT: engine_port}
        for peer in peers:
            with on_cores(cores[:1]):
                ports[peer.name], _ = stack.enter_context(peer_running(peer, engine_port, scratch))
        names = list(ports)
        for kind in _KINDS:
            for turn in range(rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    taken, outcome = _least_disturbed(replace(_job(kind, seconds), port=ports[name]))
                    stolen.append(taken)
                    starved.append(outcome.starved_share)
                    measured = _percentiles(kind, outcome)
                    for figure, value in measured.items():
                        samples[figure, name].append(value)
                    shown = "  ".join(f"{figure} {value:.2f} ms" for figure, value in measured.items())
                    progress(
                        f"latency round {turn + 1}/{rounds} {kind:8} {name:12} {shown}  (starved {outcome.starved_share:.1%}, host took {taken:.1%})"
                    )
    disturbance = Figure(
        topic="Latency",
        name="disturbance of the measurement",
        value=100 * median(starved),
        unit="%",
        detail=f"time the load generator itself waited for a core, median of all windows, {100 * max(starved):.1f} % at most",
    )
    taken_by_host = Figure(
        topic="Latency",
        name="cores taken by the host",
        value=100 * median(stolen),
        unit="%",
        detail=f"time in which a virtual machine's cores were given to others, median of all windows, {100 * max(stolen):.1f} % at most: a process then stands still for 15 to 40 ms",
    )
    return [
        *(figure for peer in peers for figure in _figures(peer, samples, with_bars=peer is subject)),
        disturbance,
        taken_by_host,
    ]


def _least_disturbed(job: Job) -> tuple[float, Outcome]:
    """What the host took of the cores, and a window in which it took next to nothing; on a busy machine the best of `WINDOW_TRIES`."""
    windows: list[tuple[float, Outcome]] = []
    while not windows or (windows[-1][0] > MOST_STOLEN and len(windows) < WINDOW_TRIES):
        before = core_ticks()
        outcome = run_job(job)
        windows.append((stolen_share(before, core_ticks()), outcome))
    return min(windows, key=lambda window: window[0])


def _job(kind: str, seconds: float) -> Job:
    if kind == "plain":
        return Job(port=0, seconds=seconds, rate=RATE, timed=True)
    streams = Job(
        port=0,
        seconds=seconds,
        connections=2 * STREAMS,
        rate=STREAM_RATE,
        chunks=CHUNKS,
        timed=True,
        stamped=True,
        warm_up_seconds=2 * CHUNKS * STEP_MS / 1000,
    )
    return streams if kind == "streams" else replace(streams, large_per_second=LARGE_PER_SECOND)


def _percentiles(kind: str, outcome: Outcome) -> dict[str, float]:
    if kind == "plain":
        return {"p50": percentile(outcome.latencies_ms, 0.5), "p99": percentile(outcome.latencies_ms, 0.99)}
    if kind == "streams":
        return {
            "first byte p50": percentile(outcome.first_bytes_ms, 0.5),
            "first byte p99": percentile(outcome.first_bytes_ms, 0.99),
            "gap p50": percentile(outcome.transits_ms, 0.5),
            "gap p99": percentile(outcome.transits_ms, 0.99),
        }
    return {
        "gap p99 with 500 KB": percentile(outcome.transits_ms, 0.99),
        "gap p99 near 500 KB": percentile(outcome.near_large_ms, 0.99),
    }


_SHOWN: tuple[tuple[str, float | None, str], ...] = (
    ("p50", figures.ADDED_P50_MS, f"open loop at {RATE:.0f} requests/s, 1.7 KB body, not streamed"),
    ("p99", figures.ADDED_P99_MS, f"open loop at {RATE:.0f} requests/s, 1.7 KB body, not streamed"),
    ("first byte p50", None, _STREAMED),
    ("first byte p99", figures.ADDED_FIRST_BYTE_P99_MS, _STREAMED),
    ("gap p50", None, _STREAMED),
    ("gap p99", figures.ADDED_GAP_P99_MS, _STREAMED),
    ("gap p99 with 500 KB", figures.ADDED_GAP_P99_WITH_LARGE_MS, _MIXED),
    ("gap p99 near 500 KB", None, "of these, only chunks arriving during a 500 KB call or 20 ms after"),
)


def _figures(peer: Peer, samples: dict[tuple[str, str], list[float]], *, with_bars: bool) -> list[Figure]:
    found = []
    for name, bar, detail in _SHOWN:
        through, direct = samples[name, peer.name], samples[name, DIRECT]
        found.append(
            Figure(
                topic="Latency",
                name=f"{peer.name}, added {name}",
                value=median_difference(through, direct),
                unit="ms",
                bar=bar if with_bars else None,
                detail=f"{sorted(direct)[len(direct) // 2]:.2f} ms direct; {detail}",
                rounds=tuple(mine - other for mine, other in zip(through, direct, strict=True)),
            )
        )
    return found
