"""What is printed and saved: the matrix of faults for each contender, one table that compares them, the verdicts, JSON with every figure."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.bench.faults.cases import ENGINES, LOAD, Case
from tests.bench.faults.configuration import described
from tests.bench.faults.fleet import MOST_PER_SECOND, POOL
from tests.bench.faults.measures import Losses, Measures
from tests.bench.slo.bars import Verdict
from tests.bench.table import PIPED_WIDTH, machine

_COLUMNS = (
    "fault",
    "in flight there",
    "streams failed",
    "plain failed",
    "detected",
    "later",
    "first answer",
    "share back",
    "retried",
    "opened by",
)


class Row(NamedTuple):
    contender: str
    version: str
    case: Case
    found: Measures
    verdicts: list[Verdict]


def heading(absent: Mapping[str, str], bound_seconds: float, seed: int) -> list[str]:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools"))
    rate = LOAD * MOST_PER_SECOND
    return [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load average {os.getloadavg()[0]:.1f} at the start",
        f"Python {platform.python_version()}, {libraries}; seed {seed}",
        f"{ENGINES} engines of batch {POOL.max_num_seqs}, {POOL.base_ms:g} ms + {POOL.slope_ms:g} ms per sequence for 20 tokens; {rate:.0f} calls/s, half of them streamed",
        f"settings: {described()}; hence an engine has to have its share back within {bound_seconds:.1f} s",
        *(f"absent: {name} ({reason})" for name, reason in absent.items()),
    ]


def matrix(rows: Sequence[Row]) -> list[list[str]]:
    """The head and a row for each case of one contender."""
    return [list(_COLUMNS), *(_cells(row.case, row.found) for row in rows)]


def comparison(rows: Sequence[Row]) -> list[list[str]]:
    """For each case what failed, of those in flight, and when the share was back."""
    contenders = list(dict.fromkeys((row.contender, row.version) for row in rows))
    found = [
        ["calls failed / in flight there; share back", *(f"{name} {number}" for name, number in contenders)]
    ]
    for case in {row.case.name: row.case for row in rows}.values():
        by_name = {row.contender: row.found for row in rows if row.case.name == case.name}
        cells = [_short(case, by_name[name]) if name in by_name else "-" for name, _ in contenders]
        found.append([case.title, *cells])
    return found


def print_table(title: str, cells: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in cells[0]:
        table.add_column(column, justify="left" if column == cells[0][0] else "right")
    for row in cells[1:]:
        table.add_row(*row)
    _console().print(table)


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        _console().print(line, highlight=False)


def print_verdicts(title: str, found: Sequence[Verdict]) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("bar", "value", "wanted", ""):
        table.add_column(column, justify="right" if column in ("value", "wanted") else "left")
    for verdict in found:
        table.add_row(
            verdict.name,
            f"{verdict.value:.{1 if verdict.unit == 's' else 0}f} {verdict.unit}".strip(),
            f"<= {verdict.bar:.{1 if verdict.unit == 's' else 0}f}",
            "holds" if verdict.met else "fails",
            style=None if verdict.met else "bold red",
        )
    _console().print(table)


def markdown(tables: Sequence[Sequence[Sequence[str]]], above: Sequence[str]) -> str:
    parts = ["\n".join(f"{line}  " for line in above)]
    for cells in tables:
        head, *rows = ["| " + " | ".join(row) + " |" for row in cells]
        parts.append("\n".join([head, "|---|" + "---:|" * (len(cells[0]) - 1), *rows]))
    return "\n\n".join(parts) + "\n"


def save_json(path: Path, rows: Sequence[Row], above: Sequence[str]) -> None:
    record = {
        "context": list(above),
        "rows": [
            {
                "contender": row.contender,
                "version": row.version,
                "case": row.case.name,
                **asdict(row.found),
                "verdicts": [{**asdict(verdict), "met": verdict.met} for verdict in row.verdicts],
            }
            for row in rows
        ],
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def _cells(case: Case, found: Measures) -> list[str]:
    opened = found.opened
    causes = (
        "-" if opened is None else ", ".join(f"{cause} {count}" for cause, count in opened.items() if count)
    )
    there = f"{found.in_flight}, at most {found.most_in_flight}" if case.broken else ""
    times = (found.detected_seconds, found.first_answer_seconds, found.recovered_seconds)
    return [
        case.title,
        there,
        _failed(found.streams),
        _failed(found.plain),
        *([_seconds(times[0]), str(found.later), *map(_seconds, times[1:])] if case.broken else [""] * 4),
        str(found.retried) + (f", {found.over_budget} not" if found.over_budget else ""),
        causes or "none",
    ]


def _failed(losses: Losses) -> str:
    share = losses.failed / losses.calls if losses.calls else 0.0
    shown = f"{losses.failed} of {losses.calls} ({share:.2%})"
    if losses.in_flight:
        shown += f"; {losses.failed_in_flight} of {losses.in_flight} in flight"
    return shown


def _short(case: Case, found: Measures) -> str:
    if not case.broken:
        opened = found.opened
        return f"{found.failed} refused or failed" + (
            "" if opened is None else f", {sum(opened.values())} opened"
        )
    back = found.recovered_seconds
    return f"{found.failed} / {found.most_in_flight}; " + ("never" if back is None else f"{back:.1f} s")


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
