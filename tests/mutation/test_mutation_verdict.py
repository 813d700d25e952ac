"""What a run of mutmut is read as, and when it passes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, Outcome, change, mutants_in
from tests.mutation.verdict import EXPLAINED, faults, kinds, table

WRITTEN = """
def x_least__mutmut_orig(
    one: int, other: int = 0
) -> int:
    if one < other:
        return one
    return other


def x_least__mutmut_1(
    one: int, other: int = 1
) -> int:
    if one < other:
        return one
    return other


def x_least__mutmut_2(
    one: int, other: int = 0
) -> int:
    if one <= other:
        return one
    return other


class Queue:
    def xǁQueueǁ__len____mutmut_orig(self) -> int:
        return 0

    def xǁQueueǁ__len____mutmut_1(self) -> int:
        return 1


def x__hidden__mutmut_orig(a: str = "") -> str: return a
def x__hidden__mutmut_1(a: str = "XXXX") -> str: return a
"""


def written(tmp_path: Path, codes: dict[str, int | None]) -> list[Mutant]:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "queue.py").write_text(WRITTEN, encoding="utf-8")
    results = {"exit_code_by_key": {f"policies.queue.{name}": code for name, code in codes.items()}}
    (tmp_path / "policies" / "queue.py.meta").write_text(json.dumps(results), encoding="utf-8")
    (tmp_path / "policies" / "__init__.py.meta").write_text('{"exit_code_by_key": {}}', encoding="utf-8")
    return mutants_in(tmp_path)


def test_a_mutant_is_named_by_what_it_changes_and_not_by_its_number(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        {
            "x_least__mutmut_1": 1,
            "x_least__mutmut_2": 0,
            "xǁQueueǁ__len____mutmut_1": -24,
            "x__hidden__mutmut_1": 33,
        },
    )
    assert [(mutant.name, mutant.outcome) for mutant in found] == [
        ("queue.least: one: int, other: int = <<0 -> 1>>", Outcome.KILLED),
        ("queue.least: if one <<< -> <=>> other:", Outcome.SURVIVED),
        ("queue.Queue.__len__: return <<0 -> 1>>", Outcome.TIMEOUT),
        ('queue._hidden: def (a: str = "<< -> XXXX>>") -> str: return a', Outcome.UNREACHED),
    ]


@pytest.mark.parametrize("code", [None, 2, 34, -11])
def test_what_did_not_run_to_its_end_has_no_outcome(tmp_path: Path, code: int | None) -> None:
    [mutant] = written(tmp_path, {"x_least__mutmut_1": code})
    assert mutant.outcome is Outcome.UNTRIED and not mutant.is_found


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (["a", "f(x, y)", "b"], ["a", "f(x, )", "b"], "f(x, <<y -> >>)"),
        (["f(", "x,", "y,", ")"], ["f(", "y,", ")"], "<<x, -> >>"),
        (["x = x"], ["x = x = x"], "x = x<< ->  = x>>"),
        (["x = 0.5 // y"], ["x = 1.5 / y"], "x = <<0.5 // -> 1.5 />> y"),
    ],
)
def test_of_the_lines_that_differ_what_differs_is_shown(
    before: list[str], after: list[str], shown: str
) -> None:
    assert change(before, after) == shown


def of(*outcomes: Outcome) -> list[Mutant]:
    return [Mutant("heat", "is_hot", f"line {number}", outcome) for number, outcome in enumerate(outcomes)]


NINE = [Outcome.KILLED] * 8 + [Outcome.TIMEOUT]
TOLD = """
[[kind]]
why = "Nobody can tell."
mutants = ["heat.is_hot: line 9"]
"""


def test_nine_in_ten_are_enough_where_the_others_are_explained() -> None:
    assert faults(of(*NINE, Outcome.SURVIVED), TOLD) == []
    assert faults(of(*NINE, Outcome.UNREACHED), TOLD) == []


@pytest.mark.parametrize(
    ("mutants", "explained", "says"),
    [
        ([], "", "there are no mutants"),
        (of(*NINE[1:], Outcome.SURVIVED), TOLD.replace("9", "8"), "88.9% are found, 90% is the bar"),
        (of(*NINE, Outcome.UNTRIED), "", "the run is not complete: 1 mutants have no outcome"),
        (of(*NINE, Outcome.SURVIVED), "", "not explained: heat.is_hot: line 9"),
        (of(*NINE, Outcome.KILLED), TOLD, "explained, but no survivor: heat.is_hot: line 9"),
        (of(*NINE), TOLD, "explained, but no survivor: heat.is_hot: line 9"),
    ],
)
def test_what_does_not_pass_is_told(mutants: list[Mutant], explained: str, says: str) -> None:
    assert faults(mutants, explained) == [says]


def test_the_worst_module_stands_first_and_explanations_are_counted() -> None:
    mutants = [Mutant("lanes", "lane_of", "x", Outcome.KILLED), *of(*NINE, Outcome.SURVIVED)]
    assert [line.split()[0] for line in table(mutants)] == ["module", "heat", "lanes", "all"]
    assert [line.split()[-1] for line in table(mutants)] == ["found", "90.0%", "100.0%", "90.9%"]
    assert list(kinds(mutants, TOLD)) == ["   1 Nobody can tell."]


def test_each_mutant_is_explained_once_and_no_reason_is_empty() -> None:
    explained = tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).get("kind", [])
    names = [name for kind in explained for name in kind["mutants"]]
    assert len(names) == len(set(names))
    assert all(kind["why"] and kind["mutants"] for kind in explained)
