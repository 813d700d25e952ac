"""What is printed and saved: a table for each run, the verdicts, one table that compares all, JSON with every figure."""

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

from tests.bench.slo.bars import AFTER_SHARE, Verdict, goodput
from tests.bench.slo.kinds import KINDS
from tests.bench.slo.run import MOST_LATE_MS, Run
from tests.bench.slo.schedule import AFTER, WARM_UP, Phase, starts
from tests.bench.slo.shares import (
    Ended,
    Ending,
    Row,
    agreement,
    allowed_share,
    by_second,
    recovered_in,
    row,
    share_inside,
)
from tests.bench.table import PIPED_WIDTH, machine

_COLUMNS = (
    "phase",
    "type",
    "arrivals",
    "inside",
    "refused",
    "late",
    "timed out",
    "failed",
    "P50 ms",
    "P99 ms",
    "refusal P99",
    "queue P99",
)


def heading(rate: float, absent: Mapping[str, str], phases: Sequence[Phase], seed: int) -> list[str]:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools"))
    plan = ", ".join(f"{phase.name} {phase.factor:g} x for {phase.seconds:g} s" for phase in phases)
    return [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load average {os.getloadavg()[0]:.1f} at the start",
        f"Python {platform.python_version()}, {libraries}",
        f"phases: {plan}; seed {seed}",
        f"the fleet's saturation throughput with full batches: {rate:.0f} requests/s",
        *(f"absent: {name} ({reason})" for name, reason in absent.items()),
    ]


def groups(one: Run) -> list[tuple[str, str, list[Ended]]]:
    """(phase, type, calls) for every row of the table."""
    found = []
    for number, phase in enumerate(one.phases):
        if phase.name == WARM_UP:
            continue
        calls = [call for call in one.calls if call.call.phase == number]
        for kind_number, kind in enumerate(KINDS):
            found.append((phase.name, kind.name, [call for call in calls if call.call.kind == kind_number]))
        found.append((phase.name, "emergencies", [call for call in calls if call.call.emergency]))
        found.append((phase.name, "all", calls))
    return found


def recovery(one: Run) -> tuple[list[float], int | None]:
    """Share inside target of each second after the burst, and from which of them on it stays."""
    number = next((number for number, phase in enumerate(one.phases) if phase.name == AFTER), None)
    if number is None:
        return [], None
    edges = starts(one.phases)
    shares = by_second(one.calls, int(edges[-1]))[math.ceil(edges[number]) :]
    return shares, recovered_in(shares, AFTER_SHARE)


def print_run(one: Run, rate: float) -> None:
    console = _console()
    table = Table(title=f"{one.contender} {one.version}", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("phase", "type") else "right")
    for name, kind, calls in groups(one):
        table.add_row(
            *_cells(name, kind, row(calls)),
            style="bold" if kind == "all" else None,
            end_section=kind == "all",
        )
    console.print(table)
    for phase, cost in zip(one.phases, one.costs, strict=True):
        used = ", ".join(f"{name} {cores:.2f}" for name, cores in cost.cores.items())
        busy = "  <- do not trust this phase" if cost.sent_late_p99_ms > MOST_LATE_MS else ""
        console.print(
            f"{phase.name}: cores used: {used}; calls sent late by {cost.sent_late_p99_ms:.1f} ms at P99, "
            f"generator without a core {cost.starved_share:.1%}{busy}",
            highlight=False,
        )
    refusals = row(one.calls).refusals
    if refusals:
        console.print(
            "errors: " + ", ".join(f"{name}: {count}" for name, count in refusals.items()), highlight=False
        )
    right = agreement(one.calls)
    if right is not None:
        console.print(f"answers whose business type was recognised: {right:.1%}", highlight=False)
    shares, second = recovery(one)
    console.print(
        f"by the second after the burst: {' '.join(_percent(share) for share in shares)}", highlight=False
    )
    console.print(
        f"at least {AFTER_SHARE:.0%} for good after: {_recovered(second)}; {one.connections} connections",
        highlight=False,
    )
    for phase in one.phases:
        if phase.name != WARM_UP:
            console.print(
                f"goodput in {phase.name}: {goodput(one.calls, one.phases, phase.name):.0f}/s of {rate:.0f}/s",
                highlight=False,
            )


def print_verdicts(title: str, found: Sequence[Verdict]) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("bar", "value", "wanted", ""):
        table.add_column(column, justify="right" if column in ("value", "wanted") else "left")
    for verdict in found:
        sign = ">=" if verdict.at_least else "<="
        table.add_row(
            verdict.name,
            f"{verdict.value:.{2 if verdict.unit in ('x', 'requests') else 1}f} {verdict.unit}".strip(),
            f"{sign} {verdict.bar:g}",
            "ok" if verdict.met else "missed",
            style=None if verdict.met else "bold red",
        )
    _console().print(table)


def print_comparison(runs: Sequence[Run], rate: float) -> None:
    table = Table(title="share inside target", title_justify="left")
    head, *rows = comparison(runs, rate)
    for column in head:
        table.add_column(column, justify="left" if column == head[0] else "right")
    for cells in rows:
        table.add_row(*cells)
    _console().print(table)


def comparison(runs: Sequence[Run], rate: float) -> list[list[str]]:
    """The head and one row for each contender, and one for what the fleet allows."""
    phases = [(number, phase) for number, phase in enumerate(runs[0].phases) if phase.name != WARM_UP]
    named = [f"{phase.name}, {phase.factor:g} x" for _, phase in phases]
    rows = [["", *named, "emergencies in the burst", "timed out", "back to 99 % after"]]
    arrivals = [sum(call.call.phase == number for call in runs[0].calls) for number, _ in phases]
    allowed = [
        allowed_share(rate, count, phase.seconds) for count, (_, phase) in zip(arrivals, phases, strict=True)
    ]
    rows.append(["what the fleet allows", *(f"{_percent(share)} %" for share in allowed), "", "", ""])
    for one in runs:
        shares = [
            share_inside(call for call in one.calls if call.call.phase == number) for number, _ in phases
        ]
        busiest = max(phases, key=lambda pair: pair[1].factor)[0]
        urgent = share_inside(
            call for call in one.calls if call.call.emergency and call.call.phase == busiest
        )
        rows.append(
            [
                f"{one.contender} {one.version}",
                *(f"{_percent(share)} %" for share in shares),
                f"{_percent(urgent)} %",
                str(sum(call.ending is Ending.TIMED_OUT for call in one.calls)),
                _recovered(recovery(one)[1]),
            ]
        )
    return rows


def markdown(runs: Sequence[Run], rate: float, above: Sequence[str]) -> str:
    head, *rows = ["| " + " | ".join(cells) + " |" for cells in comparison(runs, rate)]
    columns = head.count("|") - 1
    return (
        "\n".join([*(f"{line}  " for line in above), "", head, "|---|" + "---:|" * (columns - 1), *rows])
        + "\n"
    )


def save_json(
    path: Path, judged: Sequence[tuple[Run, Sequence[Verdict]]], rate: float, above: Sequence[str]
) -> None:
    record = {
        "context": list(above),
        "saturation_per_second": rate,
        "runs": [_record(one, found) for one, found in judged],
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def _record(one: Run, found: Sequence[Verdict]) -> dict[str, Any]:
    _, second = recovery(one)
    shares = by_second(one.calls, int(starts(one.phases)[-1]))
    return {
        "contender": one.contender,
        "version": one.version,
        "phases": [asdict(phase) for phase in one.phases],
        "rows": [{"phase": phase, "type": kind, **asdict(row(calls))} for phase, kind, calls in groups(one)],
        "inside_by_second": [None if math.isnan(share) else round(share, 4) for share in shares],
        "recovered_in_seconds": second,
        "recognised_share": agreement(one.calls),
        "costs": [asdict(cost) for cost in one.costs],
        "connections": one.connections,
        "verdicts": [{**asdict(verdict), "met": verdict.met} for verdict in found],
    }


def _cells(phase: str, kind: str, found: Row) -> list[str]:
    counts = [found.count(what) for what in (Ending.REFUSED, Ending.LATE, Ending.TIMED_OUT, Ending.FAILED)]
    times = (found.answer_p50_ms, found.answer_p99_ms, found.refusal_p99_ms, found.queue_p99_ms)
    return [
        phase,
        kind,
        str(found.arrivals),
        f"{_percent(found.inside_share)} %",
        *(str(count) if count else "" for count in counts),
        *("" if value is None else f"{value:.0f}" for value in times),
    ]


def _percent(share: float) -> str:
    """Never 100 when something is missing."""
    if math.isnan(share):
        return "-"
    percent = math.floor(1000 * share + 1e-9) / 10
    return f"{percent:.1f}" if percent < 100 else "100"


def _recovered(second: int | None) -> str:
    return "never" if second is None else f"{second} s"


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
