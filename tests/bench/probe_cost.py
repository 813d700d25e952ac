"""`python -m tests.bench.probe_cost`: what it costs the gateway to watch eight engines, each read every second.

    python -m tests.bench.probe_cost                 # about 80 s
    python -m tests.bench.probe_cost --seconds 5     # a look while working

CPU: of an otherwise idle gateway with these readings, less that of one without, in alternating rounds; the median of the rounds. Engines' loads come from vLLM pages of
100 KB, the state of GPUs from the pages of DCGM exporters (8 GPUs, 37 KB). Stall: the most CPU time that the loop spent between two looks at a timer of 1 ms, the longest of the rounds.
Health and models are asked for every 5 s in all of them. Exit code 1 if a bar is missed, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.bench.children import free_port, get, running
from tests.bench.figures import Figure
from tests.bench.peers import BENCH_HOME
from tests.bench.probe_child import SETTLE_SECONDS, Job, run
from tests.bench.table import context, markdown, print_table, save_json

ENGINES = 8
CPU_PERCENT = 2.0
STALL_MS = 5.0
_LEAST_READ = 0.8
"""Of the readings that are due: with fewer of them a low cost says nothing."""


def measured(seconds: float, rounds: int) -> list[Figure]:
    found: dict[str, list[float]] = {"idle": [], "load": [], "both": [], "stall": []}
    with _pages() as ports:
        for number in range(rounds):
            idle = run(Job(ports=ports, seconds=seconds)).cpu_share
            load = run(Job(ports=ports, seconds=seconds, load_seconds=1.0)).cpu_share
            before = _asked(ports[0])
            both = run(Job(ports=ports, seconds=seconds, load_seconds=1.0, gpu_seconds=1.0)).cpu_share
            _check_readings(before, _asked(ports[0]), seconds)
            job = Job(ports=ports, seconds=seconds, load_seconds=1.0, gpu_seconds=1.0, ticks=True)
            stall = run(job).longest_stall_ms
            shares = [100.0 * idle, 100.0 * (load - idle), 100.0 * (both - idle), stall]
            for values, value in zip(found.values(), shares, strict=True):
                values.append(value)
            progress(
                "round {}/{}: idle {:.2f} %, loads {:.2f} %, loads and GPUs {:.2f} % of a core, stall {:.2f} ms".format(
                    number + 1, rounds, *shares
                )
            )
    return [
        _figure("idle, without readings", median(found["idle"]), "% of a core", None, found["idle"]),
        _figure("loads of 8 engines", median(found["load"]), "% of a core", CPU_PERCENT, found["load"]),
        _figure("loads and GPUs", median(found["both"]), "% of a core", CPU_PERCENT, found["both"]),
        _figure("longest stall", max(found["stall"]), "ms", STALL_MS, found["stall"]),
    ]


@contextlib.contextmanager
def _pages() -> Iterator[list[int]]:
    ports = [free_port() for _ in range(ENGINES)]
    argv = [sys.executable, "-m", "tests.bench.probe_pages"]
    for port in ports:
        argv += ["--port", str(port)]
    with (
        tempfile.TemporaryDirectory(prefix="headrace-probe-") as directory,
        running(argv, ports[-1], "/health", Path(directory) / "pages.log"),
    ):
        yield ports


def _asked(port: int) -> dict[str, int]:
    asked: dict[str, int] = json.loads(get(port, "/count")[1])
    return asked


def _check_readings(before: dict[str, int], after: dict[str, int], seconds: float) -> None:
    due = ENGINES * (seconds + SETTLE_SECONDS)
    for path in ("/metrics", "/gpu"):
        read = after.get(path, 0) - before.get(path, 0)
        if read < _LEAST_READ * due:
            raise RuntimeError(f"{path} was read {read} times where {due:.0f} were due")


def _figure(name: str, value: float, unit: str, bar: float | None, rounds: Sequence[float]) -> Figure:
    return Figure(topic="probes", name=name, value=value, unit=unit, bar=bar, rounds=tuple(rounds))


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.probe_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of a window (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", default=BENCH_HOME / "probe-cost.json")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the table for the README")
    arguments = parser.parse_args(argv)
    above = context({}, {}, f"{arguments.rounds} rounds, windows of {arguments.seconds:g} s")
    try:
        figures = measured(arguments.seconds, arguments.rounds)
    except RuntimeError as error:
        print(f"the benchmark could not run: {error}", file=sys.stderr)
        return 2
    print_table(figures, above)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    save_json(arguments.json, figures, above)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(figures, above))
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
