"""`python -m tests.bench.slo`: the burst of the requirements, against Headrace and its peers.

    python -m tests.bench.slo                                             # everybody, the standard burst: about 6 minutes
    python -m tests.bench.slo headrace --steady-seconds 6 --burst-seconds 5   # a look while working
    python -m tests.bench.slo headrace --burst 3 --burst-seconds 60       # overload, after a burst of 2 to compare with
    python -m tests.bench.slo --with-overload                             # both, the overload for Headrace alone: about 8 minutes
    python -m tests.bench.slo --json FILE --svg FILE --markdown FILE      # for the README

Eight emulated engines, the contender and the load generator run on loopback in three processes, ended by their own pid. Exit code 1 if Headrace
misses a bar, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.children import raise_descriptor_limit
from tests.bench.peers import BENCH_HOME
from tests.bench.slo.bars import Verdict, untagged_verdicts, verdicts
from tests.bench.slo.contenders import CONTENDERS, DEFAULT, Contender, present
from tests.bench.slo.picture import Line, picture
from tests.bench.slo.report import heading, markdown, print_comparison, print_run, print_verdicts, save_json
from tests.bench.slo.run import Run, run, saturation
from tests.bench.slo.schedule import STANDARD_BURST, WARM_UP, Phase, overload_phases, standard_phases, starts
from tests.bench.slo.shares import by_second

SUBJECT, UNTAGGED = "headrace", "headrace-untagged"
OVERLOAD_FACTOR = 3.0
OVERLOAD_SECONDS = 60.0


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.slo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "contenders",
        nargs="*",
        metavar="CONTENDER",
        help=f"of {', '.join(CONTENDERS)} (default: {' '.join(DEFAULT)})",
    )
    parser.add_argument(
        "--burst", type=float, default=STANDARD_BURST, help="times the nominal rate (default %(default)s)"
    )
    parser.add_argument("--burst-seconds", type=float, default=10.0, help="default %(default)s")
    parser.add_argument(
        "--steady-seconds", type=float, default=15.0, help="before and after it (default %(default)s)"
    )
    parser.add_argument("--warm-up-seconds", type=float, default=5.0, help="default %(default)s")
    parser.add_argument("--saturation-seconds", type=float, default=8.0, help="default %(default)s")
    parser.add_argument("--saturation", type=float, help="answers per second, instead of measuring them")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and texts (default %(default)s)")
    parser.add_argument(
        "--with-overload",
        action="store_true",
        help=f"afterwards {OVERLOAD_FACTOR:g} times the nominal rate for {OVERLOAD_SECONDS:g} s",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "slo.json",
        help="all figures (default %(default)s)",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the comparison for the README")
    parser.add_argument(
        "--svg",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "slo.svg",
        help="the share inside target over time (default %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.contenders) - set(CONTENDERS):
        parser.error(f"unknown contender {', '.join(sorted(unknown))}; there are {', '.join(CONTENDERS)}")
    arguments.contenders = arguments.contenders or list(DEFAULT)
    return arguments


def phases_of(arguments: argparse.Namespace) -> tuple[Phase, ...]:
    times = {"steady_seconds": arguments.steady_seconds, "warm_up_seconds": arguments.warm_up_seconds}
    burst = {"burst": arguments.burst, "burst_seconds": arguments.burst_seconds}
    return (
        overload_phases(**burst, **times)
        if arguments.burst > STANDARD_BURST
        else standard_phases(**burst, **times)
    )


def lines(runs: list[Run]) -> list[Line]:
    """Of all calls but the warm-up's, by the second."""
    found = []
    for one in runs:
        edges = starts(one.phases)
        skipped = round(one.phases[0].seconds) if one.phases[0].name == WARM_UP else 0
        found.append(Line(one.contender, by_second(one.calls, int(edges[-1]))[skipped:]))
    return found


def judged(runs: list[Run], rate: float) -> list[list[Verdict]]:
    """Everybody by the same bars; one list for each run."""
    by_name = {one.contender: one for one in runs}
    found = []
    for one in runs:
        found.append(verdicts(one.calls, one.phases, rate))
        if one.contender == UNTAGGED and SUBJECT in by_name:
            found[-1] += untagged_verdicts(by_name[SUBJECT].calls, one.calls, one.phases)
    return found


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    contenders, absent = present(CONTENDERS[name] for name in arguments.contenders)
    phases = phases_of(arguments)
    runs: list[Run] = []
    overload: list[Run] = []
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-slo-") as directory:
            scratch = Path(directory)
            rate = arguments.saturation
            if rate is None:
                _progress("the fleet alone, full batches")
                rate = saturation(scratch, seconds=arguments.saturation_seconds, seed=arguments.seed)
            above = heading(rate, absent, phases, arguments.seed)
            print("\n".join(above), flush=True)
            measured = (_measured(one, phases, scratch, arguments.seed, rate) for one in contenders)
            runs = [one for one in measured if one is not None]
            if arguments.with_overload:
                longer = overload_phases(burst=OVERLOAD_FACTOR, burst_seconds=OVERLOAD_SECONDS)
                last = _measured(CONTENDERS[SUBJECT], longer, scratch, arguments.seed, rate)
                overload = [last] if last is not None else []
    except RuntimeError as error:
        print(f"the benchmark could not run: {error}", file=sys.stderr)
        return 2
    if not runs:
        print(f"nothing to measure: {absent}", file=sys.stderr)
        return 2
    every = [*zip(runs, judged(runs, rate), strict=True), *zip(overload, judged(overload, rate), strict=True)]
    ours = [(one, found) for one, found in every if one.contender in (SUBJECT, UNTAGGED)]
    for one, found in ours:
        factor = max(phase.factor for phase in one.phases)
        print_verdicts(f"bars, {one.contender}, burst of {factor:g}", found)
    print_comparison(runs, rate)
    for file in (arguments.json, arguments.svg):
        file.parent.mkdir(parents=True, exist_ok=True)
    save_json(arguments.json, every, rate, above)
    arguments.svg.write_text(picture(lines(runs), phases, rate))
    if arguments.markdown:
        arguments.markdown.write_text(markdown(runs, rate, above))
    return int(any(not verdict.met for _, found in ours for verdict in found))


def _measured(
    contender: Contender, phases: tuple[Phase, ...], scratch: Path, seed: int, rate: float
) -> Run | None:
    """None for a peer that would not start; Headrace has to."""
    _progress(f"{contender.name}, {sum(phase.seconds for phase in phases):.0f} s")
    try:
        one = run(contender, phases, scratch, seed=seed)
    except RuntimeError as error:
        if contender.name in (SUBJECT, UNTAGGED):
            raise
        print(f"{contender.name} could not be measured: {error}", flush=True)
        return None
    print_run(one, rate)
    return one


def _progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
