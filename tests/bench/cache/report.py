"""What is printed and saved: one table that compares all, the verdicts, what the disturbances did, JSON with every figure."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.arithmetic import percentile
from tests.bench.cache.disturbances import LOAD_LEVEL, Disturbed
from tests.bench.cache.fleet import KV_BLOCKS, POOL
from tests.bench.cache.run import Figures, Run, Saturation, figures
from tests.bench.cache.samples import mean_loads
from tests.bench.cache.schedule import LOAD, MEASURED, Kind
from tests.bench.cache.working_set import WorkingSet
from tests.bench.slo.bars import Verdict
from tests.bench.slo.run import MOST_LATE_MS
from tests.bench.slo.schedule import Phase
from tests.bench.table import PIPED_WIDTH, machine

_COLUMNS = (
    "",
    "cached tokens",
    "first byte P50",
    "first byte P99",
    "answer P50",
    "load, mean / largest engine",
    "above 1.25 x mean, P99",
    "without an answer",
)


def heading(
    able: Saturation, known: WorkingSet, absent: Mapping[str, str], phases: Sequence[Phase], seed: int
) -> list[str]:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools"))
    plan = ", ".join(f"{phase.name} {phase.seconds:g} s" for phase in phases)
    held = POOL.engines * KV_BLOCKS
    return [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load average {os.getloadavg()[0]:.1f} at the start",
        f"Python {platform.python_version()}, {libraries}",
        f"the fleet's saturation throughput with full batches: {able.rate:.1f} requests/s, {able.cached_share:.1%} of the prompt tokens cached",
        f"{LOAD:g} of it: {LOAD * able.rate:.1f} requests/s, {known.mean_prompt_tokens:.0f} prompt tokens on average; {plan}; seed {seed}",
        f"working set {known.blocks} blocks, the caches hold {held} ({held / known.blocks:.0%}); one without bounds would find {known.repeated_share:.1%}",
        *(f"absent: {name} ({reason})" for name, reason in absent.items()),
    ]


def comparison(measured: Mapping[str, Figures]) -> list[list[str]]:
    """The head and one row for each contender."""
    return [
        list(_COLUMNS),
        *(
            [
                name,
                f"{100 * one.cached_share:.1f} %",
                f"{one.first_byte_p50_ms:.0f} ms",
                f"{one.first_byte_p99_ms:.0f} ms",
                f"{one.answer_p50_ms:.0f} ms",
                f"{one.mean_load:.2f} / {one.largest_load:.2f}",
                f"{one.over_bound_p99:.1f}",
                str(one.unanswered),
            ]
            for name, one in measured.items()
        ),
    ]


def print_run(one: Run) -> None:
    """A line on the run itself, and whether to believe it."""
    for phase, cost in zip(one.phases, one.costs, strict=True):
        used = ", ".join(f"{name} {cores:.2f}" for name, cores in cost.cores.items())
        busy = "  <- do not trust this phase" if cost.sent_late_p99_ms > MOST_LATE_MS else ""
        _console().print(
            f"{one.contender}, {phase.name}: cores used: {used}; calls sent late by {cost.sent_late_p99_ms:.1f} ms at P99, "
            f"generator without a core {cost.starved_share:.1%}{busy}",
            highlight=False,
        )


def print_comparison(measured: Mapping[str, Figures]) -> None:
    table = Table(title="where the KV cache is", title_justify="left")
    head, *rows = comparison(measured)
    for column in head:
        table.add_column(column, justify="left" if not column else "right")
    for cells in rows:
        table.add_row(*cells)
    _console().print(table)


def disturbance_lines(found: Disturbed) -> list[str]:
    shares = " ".join(f"{100 * share:.0f}" for share in found.load_shares)
    return [
        f"popularity shifts: {found.before_share:.1%} cached before, {found.settled_share:.1%} when settled, within 10 % of that "
        f"{_seconds(found.shift_seconds)}; {found.unanswered_shift} calls without an answer",
        f"an engine restarts: {found.unanswered_restart} calls without an answer; its part of the load in % by the second: {shares}",
        f"its cached share within 15 % of the fleet's ({found.fleet_share:.1%}) {_seconds(found.restart_seconds)}; "
        f"{LOAD_LEVEL:g} x the mean load {_seconds(found.load_seconds)}",
    ]


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        _console().print(line, highlight=False)


def markdown(measured: Mapping[str, Figures], found: Sequence[Verdict], above: Sequence[str]) -> str:
    head, *rows = ["| " + " | ".join(cells) + " |" for cells in comparison(measured)]
    bars = [
        f"| {one.name} | {one.value:.2f} {one.unit} | {'>=' if one.at_least else '<='} {one.bar:g} |"
        for one in found
    ]
    return (
        "\n".join(
            [
                *(f"{line}  " for line in above),
                "",
                head,
                "|---|" + "---:|" * (len(_COLUMNS) - 1),
                *rows,
                "",
                "| Headrace | measured | bar |",
                "|---|---:|---:|",
                *bars,
            ]
        )
        + "\n"
    )


def save_json(
    path: Path,
    runs: Sequence[Run],
    able: Saturation,
    known: WorkingSet,
    found: Sequence[Verdict],
    disturbed: Disturbed | None,
    above: Sequence[str],
) -> None:
    record = {
        "context": list(above),
        "saturation": asdict(able),
        "working_set": asdict(known),
        "runs": [_record(one) for one in runs],
        "disturbances": None if disturbed is None else asdict(disturbed),
        "verdicts": [{**asdict(verdict), "met": verdict.met} for verdict in found],
    }
    path.write_text(json.dumps(_finite(record), indent=1) + "\n")


def _record(one: Run) -> dict[str, Any]:
    return {
        "contender": one.contender,
        "version": one.version,
        **asdict(figures(one)),
        "loads": mean_loads(one.samples, *one.span(MEASURED)),
        "kinds": {kind.name.lower(): _times(one, kind) for kind in Kind},
        "costs": [asdict(cost) for cost in one.costs],
        "connections": one.connections,
    }


def _times(one: Run, kind: Kind) -> dict[str, float]:
    found = [
        call.first_byte_ms for call in one.calls_of(MEASURED) if call.call.kind is kind and call.status == 200
    ]
    if not found:
        return {"calls": 0}
    return {
        "calls": len(found),
        "first_byte_p50_ms": percentile(found, 0.5),
        "first_byte_p99_ms": percentile(found, 0.99),
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: null says that it never came."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _seconds(value: float) -> str:
    return f"after {value:.1f} s" if math.isfinite(value) else "never"


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, soft_wrap=True)
