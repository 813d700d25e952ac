"""`python -m tests.bench.cache`: whether requests go where their KV cache is, Headrace and the routers of vLLM and SGLang.

    python -m tests.bench.cache                            # everybody, and the disturbances for Headrace: about 9 minutes
    python -m tests.bench.cache headrace --seconds 20      # a look while working
    python -m tests.bench.cache headrace --saturation 90 --undisturbed
    python -m tests.bench.cache --json FILE --svg FILE --markdown FILE

Eight emulated engines, the contender and the load generator run on loopback in three processes, ended by their own pid. Exit code 1 if Headrace
misses a bar, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.cache.bars import distinct_verdicts, disturbance_verdicts, missed, verdicts
from tests.bench.cache.contenders import CONTENDERS, SUBJECT
from tests.bench.cache.distinct import measure_distinct
from tests.bench.cache.disturbances import Disturbed, disturbed
from tests.bench.cache.picture import picture
from tests.bench.cache.report import (
    disturbance_lines,
    heading,
    markdown,
    print_comparison,
    print_lines,
    print_run,
    save_json,
)
from tests.bench.cache.run import Run, Saturation, figures, run, saturation
from tests.bench.cache.schedule import LOAD, MEASURED, calls, disturbed_phases, standard_phases
from tests.bench.cache.working_set import working_set
from tests.bench.children import raise_descriptor_limit
from tests.bench.peers import BENCH_HOME
from tests.bench.slo.bars import Verdict
from tests.bench.slo.contenders import Contender, present
from tests.bench.slo.report import print_verdicts
from tests.bench.slo.schedule import Phase, starts


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.cache",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "contenders", nargs="*", metavar="CONTENDER", help=f"of {', '.join(CONTENDERS)} (default: all)"
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="measured (default %(default)s)")
    parser.add_argument("--warm-up-seconds", type=float, default=15.0, help="default %(default)s")
    parser.add_argument("--saturation-seconds", type=float, default=8.0, help="default %(default)s")
    parser.add_argument("--saturation", type=float, help="answers per second, instead of measuring them")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and texts (default %(default)s)")
    parser.add_argument(
        "--undisturbed", action="store_true", help="without the shift and the restart afterwards"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "cache.json",
        help="all figures (default %(default)s)",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="save the tables for the README")
    parser.add_argument(
        "--svg",
        type=Path,
        metavar="FILE",
        default=BENCH_HOME / "cache.svg",
        help="shares and times as bars (default %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.contenders) - set(CONTENDERS):
        parser.error(f"unknown contender {', '.join(sorted(unknown))}; there are {', '.join(CONTENDERS)}")
    arguments.contenders = arguments.contenders or list(CONTENDERS)
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    raise_descriptor_limit()
    contenders, absent = present(CONTENDERS[name] for name in arguments.contenders)
    phases = standard_phases(seconds=arguments.seconds, warm_up_seconds=arguments.warm_up_seconds)
    seed = arguments.seed
    after: Disturbed | None = None
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-cache-") as directory:
            scratch = Path(directory)
            able = Saturation(arguments.saturation or 0.0, float("nan"))
            if arguments.saturation is None:
                _progress("the fleet alone, full batches")
                able = saturation(scratch, seconds=arguments.saturation_seconds, seed=seed)
            rate = LOAD * able.rate
            begin, end = starts(phases)[1:]
            known = working_set(calls(phases, rate, seed), seed, begin, end)
            above = heading(able, known, absent, phases, seed)
            print_lines(above)
            measured = (_measured(one, phases, rate, scratch, seed) for one in contenders)
            runs = [one for one in measured if one is not None]
            if SUBJECT in arguments.contenders and not arguments.undisturbed:
                last = _measured(CONTENDERS[SUBJECT], disturbed_phases(), rate, scratch, seed)
                after = disturbed(last) if last is not None else None
    except RuntimeError as error:
        print(f"the benchmark could not run: {error}", file=sys.stderr)
        return 2
    if not runs:
        print(f"nothing to measure: {absent}", file=sys.stderr)
        return 2
    found = {one.contender: figures(one) for one in runs}
    print_comparison(found)
    judged: list[Verdict] = []
    if SUBJECT in found:
        judged = verdicts(found[SUBJECT], found)
        if after is not None:
            print_lines(disturbance_lines(after))
            _progress("a million distinct prefixes")
            judged += disturbance_verdicts(after) + distinct_verdicts(measure_distinct())
        print_verdicts(f"bars, {SUBJECT}", judged)
    for file in (arguments.json, arguments.svg):
        file.parent.mkdir(parents=True, exist_ok=True)
    save_json(arguments.json, runs, able, known, judged, after, above)
    arguments.svg.write_text(picture(found))
    if arguments.markdown:
        below = disturbance_lines(after) if after is not None else []
        arguments.markdown.write_text(
            markdown(found, judged, above) + "".join(f"\n{line}\n" for line in below)
        )
    return int(missed(judged))


def _measured(
    contender: Contender, phases: tuple[Phase, ...], rate: float, scratch: Path, seed: int
) -> Run | None:
    """None for a peer that would not start; Headrace has to."""
    plan = "undisturbed" if phases[-1].name == MEASURED else "disturbed"
    _progress(f"{contender.name}, {plan}, {sum(phase.seconds for phase in phases):.0f} s")
    try:
        one = run(contender, phases, rate, scratch, seed=seed)
    except RuntimeError as error:
        if contender.name == SUBJECT:
            raise
        print(f"{contender.name} could not be measured: {error}", flush=True)
        return None
    print_run(one)
    return one


def _progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
