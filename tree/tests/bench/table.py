"""The one table of all figures: for the terminal, as Markdown for the README, and as JSON; with date, machine and versions."""

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

from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure

PIPED_WIDTH = 170
_COLUMNS = ("figure", "value", "bar", "", "how")


def machine() -> str:
    """Processor, cores, memory and kernel; nothing that names the host."""
    models = [
        line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")
    ]
    memory = next(
        (int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0
    )
    cores = len(os.sched_getaffinity(0))
    return f"{models[0] if models else platform.machine()}, {cores} cores, {memory / 2**20:.0f} GiB, Linux {platform.release()}"


def context(peer_versions: Mapping[str, str], absent: Mapping[str, str], settings: str) -> list[str]:
    """The lines that stand above the table."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools"))
    peers = ", ".join(f"{name} {number}" for name, number in peer_versions.items())
    lines = [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load average {os.getloadavg()[0]:.1f} at the start",
        f"{peers}; Python {platform.python_version()}, {libraries}",
        settings,
    ]
    return lines + [f"absent: {name} ({reason})" for name, reason in absent.items()]


def print_table(figures: Sequence[Figure], lines: Sequence[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for line in lines:
        console.print(line, highlight=False)
    table = Table(show_lines=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in ("value", "bar") else "left", overflow="fold")
    for before, figure in zip((None, *figures), figures, strict=False):
        if before is not None and before.topic != figure.topic:
            table.add_section()
        table.add_row(*_cells(figure), style="bold red" if figure.missed else None)
    console.print(table)


def markdown(figures: Sequence[Figure], lines: Sequence[str]) -> str:
    rows = ["| " + " | ".join(_COLUMNS) + " |", "|---|---:|---:|---|---|"]
    rows += [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(figure)) + " |" for figure in figures
    ]
    return "\n".join([*(f"{line}  " for line in lines), "", *rows]) + "\n"


def save_json(path: Path, figures: Sequence[Figure], lines: Sequence[str]) -> None:
    record = {
        "context": list(lines),
        "figures": [{**asdict(figure), "missed": figure.missed} for figure in figures],
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def _cells(figure: Figure) -> tuple[str, str, str, str, str]:
    verdict = "" if figure.bar is None else "missed" if figure.missed else "ok"
    bar = "" if figure.bar is None else f"<= {_number(figure.bar)}"
    return (
        f"{figure.topic}: {figure.name}",
        f"{_number(figure.value)} {figure.unit}".strip(),
        bar,
        verdict,
        figure.detail,
    )


def _number(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
