"""One run: a fresh fleet, a contender in front of it, the load; and the fleet alone, for what it can do at most."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.bench.arithmetic import percentile
from tests.bench.cache.fleet import fleet_running
from tests.bench.cache.load_job import Job, run_closed, run_open
from tests.bench.cache.samples import Samples, cached_share, mean_loads, over_bound, overshoots, since
from tests.bench.cache.schedule import MEASURED, Call, calls
from tests.bench.children import free_port, running
from tests.bench.slo.contenders import Contender
from tests.bench.slo.load_generator import Outcome
from tests.bench.slo.run import ENGINES, GATEWAY, PhaseCost, costs
from tests.bench.slo.schedule import Phase, starts

SATURATION_WARM_UP_SECONDS = 8.0


class Ended(NamedTuple):
    call: Call
    status: int
    """0 for an answer that ended too early, below 0 where the client left."""
    first_byte_ms: float
    latency_ms: float
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    contender: str
    version: str
    phases: tuple[Phase, ...]
    calls: list[Ended]
    samples: Samples
    costs: list[PhaseCost]
    """One for each phase."""
    connections: int

    def span(self, name: str) -> tuple[float, float]:
        """The seconds of a phase."""
        edges = starts(self.phases)
        number = next(number for number, phase in enumerate(self.phases) if phase.name == name)
        return edges[number], edges[number + 1]

    def calls_of(self, name: str) -> list[Ended]:
        return [one for one in self.calls if self.phases[one.call.phase].name == name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of a run's measured phase."""

    calls: int
    unanswered: int
    cached_share: float
    first_byte_p50_ms: float
    first_byte_p99_ms: float
    answer_p50_ms: float
    mean_load: float
    largest_load: float
    over_bound: float
    """Requests by which the largest mean load is above 1.25 times the mean of all."""
    over_bound_p99: float
    """The same at each sample, P99."""


@dataclass(frozen=True, slots=True)
class Saturation:
    rate: float
    """Answers per second."""
    cached_share: float


def saturation(scratch: Path, *, seconds: float, seed: int) -> Saturation:
    """Of the fleet when as many clients as a batch has places call every engine again and again."""
    home = scratch / "saturation"
    home.mkdir()
    with fleet_running(home) as fleet:
        clients = {str(engine.port): engine.pool.max_num_seqs for engine in fleet.engines}
        rate = run_closed(
            Job(clients=clients, seconds=seconds, warm_up_seconds=SATURATION_WARM_UP_SECONDS, seed=seed)
        )
    samples = fleet.samples()
    return Saturation(rate, cached_share(samples, samples.at[-1] - seconds, samples.at[-1]))


def run(contender: Contender, phases: tuple[Phase, ...], rate: float, scratch: Path, *, seed: int) -> Run:
    with contextlib.ExitStack() as stack:
        port = free_port()
        home = scratch / f"{contender.name}-{port}"
        home.mkdir()
        fleet = stack.enter_context(fleet_running(home))
        argv = contender.command(port, fleet.engines, home)
        pid = stack.enter_context(running(argv, port, contender.ready_path, home / "output.log"))
        watch = {ENGINES: fleet.pid, GATEWAY: pid}
        outcome = run_open(
            Job(port=port, phases=phases, rate=rate, seed=seed, watch=watch, fleet_pid=fleet.pid)
        )
    schedule = calls(phases, rate, seed)
    return Run(
        contender.name,
        contender.version(),
        phases,
        ended(schedule, outcome),
        since(fleet.samples(), outcome.began),
        costs(outcome, [call.phase for call in schedule], phases),
        outcome.connections,
    )


def ended(schedule: Sequence[Call], outcome: Outcome) -> list[Ended]:
    columns = (outcome.status, outcome.first_byte_ms, outcome.latency_ms, outcome.reason)
    return [Ended(*row) for row in zip(schedule, *columns, strict=True)]


def figures(one: Run) -> Figures:
    begin, end = one.span(MEASURED)
    calls_made = one.calls_of(MEASURED)
    answered = [call for call in calls_made if call.status == 200]
    first_bytes = [call.first_byte_ms for call in answered]
    loads = mean_loads(one.samples, begin, end)
    return Figures(
        calls=len(calls_made),
        unanswered=len(calls_made) - len(answered),
        cached_share=cached_share(one.samples, begin, end),
        first_byte_p50_ms=percentile(first_bytes, 0.5),
        first_byte_p99_ms=percentile(first_bytes, 0.99),
        answer_p50_ms=percentile([call.latency_ms for call in answered], 0.5),
        mean_load=sum(loads) / len(loads),
        largest_load=max(loads),
        over_bound=over_bound(loads),
        over_bound_p99=percentile(overshoots(one.samples, begin, end), 0.99),
    )
