"""`python -m tests.bench.fairness`: whether tenants get their shares of a fleet, end to end.

    python -m tests.bench.fairness                       # all, some 90 s
    python -m tests.bench.fairness weights --seconds 12  # a look while working
    python -m tests.bench.fairness --json FILE

Emulated engines and the gateway run on loopback in child processes, the load in this one. Exit code 1 if a bar is missed, 2 if nothing could be
measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.children import raise_descriptor_limit
from tests.bench.fairness.scenarios import NAMES, Result, Times, measured
from tests.bench.fairness.shares import STRETCH_SECONDS
from tests.bench.fairness.stage import BASE_MS, BATCH, ENGINES, SLOPE_MS
from tests.bench.peers import BENCH_HOME
from tests.bench.table import PIPED_WIDTH, machine


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fairness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="measured of each load (default %(default)s)"
    )
    parser.add_argument("--warm-up-seconds", type=float, default=4.0, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and sizes (default %(default)s)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "fairness.json",
        help="all figures (default %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.scenarios) - set(NAMES):
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if arguments.seconds < STRETCH_SECONDS:
        parser.error(f"--seconds must be at least {STRETCH_SECONDS:g}")
    arguments.scenarios = arguments.scenarios or list(NAMES)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    above = _heading(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-fairness-") as directory:
            times = Times(arguments.warm_up_seconds, arguments.seconds)
            found = measured(arguments.scenarios, Path(directory), times, arguments.seed)
    except RuntimeError as error:
        print(f"the benchmark could not run: {error}", file=sys.stderr)
        return 2
    _show(found, above)
    record = {
        "context": above,
        "verdicts": [{**asdict(one), "met": one.met} for one in found.verdicts],
        "tenants": [asdict(one) for one in found.rows],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(not one.met for one in found.verdicts))


def _heading(arguments: argparse.Namespace) -> list[str]:
    return [
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load average {os.getloadavg()[0]:.1f} at the start",
        f"Python {platform.python_version()}; {ENGINES} engines of batch {BATCH}, {BASE_MS:g} ms + {SLOPE_MS:g} ms per sequence for 20 tokens",
        f"{arguments.seconds:g} s each after {arguments.warm_up_seconds:g} s; seed {arguments.seed}",
    ]


def _show(found: Result, above: Sequence[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    for line in above:
        console.print(line, highlight=False)
    tenants = Table(title="tenants", title_justify="left")
    head = ("load", "tenant", "weight", "answers/s", "tokens/s", "weighted tokens/s", "refused", "waiting")
    for column in (*head, "queue P50 ms", "queue P99 ms"):
        tenants.add_column(column, justify="left" if column in ("load", "tenant") else "right")
    for before, row in zip((None, *found.rows), found.rows, strict=False):
        if before is not None and before.load != row.load:
            tenants.add_section()
        tenants.add_row(
            *(row.load, row.tenant, f"{row.weight:g}", f"{row.answers_per_second:.1f}"),
            *(f"{row.tokens_per_second:,.0f}", f"{row.cost_per_second:,.0f}", str(row.refused)),
            f"{row.waiting:.0f}",
            *("" if wait is None else f"{wait:.0f}" for wait in (row.queue_p50_ms, row.queue_p99_ms)),
        )
    console.print(tenants)
    bars = Table(title="bars", title_justify="left")
    for column in ("figure", "value", "wanted", ""):
        bars.add_column(column, justify="right" if column in ("value", "wanted") else "left")
    for verdict in found.verdicts:
        bars.add_row(
            verdict.name,
            f"{verdict.value:.4g} {verdict.unit}".strip(),
            f"{'>=' if verdict.at_least else '<='} {verdict.bar:g}",
            "ok" if verdict.met else "missed",
            style=None if verdict.met else "bold red",
        )
    console.print(bars)


if __name__ == "__main__":
    sys.exit(main())
