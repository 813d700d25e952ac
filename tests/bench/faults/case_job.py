"""One case against one contender, in a process of its own: a job as JSON on standard input, what was measured as JSON on standard output.

The fleet and the contender are processes of their own, ended by their own pid; the load is made here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop

from tests.bench.children import free_port, get, raise_descriptor_limit, running
from tests.bench.faults.cases import Case, cases
from tests.bench.faults.contenders import CONTENDERS, SUBJECT
from tests.bench.faults.fleet import fleet_running
from tests.bench.faults.measures import Ended, Losses, Measures, endings, measure
from tests.bench.faults.requests import Call, Requests, schedule
from tests.bench.faults.watched_exchange import WatchedExchange
from tests.bench.json_child import run_in_child, tell
from tests.bench.slo.closed_loop import without_pauses
from tests.bench.slo.load_generator import PATIENCE_SECONDS, Load, Outcome

_TRIP = re.compile(r'^headrace_circuit_trips_total\{.*cause="(\w+)".*\} (\S+)$', re.MULTILINE)
_OVER_BUDGET = re.compile(r"^headrace_retry_budget_refusals_total (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    contender: str
    case: str
    seconds: float
    seed: int
    home: str


def run(job: Job) -> Measures:
    """In a child."""
    seconds = cases(job.seconds)[job.case].seconds + PATIENCE_SECONDS
    return measures_of(run_in_child("tests.bench.faults.case_job", asdict(job), seconds))


def measures_of(found: Mapping[str, Any]) -> Measures:
    return Measures(**{**found, "streams": Losses(**found["streams"]), "plain": Losses(**found["plain"])})


def measured(job: Job) -> Measures:
    case = cases(job.seconds)[job.case]
    contender = CONTENDERS[job.contender]
    home = Path(job.home)
    calls = schedule(case.phases, job.seed)
    attempts: dict[int, int] = {}
    page = ""
    with contextlib.ExitStack() as stack:
        fleet = stack.enter_context(fleet_running(home, case.changes))
        port = free_port()
        argv = contender.command(port, fleet.engines, home)
        stack.enter_context(running(argv, port, contender.ready_path, home / "output.log"))
        outcome = uvloop.run(_load(port, calls, case, fleet.pid, attempts))
        if job.contender == SUBJECT:
            page = get(port, "/metrics")[1].decode()
    seen = fleet.seen()
    ended = [
        Ended(
            call,
            outcome.began + call.due,
            outcome.began + call.due + outcome.latency_ms[call.number] / 1000,
            outcome.status[call.number],
            attempts.get(call.number, 1),
            outcome.first_byte_ms[call.number] >= 0,
        )
        for call in calls
    ]
    found = measure(case, ended, seen.arrivals, seen.changed_at, outcome.began + case.seconds)
    found.endings = endings(ended, dict(enumerate(outcome.reason)))
    if page:
        found.opened, found.over_budget = trips(page), over_budget(page)
    return found


async def _load(
    port: int, calls: list[Call], case: Case, fleet_pid: int, attempts: dict[int, int]
) -> Outcome:
    load = Load(
        port,
        calls,
        Requests(port),
        [change.at for change in case.changes],
        {},
        on_edge=lambda _: os.kill(fleet_pid, signal.SIGUSR1),
        connection=lambda on_end: WatchedExchange(on_end, attempts),
    )
    without_pauses()
    return await load.run()


def trips(page: str) -> dict[str, int]:
    """Circuits that opened, by cause, as Headrace's page tells."""
    counts: dict[str, int] = {}
    for cause, count in _TRIP.findall(page):
        counts[cause] = counts.get(cause, 0) + int(float(count))
    return counts


def over_budget(page: str) -> int:
    """Attempts that the retry budget did not allow to be repeated."""
    return sum(int(float(count)) for count in _OVER_BUDGET.findall(page))


def main() -> None:
    raise_descriptor_limit()
    tell(asdict(measured(Job(**json.load(sys.stdin)))))


if __name__ == "__main__":
    main()
