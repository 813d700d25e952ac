"""The process around a load: a job as JSON on standard input, its outcome as JSON on standard output.

With `phases` the job is an open loop (`load_generator`). With `clients` it is a closed one, for what a fleet can do at most (`closed_loop`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from tests.bench.json_child import run_in_child, tell
from tests.bench.slo.closed_loop import answers_per_second, without_pauses
from tests.bench.slo.load_generator import PATIENCE_SECONDS, Load, Outcome, Reading
from tests.bench.slo.requests import Requests, Tags
from tests.bench.slo.schedule import Phase, calls, mix, starts


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
    return outcome_of(_in_child(job))


def outcome_of(found: Mapping[str, Any]) -> Outcome:
    return Outcome(**{**found, "readings": [Reading(**reading) for reading in found["readings"]]})


def run_closed(job: Job) -> float:
    """Answers per second."""
    return float(_in_child(job)["rate"])


def _in_child(job: Job) -> dict[str, Any]:
    seconds = sum(phase.seconds for phase in job.phases) + job.seconds + job.warm_up_seconds
    return run_in_child("tests.bench.slo.load_job", asdict(job), seconds + PATIENCE_SECONDS)


async def open_loop(job: Job) -> Outcome:
    schedule = calls(job.phases, job.seed)
    load = Load(job.port, schedule, Requests(job.port, job.tags, job.seed), starts(job.phases), job.watch)
    without_pauses()
    return await load.run()


async def closed_loop(job: Job) -> float:
    draws = mix(job.seed)
    makers = {int(port): Requests(int(port), job.tags, job.seed) for port in job.clients}
    return await answers_per_second(
        job.clients,
        lambda port: makers[port].make(next(draws)),
        seconds=job.seconds,
        warm_up_seconds=job.warm_up_seconds,
    )


def main() -> None:
    given = json.load(sys.stdin)
    phases = tuple(Phase(**phase) for phase in given.pop("phases"))
    job = Job(**{**given, "phases": phases, "tags": Tags(given["tags"])})
    if job.clients:
        tell({"rate": uvloop.run(closed_loop(job))})
    else:
        tell(asdict(uvloop.run(open_loop(job))))


if __name__ == "__main__":
    main()
