"""The bar: of all mutants `LEAST_FOUND` are noticed by the tests, and of each of the others `explained.toml` says why it is not."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.mutation.mutants import Mutant, Outcome

LEAST_FOUND = 0.9
EXPLAINED = Path(__file__).with_name("explained.toml")


def table(mutants: Sequence[Mutant]) -> Iterator[str]:
    """Per module, the worst first, and all together."""
    modules: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        modules.setdefault(mutant.module, []).append(mutant)
    columns = ("mutants", *Outcome, "found")
    yield f"{'module':<22}" + "".join(f"{column:>11}" for column in columns)
    for module, its in sorted(modules.items(), key=lambda pair: (_share(pair[1]), pair[0])):
        yield _row(module, its)
    yield _row("all", mutants)


def kinds(mutants: Iterable[Mutant], explained: str) -> Iterator[str]:
    """How many survivors there are of each explanation."""
    names = Counter(mutant.name for mutant in mutants if not mutant.is_found)
    for why, its in _by_reason(explained).items():
        if count := sum(names[name] for name in its):
            yield f"{count:>4} {why}"


def faults(mutants: Sequence[Mutant], explained: str) -> list[str]:
    """Why the run does not pass; nothing where it does."""
    if not mutants:
        return ["there are no mutants"]
    found = []
    if untried := sum(mutant.outcome is Outcome.UNTRIED for mutant in mutants):
        found.append(f"the run is not complete: {untried} mutants have no outcome")
    if _share(mutants) < LEAST_FOUND:
        found.append(f"{_share(mutants):.1%} are found, {LEAST_FOUND:.0%} is the bar")
    left = {mutant.name for mutant in mutants if mutant.outcome in (Outcome.SURVIVED, Outcome.UNREACHED)}
    known = {name for names in _by_reason(explained).values() for name in names}
    found += [f"not explained: {name}" for name in sorted(left - known)]
    found += [f"explained, but no survivor: {name}" for name in sorted(known - left)]
    return found


def _by_reason(explained: str) -> Mapping[str, Sequence[str]]:
    return {kind["why"]: kind["mutants"] for kind in tomllib.loads(explained).get("kind", [])}


def _share(mutants: Sequence[Mutant]) -> float:
    return sum(mutant.is_found for mutant in mutants) / len(mutants)


def _row(name: str, mutants: Sequence[Mutant]) -> str:
    counts = Counter(mutant.outcome for mutant in mutants)
    cells = [len(mutants), *(counts[outcome] for outcome in Outcome)]
    return f"{name:<22}" + "".join(f"{cell:>11}" for cell in cells) + f"{_share(mutants):>11.1%}"
