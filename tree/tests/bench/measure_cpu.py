"""CPU per plain request and per streamed chunk, of the whole process tree of each peer, in alternating rounds.

Per request: CPU of the window / answers completed in it, 1.7 KB chat bodies, every peer under the same load of `rate` requests/s. The bars
hold there. In a closed loop of `connections` keep-alive clients, shown without bars, a peer that is twice as fast also gets twice the
load, and with it more events per wake-up of its loop: that compares different work.
Per chunk: `arithmetic.cpu_per_chunk` over a window of `STREAMS` concurrent streams of `CHUNKS` content chunks on average, one chunk per
`STEP_MS` and stream; a stream is charged as one plain request of the same peer and round, the rest is shared by the chunks.
Every peer keeps running for the whole measurement; the order of the peers turns by one with every round.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.bench import figures
from tests.bench.arithmetic import cpu_per_chunk, median_ratio
from tests.bench.children import engine_running
from tests.bench.figures import Figure
from tests.bench.load_generator import Job, Outcome, run_job
from tests.bench.peers import Peer, peer_running

STREAMS = 128
CHUNKS = 200
STEP_MS = 10.0
GROUPS = 8
MOST_COALESCED = 0.05
"""Chunks that merge on the way cost less than chunks that do not: with more of them a window says little about either."""
WINDOW_TRIES = 3

_RATIO_BARS = {
    ("request", "smg"): figures.CPU_OVER_SMG,
    ("request", "nginx"): figures.CPU_OVER_NGINX,
    ("chunk", "smg"): figures.CHUNK_OVER_SMG,
    ("chunk", "nginx"): figures.CHUNK_OVER_NGINX,
}
_METHODS = {
    "request": "open loop at {rate:,.0f} requests/s, 1.7 KB body, not streamed",
    "request at full speed": "closed loop of {connections} clients, 1.7 KB body, not streamed",
    "chunk": f"{STREAMS} streams of {CHUNKS} chunks, one per {STEP_MS:.0f} ms each; less one plain request per stream",
}


def measure_cpu(
    subject: Peer,
    others: Sequence[Peer],
    scratch: Path,
    *,
    seconds: float,
    rounds: int,
    connections: int,
    rate: float,
    progress: Callable[[str], None],
) -> list[Figure]:
    peers = [subject, *others]
    costs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    speeds: defaultdict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        engine_port, _ = stack.enter_context(
            engine_running(scratch / "engine.log", step_ms=STEP_MS, groups=GROUPS)
        )
        places = {peer.name: stack.enter_context(peer_running(peer, engine_port, scratch)) for peer in peers}
        for turn in range(rounds):
            for peer in peers[turn % len(peers) :] + peers[: turn % len(peers)]:
                port, pid = places[peer.name]
                job = Job(port=port, seconds=seconds, connections=connections, rate=rate, watch_pid=pid)
                plain = run_job(job)
                per_request = plain.cpu_seconds / plain.requests
                flat_out = run_job(replace(job, rate=0.0))
                at_full_speed = flat_out.cpu_seconds / flat_out.requests
                streamed = _streamed(port, pid, seconds)
                streams = streamed.chunks / CHUNKS
                per_chunk = cpu_per_chunk(streamed.cpu_seconds, streams, per_request, streamed.chunks)
                costs["request", peer.name].append(per_request * 1e6)
                costs["request at full speed", peer.name].append(at_full_speed * 1e6)
                costs["chunk", peer.name].append(per_chunk * 1e6)
                speeds[peer.name].append(flat_out.requests / flat_out.seconds)
                progress(
                    f"cpu round {turn + 1}/{rounds} {peer.name:12} {per_request * 1e6:7.1f} us/request, "
                    f"{at_full_speed * 1e6:6.1f} at {speeds[peer.name][-1]:,.0f}/s, {per_chunk * 1e6:6.1f} us/chunk "
                    f"({_coalesced(streamed):.1%} of chunks coalesced, starved {plain.starved_share:.0%})"
                )
    methods = {kind: method.format(rate=rate, connections=connections) for kind, method in _METHODS.items()}
    return _figures(subject, others, costs, speeds, methods)


def _streamed(port: int, pid: int, seconds: float) -> Outcome:
    """A streamed window in which chunks arrived one by one; on a busy machine the best of `WINDOW_TRIES`."""
    job = Job(port=port, seconds=seconds, connections=STREAMS, chunks=CHUNKS, watch_pid=pid)
    windows: list[Outcome] = []
    while not windows or (_coalesced(windows[-1]) > MOST_COALESCED and len(windows) < WINDOW_TRIES):
        windows.append(run_job(job))
    return min(windows, key=_coalesced)


def _coalesced(outcome: Outcome) -> float:
    return outcome.coalesced / outcome.chunks


def _figures(
    subject: Peer,
    others: Sequence[Peer],
    costs: dict[tuple[str, str], list[float]],
    speeds: dict[str, list[float]],
    methods: dict[str, str],
) -> list[Figure]:
    found = []
    for kind, method in methods.items():
        for peer in (subject, *others):
            values = costs[kind, peer.name]
            reached = (
                f"{median(speeds[peer.name]):,.0f} requests/s in a "
                if kind == "request at full speed"
                else ""
            )
            found.append(
                Figure(
                    topic="CPU",
                    name=f"{peer.name}, per {kind}",
                    value=median(values),
                    unit="us",
                    detail=reached + method,
                    rounds=tuple(values),
                )
            )
        found += [
            Figure(
                topic="CPU",
                name=f"{subject.name} / {other.name}, per {kind}",
                value=median_ratio(costs[kind, subject.name], costs[kind, other.name]),
                unit="x",
                bar=_RATIO_BARS.get((kind, other.name)),
                detail="median of the rounds' ratios",
            )
            for other in others
        ]
    return found
