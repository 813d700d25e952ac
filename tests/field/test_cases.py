"""The table of field cases is whole: each case has tests that exist, or a reason; and each test that is named after a case is in it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.field.cases import HELD_BY, IDS, NOT_HERE, OTHERWISE

ROOT = Path(__file__).parents[1]


@cache
def named_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(name for name in functions if name.startswith("test_"))


def test_every_case_is_held_by_tests_or_has_a_reason_and_never_both() -> None:
    assert len(IDS) == len(set(IDS)) == 120
    assert HELD_BY.keys() | NOT_HERE.keys() == set(IDS)
    assert not HELD_BY.keys() & NOT_HERE.keys()
    assert OTHERWISE.keys() <= HELD_BY.keys()
    assert all(HELD_BY.values()) and all(len(reason) > 20 for reason in NOT_HERE.values())


def test_each_test_that_is_named_exists() -> None:
    for case, tests in HELD_BY.items():
        for file, name in tests:
            assert name in named_in(file), f"{case}: {file} has no {name}"


def test_each_test_named_after_a_case_is_in_the_table() -> None:
    for path in (ROOT / "field").glob("test_*.py"):
        file = f"field/{path.name}"
        for name in named_in(file):
            for digits in re.findall(r"b(\d{3})_", name):
                assert (file, name) in HELD_BY[f"B{digits}"], name
