"""Nothing may be left behind by badly behaved clients: levels before and after `count` random disconnects, resets and stalls.

Levels: descriptors and ESTABLISHED sockets of the gateway's process tree (from /proc); requests in flight, upstream connections in
use and asyncio tasks as the gateway itself reports them on `/metrics`, where it has them; streams and connections open at the mock
engine. The start's levels are read `QUIET_SECONDS` after a warm-up of `WARM_UP_VISITS`, when idle connections have timed out. Afterwards the levels get
`SETTLE_SECONDS` to come back; what then stands above the start's level is leaked. The engine resets or cuts a share of the calls too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import figures
from tests.bench.children import ROOT, end, engine_running, get
from tests.bench.figures import Figure
from tests.bench.peers import Peer, peer_running
from tests.bench.process_tree import established_sockets, open_descriptors, resident_bytes

SETTLE_SECONDS = 60.0
QUIET_SECONDS = 6.0
"""Longer than the engine's keep-alive of 5 s, after which no idle upstream connection should be left."""
WARM_UP_VISITS = 300
ENGINE_FAULT_SHARE = 0.01
MB = 1e6

_GAUGES = {
    "requests in flight": ("headrace_requests_in_flight", ""),
    "upstream connections in use": ("headrace_upstream_connections", 'state="busy"'),
    "asyncio tasks": ("headrace_asyncio_tasks", ""),
}


def gauge(page: str, name: str, label: str = "") -> float | None:
    """The sum of a metric's samples that carry `label`, from a page in Prometheus' text format; None if there are none."""
    values = []
    for line in page.splitlines():
        sample, _, value = line.rpartition(" ")
        if sample.partition("{")[0] == name and label in sample:
            values.append(float(value))
    return sum(values) if values else None


def levels(port: int, pid: int, engine_port: int) -> dict[str, float]:
    found = {
        "descriptors": float(open_descriptors(pid)),
        "established sockets": float(established_sockets(pid)),
    }
    status, page = get(port, "/metrics")
    if status == 200:
        for name, (metric, label) in _GAUGES.items():
            if (value := gauge(page.decode(), metric, label)) is not None:
                found[name] = value
    engine = json.loads(get(engine_port, "/mock/stats")[1])
    found["streams running in the engine"] = engine["streams"]
    found["connections to the engine"] = engine["connections"] - 1  # less the one that asks
    return found


def measure_soak(
    subject: Peer, scratch: Path, *, count: int, seed: int, progress: Callable[[str], None]
) -> list[Figure]:
    with (
        engine_running(scratch / "engine.log", step_ms=5, groups=4, fault_share=ENGINE_FAULT_SHARE) as (
            engine_port,
            _,
        ),
        peer_running(subject, engine_port, scratch) as (port, pid),
    ):
        _run_clients(port, WARM_UP_VISITS, seed + 1, lambda _: None)
        before = _settled(port, pid, engine_port, {})
        memory_before = resident_bytes(pid)
        progress(f"soak {subject.name} before: {_shown(before)}, {memory_before / MB:.1f} MB")
        began = time.monotonic()
        counts = _run_clients(port, count, seed, progress)
        seconds = time.monotonic() - began
        after = _settled(port, pid, engine_port, before)
        memory_after = resident_bytes(pid)
        progress(f"soak {subject.name} after:  {_shown(after)}, {memory_after / MB:.1f} MB")
    progress("soak visits: " + ", ".join(f"{kind} {number:,}" for kind, number in sorted(counts.items())))
    how = f"{count:,} visits in {seconds:.0f} s, {ENGINE_FAULT_SHARE:.0%} of calls cut by the engine"
    leaked = [
        Figure(
            topic="Soak",
            name=f"{subject.name}, {name} leaked",
            value=max(0.0, after[name] - before[name]),
            unit="",
            bar=figures.LEAKED,
            detail=f"{before[name]:.0f} before, {after[name]:.0f} after; {how}",
        )
        for name in before
    ]
    hung = float(sum(number for kind, number in counts.items() if "hung" in kind))
    return [
        *leaked,
        Figure(
            topic="Soak",
            name=f"{subject.name}, visits hung",
            value=hung,
            unit="",
            bar=figures.LEAKED,
            detail=how,
        ),
        Figure(
            topic="Soak",
            name=f"{subject.name}, memory grown",
            value=(memory_after - memory_before) / MB,
            unit="MB",
            detail=f"{memory_before / MB:.1f} MB before",
        ),
    ]


def _shown(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in found.items())


def _settled(port: int, pid: int, engine_port: int, wanted: dict[str, float]) -> dict[str, float]:
    """With `wanted`: the levels once none is above it or `SETTLE_SECONDS` have passed. Without: those after a quiet time."""
    deadline = time.monotonic() + (SETTLE_SECONDS if wanted else QUIET_SECONDS)
    while True:
        found = levels(port, pid, engine_port)
        if wanted and all(found.get(name, value) <= value for name, value in wanted.items()):
            return found
        if time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def _run_clients(port: int, count: int, seed: int, progress: Callable[[str], None]) -> dict[str, int]:
    argv = [sys.executable, "-m", "tests.bench.soak_clients", str(port), str(count), str(seed)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=False)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"{"):
                counts: dict[str, int] = json.loads(line)
                return counts
            progress(f"soak {line.decode().strip()}")
        raise RuntimeError("the soak's clients ended without a result")
    finally:
        end(process)
