"""The benchmarks: `python -m tests.bench [cpu|decisions|fingerprints|latency|memory ...]`, all of them if none is named.

    python -m tests.bench cpu --seconds 5 --rounds 3                       # while optimising: about 90 s
    python -m tests.bench --quick                                          # everything, short: about 5 minutes
    python -m tests.bench --json FILE --markdown FILE                      # everything in full: about 20 minutes
    python -m tests.bench memory --subject nginx                           # another proxy in Headrace's place

Prints one table with date, machine, versions and bars. Exit code 1 if a bar is missed, 0 otherwise; a bar whose peer is absent is not
judged, and the table says so. Everything runs on loopback, in child processes that are ended by their own pid.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.children import raise_descriptor_limit
from tests.bench.figures import Figure
from tests.bench.measure_cpu import measure_cpu
from tests.bench.measure_decisions import measure_decisions
from tests.bench.measure_fingerprints import measure_fingerprints
from tests.bench.measure_latency import measure_latency
from tests.bench.measure_memory import measure_memory
from tests.bench.peers import PEERS, AbsentError, available
from tests.bench.table import context, markdown, print_table, save_json

TOPICS = ("cpu", "decisions", "fingerprints", "latency", "memory")
_QUICK = {"seconds": 4.0, "rounds": 3, "requests": 60_000, "streams": 1_000}
_FULL = {"seconds": 8.0, "rounds": 5, "requests": 1_000_000, "streams": 5_000}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="what to measure (default: everything)")
    parser.add_argument("--quick", action="store_true", help="small numbers: a look, not a verdict")
    parser.add_argument("--subject", choices=PEERS, default="headrace", help="the gateway under test")
    parser.add_argument(
        "--peers", default="smg,nginx", help="what it is compared with in `cpu` (default %(default)s)"
    )
    parser.add_argument(
        "--latency-peers", default="", help="further gateways shown in `latency` (default: none)"
    )
    parser.add_argument("--seconds", type=float, help=f"length of one window (default {_FULL['seconds']})")
    parser.add_argument("--rounds", type=int, help=f"alternating rounds (default {_FULL['rounds']})")
    parser.add_argument(
        "--connections", type=int, default=32, help="clients of the closed loop in `cpu` (default 32)"
    )
    parser.add_argument(
        "--rate", type=float, default=1000.0, help="requests/s of `cpu` (default %(default)s)"
    )
    parser.add_argument("--requests", type=int, help=f"requests of `memory` (default {_FULL['requests']:,})")
    parser.add_argument(
        "--streams", type=int, help=f"open streams of `memory` (default {_FULL['streams']:,})"
    )
    parser.add_argument(
        "--nice", type=int, default=0, help="priority of all processes; below 0 as root, on a busy machine"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="save all figures with their rounds")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the table for the README")
    arguments = parser.parse_args(argv)
    for name, value in (_QUICK if arguments.quick else _FULL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if unknown := set(arguments.topics) - set(TOPICS):
        parser.error(f"unknown topic {', '.join(sorted(unknown))}; there are {', '.join(TOPICS)}")
    arguments.topics = arguments.topics or list(TOPICS)
    return arguments


def measure(arguments: argparse.Namespace) -> tuple[list[Figure], list[str]]:
    names = [name for name in arguments.peers.split(",") if name] if "cpu" in arguments.topics else []
    more = (
        [name for name in arguments.latency_peers.split(",") if name] if "latency" in arguments.topics else []
    )
    subject = PEERS[arguments.subject]
    found, absent = available(
        [subject.name, *(name for name in dict.fromkeys(names + more) if name != subject.name)]
    )
    if subject.name in absent:
        raise AbsentError(f"{subject.name}: {absent[subject.name]}")
    present = {peer.name: peer for peer in found if peer is not subject}
    lines = context(
        {peer.name: peer.version() for peer in found},
        absent,
        f"{arguments.rounds} alternating rounds, windows of {arguments.seconds:g} s"
        + (", quick run" if arguments.quick else "")
        + (f", nice {arguments.nice}" if arguments.nice else ""),
    )
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        scratch = Path(directory)
        if "cpu" in arguments.topics:
            figures += measure_cpu(
                subject,
                [present[name] for name in names if name in present],
                scratch,
                seconds=arguments.seconds,
                rounds=arguments.rounds,
                connections=arguments.connections,
                rate=arguments.rate,
                progress=_progress,
            )
        if "decisions" in arguments.topics:
            figures += measure_decisions(rounds=arguments.rounds, progress=_progress)
        if "fingerprints" in arguments.topics:
            figures += measure_fingerprints(rounds=arguments.rounds, progress=_progress)
        if "latency" in arguments.topics:
            figures += measure_latency(
                subject,
                [present[name] for name in more if name in present],
                scratch,
                seconds=arguments.seconds,
                rounds=arguments.rounds,
                progress=_progress,
            )
        if "memory" in arguments.topics:
            figures += measure_memory(
                subject, scratch, requests=arguments.requests, streams=arguments.streams, progress=_progress
            )
    return figures, lines


def _progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    if arguments.nice:
        os.setpriority(os.PRIO_PROCESS, 0, arguments.nice)  # the children inherit it
    try:
        figures, lines = measure(arguments)
    except (AbsentError, RuntimeError) as error:
        print(f"the benchmark could not run: {error}", file=sys.stderr)
        return 2
    print_table(figures, lines)
    if arguments.json:
        save_json(arguments.json, figures, lines)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(figures, lines))
    missed = [figure.name for figure in figures if figure.missed]
    if missed:
        print(f"missed: {'; '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
