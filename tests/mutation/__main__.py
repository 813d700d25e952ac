"""`python -m tests.mutation`: changes `policies/` in some 3,700 small ways and asks whether the tests of `tests/policies` notice each one.

    python -m tests.mutation                # all mutants from nothing: 15 minutes on 2 cores
    python -m tests.mutation --children 1   # beside other work
    python -m tests.mutation --report       # the verdict on what the last run left

mutmut works in a copy, `build/mutate`. Exit code 1 if the run is incomplete, too few are found, or a survivor is not
explained in `explained.toml`; 2 if nothing could be run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.mutants import Mutant, mutants_in
from tests.mutation.verdict import EXPLAINED, faults, kinds, table

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "mutate"
MUTMUT = HOME / "mutmut"
"""Where `make mutate` installs it."""
COPIED = ("policies", "routing", "gateway", "tests", "pyproject.toml")
MEMORY_BYTES = 1 << 30
"""Of each process: a loop that a mutant never leaves may fill a list."""
# mutmut stands behind the project's own packages, so that the pytest and hypothesis of the tests are those of every other run.
START = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
sys.path.append({str(MUTMUT)!r})
from mutmut.__main__ import cli
cli()
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--children", type=int, default=os.cpu_count(), help="at a time (default: one a core, %(default)s)"
    )
    parser.add_argument("--report", action="store_true", help="on the last run")
    chosen = parser.parse_args(argv)
    if not chosen.report and (code := mutate(chosen.children)):
        print(f"mutmut could not run: exit code {code}", file=sys.stderr)
        return 2
    mutants = mutants_in(HOME / "tree" / "mutants")
    return told(mutants)


def mutate(children: int) -> int:
    """mutmut's exit code; what it found is in the copy."""
    tree = HOME / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
            )
        else:
            shutil.copy(ROOT / name, tree)
    began = time.monotonic()
    argv = [sys.executable, "-c", START, "run", "--max-children", str(children)]
    # Its progress is a line that is written over; a log would hold each of its states.
    with (HOME / "mutmut.log").open("w") as log:
        code = subprocess.run(
            argv, cwd=tree, stdout=None if sys.stdout.isatty() else log, check=False
        ).returncode
    print(f"{time.monotonic() - began:.0f} s, {children} at a time")
    return code


def told(mutants: Sequence[Mutant]) -> int:
    explained = EXPLAINED.read_text(encoding="utf-8")
    print("\n".join([*table(mutants), "", *kinds(mutants, explained)]))
    wrong = faults(mutants, explained)
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
