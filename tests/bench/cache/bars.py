"""The bars, and whether Headrace meets them.

Compared is with the better one of the two routers, figure by figure: the higher cached-token share, the shorter P99 of the first byte. A bar
whose opponents were not measured is left out. Who refuses or loses calls could have any share and any P99, so none may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.cache.contenders import CACHE_AWARE, POWER_OF_TWO, ROUND_ROBIN
from tests.bench.cache.distinct import Distinct
from tests.bench.cache.disturbances import Disturbed
from tests.bench.cache.run import Figures
from tests.bench.slo.bars import Verdict

SHARE_OF_ROUND_ROBIN = 1.35
SHARE_OF_POWER_OF_TWO = 1.25
P99_OF_ROUND_ROBIN = 0.78
LARGEST_LOAD_REQUESTS = 1.0
SHIFT_SECONDS = 10.0
STORM_REQUESTS = 2.0
BACK_SECONDS = 40.0
"""Headrace gives an engine that comes back its whole window within 30 s."""
GROWN_MB = 48.0
"""One and a half times what the settings promise of a full table; what the measurement itself holds is in it."""
FLAT_RATIO = 1.2


def verdicts(ours: Figures, peers: Mapping[str, Figures]) -> list[Verdict]:
    found: list[Verdict] = []
    for names, policy, share_bar, p99_bar in (
        (ROUND_ROBIN, "round robin", SHARE_OF_ROUND_ROBIN, P99_OF_ROUND_ROBIN),
        (POWER_OF_TWO, "power of two", SHARE_OF_POWER_OF_TWO, None),
        (CACHE_AWARE, "cache-aware", 1.0, 1.0),
    ):
        measured = [peers[name] for name in names if name in peers]
        if not measured:
            continue
        share = ours.cached_share / max(one.cached_share for one in measured)
        found.append(Verdict(name=f"cached-token share, of {policy}'s", value=share, bar=share_bar, unit="x"))
        if p99_bar is not None:
            p99 = ours.first_byte_p99_ms / min(one.first_byte_p99_ms for one in measured)
            found.append(_at_most(f"first byte P99, of {policy}'s", p99, p99_bar, "x"))
    return [
        *found,
        _at_most("largest load, above 1.25 x mean", ours.over_bound, LARGEST_LOAD_REQUESTS, "requests"),
        _at_most("calls without an answer", ours.unanswered, 0, ""),
    ]


def disturbance_verdicts(found: Disturbed) -> list[Verdict]:
    storm = "the new engine's load in its worst 2 s, above 1.25 x mean"
    return [
        _at_most("popularity shifts: share back after", found.shift_seconds, SHIFT_SECONDS, "s"),
        _at_most(storm, found.storm_requests, STORM_REQUESTS, "requests"),
        _at_most("the new engine finds what the others find after", found.restart_seconds, BACK_SECONDS, "s"),
        _at_most("the new engine has 0.75 x the mean load after", found.load_seconds, BACK_SECONDS, "s"),
    ]


def distinct_verdicts(found: Distinct) -> list[Verdict]:
    return [
        _at_most(
            "a million distinct prefixes: remembered, of what is allowed", found.held / found.most, 1, "x"
        ),
        _at_most("a million distinct prefixes: memory", found.grown_mb, GROWN_MB, "MB"),
        _at_most(
            "a million distinct prefixes: CPU per decision, last of first", found.cost_ratio, FLAT_RATIO, "x"
        ),
    ]


def missed(found: Sequence[Verdict]) -> bool:
    return any(not verdict.met for verdict in found)


def _at_most(name: str, value: float, bar: float, unit: str) -> Verdict:
    return Verdict(name=name, value=value, bar=bar, unit=unit, at_least=False)
