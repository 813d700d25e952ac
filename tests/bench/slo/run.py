"""One run: a fresh fleet, a contender in front of it, the load; and the fleet alone, for what it can do at most."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.bench.arithmetic import percentile
from tests.bench.children import free_port, running
from tests.bench.slo.contenders import Contender
from tests.bench.slo.fleet import fleet_running
from tests.bench.slo.load_generator import OWN, Outcome
from tests.bench.slo.load_job import Job, run_closed, run_open
from tests.bench.slo.schedule import Phase, calls
from tests.bench.slo.shares import Ended, ended

ENGINES, GATEWAY = "engines", "gateway"
MOST_LATE_MS = 10.0
"""Above this, at P99 of a phase's calls, the machine had not enough left for the load generator to be believed."""
SATURATION_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """What the parts of the measurement used in one phase, and how well the generator kept its time."""

    cores: dict[str, float]
    starved_share: float
    """Part of the phase that the generator was ready to run without getting a core."""
    sent_late_p99_ms: float


@dataclass(frozen=True, slots=True)
class Run:
    contender: str
    version: str
    phases: tuple[Phase, ...]
    calls: list[Ended]
    costs: list[PhaseCost]
    """One for each phase."""
    connections: int


def saturation(scratch: Path, *, seconds: float, seed: int) -> float:
    """Answers per second of the fleet when as many clients as a batch has places call every engine again and again."""
    with fleet_running(scratch / "saturation-fleet.log") as (engines, _):
        clients = {str(engine.port): engine.pool.max_num_seqs for engine in engines}
        return run_closed(
            Job(clients=clients, seconds=seconds, warm_up_seconds=SATURATION_WARM_UP_SECONDS, seed=seed)
        )


def run(contender: Contender, phases: tuple[Phase, ...], scratch: Path, *, seed: int) -> Run:
    with contextlib.ExitStack() as stack:
        port = free_port()
        home = scratch / f"{contender.name}-{port}"
        home.mkdir()
        engines, fleet_pid = stack.enter_context(fleet_running(home / "fleet.log"))
        argv = contender.command(port, engines, home)
        pid = stack.enter_context(running(argv, port, contender.ready_path, home / "output.log"))
        watch = {ENGINES: fleet_pid, GATEWAY: pid}
        outcome = run_open(Job(port=port, phases=phases, tags=contender.tags, seed=seed, watch=watch))
    found = ended(calls(phases, seed), outcome)
    return Run(
        contender.name,
        contender.version(),
        phases,
        found,
        costs(outcome, [one.call.phase for one in found], phases),
        outcome.connections,
    )


def costs(outcome: Outcome, phase_of: Sequence[int], phases: Sequence[Phase]) -> list[PhaseCost]:
    """`phase_of` is the phase of each call of the schedule."""
    late = list(zip(phase_of, outcome.sent_late_ms, strict=True))
    return [
        PhaseCost(
            {name: (after.cpu[name] - before.cpu[name]) / phase.seconds for name in (ENGINES, GATEWAY, OWN)},
            (after.waited - before.waited) / phase.seconds,
            percentile([late_ms for phase, late_ms in late if phase == number] or [0.0], 0.99),
        )
        for number, (phase, (before, after)) in enumerate(
            zip(phases, pairwise(outcome.readings), strict=True)
        )
    ]
