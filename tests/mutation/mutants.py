"""What mutmut left behind: each mutant, what it changes, and how the tests took it.

A mutant has the name `module.function: line`, where the line is the changed one with `<<before -> after>>` in it. So it keeps its name while the
lines around it change, which mutmut's own numbers do not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path

_NUMBERED = re.compile(r"(?P<of>x.+__mutmut_)(?P<number>\d+)")
_PARTS = re.compile(r"\d+\.\d+|\w+|[-+*/<>=!]+|\W")
"""Numbers, names and operators are not cut."""


class Outcome(StrEnum):
    KILLED = "killed"
    TIMEOUT = "timeout"
    """It did not end, which is noticed too."""
    SURVIVED = "survived"
    UNREACHED = "unreached"
    """No test calls the function."""
    UNTRIED = "untried"
    """The run did not come to it, or it ended in a way that says nothing: a crash of the interpreter."""


_OUTCOMES = {
    0: Outcome.SURVIVED,
    1: Outcome.KILLED,
    3: Outcome.KILLED,
    5: Outcome.UNREACHED,
    33: Outcome.UNREACHED,
} | dict.fromkeys((-24, 24, 36, 152, 255), Outcome.TIMEOUT)
"""mutmut's exit codes."""


@dataclass(frozen=True, slots=True)
class Mutant:
    module: str
    function: str
    change: str
    outcome: Outcome

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}: {self.change}"

    @property
    def is_found(self) -> bool:
        return self.outcome in (Outcome.KILLED, Outcome.TIMEOUT)


def mutants_in(tree: Path) -> list[Mutant]:
    """Of all modules that mutmut wrote into `tree`."""
    found: list[Mutant] = []
    for results in sorted(tree.glob("policies/*.py.meta")):
        codes = json.loads(results.read_text(encoding="utf-8"))["exit_code_by_key"]
        if codes:
            found += _of_module(
                results.name.removesuffix(".py.meta"), results.with_suffix("").read_text("utf-8"), codes
            )
    return found


def _of_module(module: str, source: str, codes: Mapping[str, int | None]) -> Iterator[Mutant]:
    lines = source.splitlines()
    functions = {
        node.name: [line.strip().replace(node.name, "") for line in lines[node.lineno - 1 : node.end_lineno]]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
    }
    for key, code in codes.items():
        name = key.rpartition(".")[2]
        mutated = _NUMBERED.fullmatch(name)
        assert mutated is not None, f"not a name that mutmut 3.8 gives: {name}"
        original = functions[f"{mutated['of']}orig"]
        # x_function, xǁClassǁmethod
        function = (
            mutated["of"]
            .removesuffix("__mutmut_")
            .removeprefix("x")
            .removeprefix("_")
            .strip("ǁ")
            .replace("ǁ", ".")
        )
        outcome = Outcome.UNTRIED if code is None else _OUTCOMES.get(code, Outcome.UNTRIED)
        yield Mutant(module, function, change(original, functions[name]), outcome)


def change(before: Sequence[str], after: Sequence[str]) -> str:
    """The lines that differ, as one, with what differs inside them."""
    first, last = _common(before, after)
    old = _PARTS.findall(" ".join(before[first : len(before) - last]))
    new = _PARTS.findall(" ".join(after[first : len(after) - last]))
    start, end = _common(old, new)
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    return f"{''.join(old[:start])}<<{''.join(gone)} -> {''.join(come)}>>{''.join(old[len(old) - end :])}"


def _common(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """How many are equal at the beginning, and of the rest at the end."""
    start = _equal(zip(one, other, strict=False))
    return start, _equal(zip(reversed(one[start:]), reversed(other[start:]), strict=False))


def _equal(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
