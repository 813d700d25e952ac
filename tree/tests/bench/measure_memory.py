"""Resident memory of a peer's process tree: at rest, after many requests, its slope, and per open stream.

At rest: `SETTLE_SECONDS` after it reports ready. After N: plain 1.7 KB calls from 32 clients in `BATCHES` equal batches, memory
read after each; the slope is the least-squares line through the second half. Per stream: growth when `streams` streams are open and
each has received a chunk (one chunk per `STREAM_STEP_SECONDS` each), divided by their number; a peer fresh from its start is used,
so that memory already freed for reuse does not flatter the figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import figures
from tests.bench.arithmetic import slope
from tests.bench.children import engine_running
from tests.bench.figures import Figure
from tests.bench.held_streams import held_streams
from tests.bench.load_generator import Job, run_job
from tests.bench.peers import Peer, peer_running
from tests.bench.process_tree import resident_bytes

BATCHES = 20
SETTLE_SECONDS = 2.0
STREAM_STEP_SECONDS = 5.0
STREAM_GROUPS = 100
MB = 1e6
KB = 1e3


def measure_memory(
    subject: Peer, scratch: Path, *, requests: int, streams: int, progress: Callable[[str], None]
) -> list[Figure]:
    return [
        *_of_requests(subject, scratch, requests, progress),
        _of_streams(subject, scratch, streams, progress),
    ]


def _of_requests(
    subject: Peer, scratch: Path, requests: int, progress: Callable[[str], None]
) -> list[Figure]:
    batch = max(1, requests // BATCHES)
    counts, sizes = [], []
    with (
        engine_running(scratch / "engine.log", step_ms=10, groups=4) as (engine_port, _),
        peer_running(subject, engine_port, scratch) as (port, pid),
    ):
        time.sleep(SETTLE_SECONDS)
        rest = resident_bytes(pid)
        for number in range(1, BATCHES + 1):
            run_job(Job(port=port, requests=batch))
            counts.append(float(number * batch))
            sizes.append(float(resident_bytes(pid)))
            progress(f"memory {subject.name} after {number * batch:,} requests: {sizes[-1] / MB:.1f} MB")
    half = BATCHES // 2
    total = batch * BATCHES
    return [
        Figure(
            topic="Memory", name=f"{subject.name}, at rest", value=rest / MB, unit="MB", bar=figures.REST_MB
        ),
        Figure(
            topic="Memory",
            name=f"{subject.name}, after {total:,} requests",
            value=sizes[-1] / MB,
            unit="MB",
            bar=figures.AFTER_MB,
            rounds=tuple(size / MB for size in sizes),
        ),
        Figure(
            topic="Memory",
            name=f"{subject.name}, slope",
            value=slope(counts[half:], sizes[half:]),
            unit="B/request",
            bar=figures.SLOPE_BYTES_PER_REQUEST if total >= figures.SLOPE_LEAST_REQUESTS else None,
            detail=f"over the last {total // 2:,} requests",
        ),
    ]


def _of_streams(subject: Peer, scratch: Path, streams: int, progress: Callable[[str], None]) -> Figure:
    step_ms = STREAM_STEP_SECONDS * 1000
    with (
        engine_running(scratch / "engine.log", step_ms=step_ms, groups=STREAM_GROUPS) as (engine_port, _),
        peer_running(subject, engine_port, scratch) as (port, pid),
    ):
        run_job(Job(port=port, requests=500))
        before = resident_bytes(pid)
        with held_streams(port, streams):
            during = resident_bytes(pid)
    progress(
        f"memory {subject.name} with {streams:,} open streams: {during / MB:.1f} MB, {before / MB:.1f} MB before"
    )
    return Figure(
        topic="Memory",
        name=f"{subject.name}, per open stream",
        value=(during - before) / streams / KB,
        unit="KB",
        bar=figures.STREAM_KB,
        detail=f"{streams:,} open streams, one chunk per {STREAM_STEP_SECONDS:.0f} s each",
    )
