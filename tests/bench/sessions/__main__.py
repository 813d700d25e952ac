"""`python -m tests.bench.sessions`: what sessions cost, and what a Redis that does not answer costs.

    python -m tests.bench.sessions                        # all: about 80 s
    python -m tests.bench.sessions frozen --seconds 5     # a look while working
    python -m tests.bench.sessions --markdown FILE        # for the README

Redis, the engines and the gateway are processes of their own, all on loopback, ended by their own pid. Exit code 1 if a bar is missed, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.children import raise_descriptor_limit
from tests.bench.figures import Figure
from tests.bench.peers import BENCH_HOME
from tests.bench.sessions import costs, frozen
from tests.bench.table import context, markdown, print_table, save_json

PARTS = ("store", "frozen")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.sessions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="that Redis is frozen (default %(default)s)"
    )
    parser.add_argument(
        "--around-seconds", type=float, default=15.0, help="before and after it (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of arrivals (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", default=BENCH_HOME / "sessions.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the table for the README")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    arguments.parts = arguments.parts or list(PARTS)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    above = context({}, {}, f"seed {arguments.seed}")
    figures: list[Figure] = []
    try:
        if "store" in arguments.parts:
            _progress("store: costs and round trips")
            figures += costs.measured()
        if "frozen" in arguments.parts:
            _progress(f"frozen: Redis stopped for {arguments.seconds:g} s under load")
            with tempfile.TemporaryDirectory(prefix="headrace-sessions-") as directory:
                figures += frozen.measured(
                    Path(directory), arguments.seconds, arguments.around_seconds, arguments.seed
                )
    except RuntimeError as error:
        print(f"the benchmark could not run: {error}", file=sys.stderr)
        return 2
    print_table(figures, above)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    save_json(arguments.json, figures, above)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(figures, above))
    return int(any(figure.missed for figure in figures))


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
