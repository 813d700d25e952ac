"""The process around a load: a job as JSON on standard input, its outcome as JSON on standard output.

With `phases` the job is an open loop (`load_generator`). With `clients` it is a closed one, for what a fleet can do at most: on each port so
many clients that call again as soon as they are answered; what counts is the answers per second after `warm_up_seconds`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from tests.bench.children import ROOT
from tests.bench.slo.exchange import Exchange
from tests.bench.slo.load_generator import PATIENCE_SECONDS, Load, Outcome, Reading
from tests.bench.slo.requests import Requests, Tags
from tests.bench.slo.schedule import Phase, calls, mix, starts

_GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    port: int = 0
    phases: tuple[Phase, ...] = ()
    tags: Tags = Tags.NONE
    seed: int = 1
    watch: Mapping[str, int] = field(default_factory=dict)
    """Name -> pid of the root of a process tree."""
    clients: Mapping[str, int] = field(default_factory=dict)
    """Port -> clients of the closed loop."""
    seconds: float = 0.0
    warm_up_seconds: float = 0.0


def run_open(job: Job) -> Outcome:
    done = _in_child(job)
    return Outcome(**{**done, "readings": [Reading(**reading) for reading in done["readings"]]})


def run_closed(job: Job) -> float:
    """Answers per second."""
    return float(_in_child(job)["rate"])


def _in_child(job: Job) -> dict[str, Any]:
    limit = sum(phase.seconds for phase in job.phases) + job.seconds + job.warm_up_seconds
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.slo.load_job"],
        input=json.dumps(asdict(job)).encode(),
        capture_output=True,
        cwd=ROOT,
        timeout=limit + PATIENCE_SECONDS + _GRACE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the load generator failed: {done.stderr.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def open_loop(job: Job) -> Outcome:
    schedule = calls(job.phases, job.seed)
    load = Load(job.port, schedule, Requests(job.port, job.tags, job.seed), starts(job.phases), job.watch)
    _without_pauses()
    return await load.run()


async def closed_loop(job: Job) -> float:
    loop = asyncio.get_running_loop()
    answered = wrong = 0
    draws = mix(job.seed)
    makers = {int(port): Requests(int(port), job.tags, job.seed) for port in job.clients}

    def again(port: int, one: Exchange, status: int) -> None:
        nonlocal answered, wrong
        answered += status == 200
        wrong += status != 200
        one.call = -1
        if not one.closed:
            one.send(0, makers[port].make(next(draws)))

    async def client(port: int) -> None:
        _, made = await loop.create_connection(
            lambda: Exchange(lambda one, status: again(port, one, status)), "127.0.0.1", port
        )
        made.send(0, makers[port].make(next(draws)))

    for port, clients in job.clients.items():
        for _ in range(clients):
            await client(int(port))
    _without_pauses()
    await asyncio.sleep(job.warm_up_seconds)
    before, began = answered, time.monotonic()
    await asyncio.sleep(job.seconds)
    rate = (answered - before) / (time.monotonic() - began)
    if wrong:
        raise RuntimeError(f"{wrong} answers of the engines were no answers")
    return rate


def _without_pauses() -> None:
    """What is allocated from here on has no cycles worth a pause of the clock."""
    gc.collect()
    gc.freeze()
    gc.disable()


def main() -> None:
    given = json.load(sys.stdin)
    phases = tuple(Phase(**phase) for phase in given.pop("phases"))
    job = Job(**{**given, "phases": phases, "tags": Tags(given["tags"])})
    if job.clients:
        print(json.dumps({"rate": uvloop.run(closed_loop(job))}))
    else:
        print(json.dumps(asdict(uvloop.run(open_loop(job)))))


if __name__ == "__main__":
    main()
