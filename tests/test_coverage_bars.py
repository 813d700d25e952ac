"""The bars of `make coverage` are bars: what is below one of them is said, and ends it with a failure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coverage_bars import verdict


def report(lines: float, branches: float, **files: float) -> dict[str, Any]:
    return {
        "totals": {"percent_statements_covered": lines, "percent_branches_covered": branches},
        "files": {
            name: {"summary": {"percent_covered": percent}, "missing_lines": [7, 9]}
            for name, percent in files.items()
        },
    }


@pytest.mark.parametrize(
    ("lines", "branches", "held"),
    [(95.0, 95.0, True), (94.9, 100.0, False), (100.0, 94.9, False)],
)
def test_lines_and_branches_have_a_bar_each(lines: float, branches: float, held: bool) -> None:
    assert verdict(report(lines, branches, a=95.0))[1] is held


def test_a_file_far_below_is_named_with_its_lines_and_fails_however_good_the_total_is() -> None:
    said, held = verdict(report(99.0, 99.0, good=95.0, low=89.9, fair=90.0))
    assert not held
    assert [line.split()[0] for line in said[1:]] == ["fair", "low"]
    assert said[2].endswith("(at least 90 %), without lines 7, 9")
    assert verdict(report(99.0, 99.0, fair=90.0))[1]
