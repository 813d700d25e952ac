"""The process around a load: a job as JSON on standard input, its outcome as JSON on standard output.

With `phases` the job is an open loop. With `clients` it is a closed one, for what the fleet can do at most: whichever place of a batch falls free takes
the next call of the schedule, so that no prompt is sent where its cache is but by chance.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from tests.bench.cache.requests import Requests
from tests.bench.cache.schedule import LOAD, MEASURED, RESTART, Call, calls
from tests.bench.json_child import run_in_child, tell
from tests.bench.slo.closed_loop import answers_per_second, without_pauses
from tests.bench.slo.load_generator import PATIENCE_SECONDS, Load, Outcome
from tests.bench.slo.load_job import outcome_of
from tests.bench.slo.schedule import Phase, starts

CLOSED_LOOP_RATE = 100.0
"""Calls per second in whose order the closed loop makes them: a session's turns are then about as far apart as in the open one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    seed: int
    port: int = 0
    rate: float = 0.0
    phases: tuple[Phase, ...] = ()
    watch: Mapping[str, int] = field(default_factory=dict)
    """Name -> pid of the root of a process tree."""
    fleet_pid: int = 0
    """Is told when the phase `RESTART` begins."""
    clients: Mapping[str, int] = field(default_factory=dict)
    """Port -> clients of the closed loop."""
    seconds: float = 0.0
    warm_up_seconds: float = 0.0


def run_open(job: Job) -> Outcome:
    return outcome_of(_in_child(job))


def run_closed(job: Job) -> float:
    """Answers per second."""
    return float(_in_child(job)["rate"])


def _in_child(job: Job) -> dict[str, Any]:
    seconds = sum(phase.seconds for phase in job.phases) + job.seconds + job.warm_up_seconds
    return run_in_child("tests.bench.cache.load_job", asdict(job), seconds + PATIENCE_SECONDS)


async def open_loop(job: Job) -> Outcome:
    def on_edge(number: int) -> None:
        if number < len(job.phases) and job.phases[number].name == RESTART:
            os.kill(job.fleet_pid, signal.SIGUSR1)

    schedule = calls(job.phases, job.rate, job.seed)
    requests = Requests(job.port, job.seed)
    load = Load(job.port, schedule, requests, starts(job.phases), job.watch, on_edge=on_edge)
    without_pauses()
    return await load.run()


async def closed_loop(job: Job) -> float:
    draws = endless(job.seed, job.seconds + job.warm_up_seconds)
    makers = {int(port): Requests(int(port), job.seed) for port in job.clients}
    return await answers_per_second(
        job.clients,
        lambda port: makers[port].make(next(draws)),
        seconds=job.seconds,
        warm_up_seconds=job.warm_up_seconds,
    )


def endless(seed: int, seconds: float) -> Iterator[Call]:
    """A schedule's calls without their times; others when it is over."""
    while True:
        yield from calls((Phase(MEASURED, LOAD, seconds),), CLOSED_LOOP_RATE, seed)
        seed += 1


def main() -> None:
    given = json.load(sys.stdin)
    job = Job(**{**given, "phases": tuple(Phase(**phase) for phase in given["phases"])})
    if job.clients:
        tell({"rate": uvloop.run(closed_loop(job))})
    else:
        tell(asdict(uvloop.run(open_loop(job))))


if __name__ == "__main__":
    main()
