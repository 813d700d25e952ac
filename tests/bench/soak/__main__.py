"""`python -m tests.bench.soak`: mixed load and trouble of every kind, and whether anything is lost, unexplained or left behind.

    python -m tests.bench.soak                            # 3 minutes of trouble, then slow clients: about 5 minutes
    python -m tests.bench.soak --seconds 14400 --seed 2   # a night
    python -m tests.bench.soak --seconds 60 --rounds 0    # a look while working

Four emulated engines, a Redis, one gateway and the load run on loopback in processes of their own, ended by their own pid. Exit code 1 if a bar is missed,
2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.bench.children import raise_descriptor_limit
from tests.bench.figures import Figure
from tests.bench.peers import BENCH_HOME, headrace_version
from tests.bench.soak.run import soak
from tests.bench.soak.slow_headers import ROUNDS, slow_headers
from tests.bench.soak.stage import stage_running
from tests.bench.soak.verdicts import figures
from tests.bench.table import context, print_table, save_json

SECONDS = 180.0


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of load and trouble (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of both (default %(default)s)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help="with and without slow clients; 0 leaves them out (default %(default)s)",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "soak.json",
        help="all figures (default %(default)s)",
    )
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="for what the processes write")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    lines = context({"headrace": headrace_version()}, {}, f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as directory:
        scratch = arguments.keep or Path(directory)
        scratch.mkdir(parents=True, exist_ok=True)
        try:
            found = _measured(arguments, scratch, lines)
        except RuntimeError as error:
            print(f"the soak could not run: {error}", file=sys.stderr)
            return 2
    print_table(found, lines)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    save_json(arguments.json, found, lines)
    missed = [figure.name for figure in found if figure.missed]
    if missed:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def _measured(arguments: argparse.Namespace, scratch: Path, lines: list[str]) -> list[Figure]:
    measured: list[Figure] = []
    if arguments.seconds:
        with stage_running(scratch) as stage:
            if stage.clock.absent:
                lines.append(f"no clock was moved: {stage.clock.absent}")
            measured += figures(uvloop.run(soak(stage, arguments.seconds, arguments.seed, _progress)))
    if arguments.rounds:
        measured += slow_headers(scratch, arguments.rounds, _progress)
    return measured


def _progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
