"""`python -m tests.bench.faults`: what a broken engine costs, how soon it is left alone, and how soon it is used again.

    python -m tests.bench.faults                          # Headrace, all cases: about 5 minutes
    python -m tests.bench.faults cut stall --seconds 4    # a look while working
    python -m tests.bench.faults --peers haproxy nginx    # the same cases for others beside it
    python -m tests.bench.faults --json FILE --markdown FILE

Eight emulated engines, the contender and the load generator run on loopback in three processes, ended by their own pid; `--at-once` cases run side by side, the
overload alone. Exit code 1 if Headrace misses a bar, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from policies.circuit import CircuitRules
from tests.bench.children import raise_descriptor_limit
from tests.bench.faults.bars import verdicts
from tests.bench.faults.case_job import Job, run
from tests.bench.faults.cases import FAULT_SECONDS, Case, cases
from tests.bench.faults.configuration import recovery_bound_seconds, settings
from tests.bench.faults.contenders import CONTENDERS, SUBJECT
from tests.bench.faults.fleet import POOL
from tests.bench.faults.report import (
    Row,
    comparison,
    heading,
    markdown,
    matrix,
    print_lines,
    print_table,
    print_verdicts,
    save_json,
)
from tests.bench.peers import BENCH_HOME
from tests.bench.slo.contenders import Contender, present

AT_ONCE = 2


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    names = list(cases())
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=FAULT_SECONDS, help="that a fault lasts (default %(default)s)"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        default=[],
        choices=[name for name in CONTENDERS if name != SUBJECT],
        help="to be measured as well",
    )
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE, metavar="N", help="cases side by side (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of arrivals (default %(default)s)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "faults.json",
        help="all figures (default %(default)s)",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables for the README")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.cases) - set(names):
        parser.error(f"unknown case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    arguments.cases = [name for name in names if name in arguments.cases] or names
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    contenders, absent = present(CONTENDERS[name] for name in (SUBJECT, *arguments.peers))
    answer_seconds = (POOL.base_ms + POOL.slope_ms) / 1000
    bound = recovery_bound_seconds(settings(), CircuitRules().good_canaries, answer_seconds)
    above = heading(absent, bound, arguments.seed)
    print_lines(above)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headrace-faults-") as directory:
        for contender in contenders:
            try:
                rows += _measured(contender, arguments, Path(directory), bound)
            except RuntimeError as error:
                print(f"{contender.name} could not be measured: {error}", file=sys.stderr)
                if contender.name == SUBJECT:
                    return 2
    tables = _show(rows, len(contenders) > 1)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    save_json(arguments.json, rows, above)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(tables, above))
    return int(any(not verdict.met for row in rows if row.contender == SUBJECT for verdict in row.verdicts))


def _measured(
    contender: Contender, arguments: argparse.Namespace, scratch: Path, bound_seconds: float
) -> list[Row]:
    known = cases(arguments.seconds)
    chosen = [known[name] for name in arguments.cases]
    number = contender.version()

    def row(case: Case) -> Row:
        home = scratch / f"{contender.name}-{case.name}"
        home.mkdir()
        print(
            f"{time.strftime('%H:%M:%S')} {contender.name}, {case.name}, {case.seconds:.0f} s",
            file=sys.stderr,
        )
        job = Job(
            contender=contender.name,
            case=case.name,
            seconds=arguments.seconds,
            seed=arguments.seed,
            home=str(home),
        )
        found = run(job)
        return Row(contender.name, number, case, found, verdicts(case, found, bound_seconds))

    # The longest first, so that none is left over.
    light = sorted((case for case in chosen if case.broken), key=lambda case: -case.seconds)
    with ThreadPoolExecutor(arguments.at_once) as side_by_side:
        rows = list(side_by_side.map(row, light))
    rows += [row(case) for case in chosen if not case.broken]
    return sorted(rows, key=lambda one: chosen.index(one.case))


def _show(rows: Sequence[Row], is_compared: bool) -> list[list[list[str]]]:
    tables = []
    for name in dict.fromkeys(row.contender for row in rows):
        own = [row for row in rows if row.contender == name]
        tables.append(matrix(own))
        print_table(f"{name} {own[0].version}", tables[-1])
        for row in own:
            if row.found.endings:
                said = ", ".join(f"{count} {ending}" for ending, count in row.found.endings.items())
                print_lines([f"{row.case.name}: {said}"])
        if name == SUBJECT:
            print_verdicts(f"bars, {name}", [verdict for row in own for verdict in row.verdicts])
    if is_compared:
        tables.append(comparison(rows))
        print_table("compared", tables[-1])
    return tables


if __name__ == "__main__":
    sys.exit(main())
