"""Holds gateway/ to its coverage: `python -m tests.coverage_bars REPORT.json`, where the report is coverage's own (`make coverage` calls both).

Lines and branches have a bar each: a sum of both would let many lines hide few branches. Printed are both totals and each file below the bar; the exit
code is 1 where a total is below it, or a file below `FILE_PERCENT`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOTAL_PERCENT = 95.0
FILE_PERCENT = 90.0


def verdict(report: dict[str, Any]) -> tuple[list[str], bool]:
    """What is printed, and whether every bar is held."""
    totals = report["totals"]
    lines, branches = totals["percent_statements_covered"], totals["percent_branches_covered"]
    said = [f"lines {lines:.2f} %, branches {branches:.2f} % (at least {TOTAL_PERCENT:g} % each)"]
    held = min(lines, branches) >= TOTAL_PERCENT
    for name, file in sorted(report["files"].items()):
        percent = file["summary"]["percent_covered"]
        if percent < TOTAL_PERCENT:
            missing = ", ".join(map(str, file["missing_lines"]))
            too_low = f" (at least {FILE_PERCENT:g} %)" if percent < FILE_PERCENT else ""
            said.append(f"{name} {percent:.1f} %{too_low}, without lines {missing or 'none'}")
            held = held and not too_low
    return said, held


def main(file: str) -> int:
    said, held = verdict(json.loads(Path(file).read_bytes()))
    print("\n".join(said))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
