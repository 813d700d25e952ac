"""The bars, and whether what was measured meets them; everybody is held to the same.

- A fault of one engine costs no more calls than were in flight there at once.
- A plain call that fails before its client has got a byte is tried elsewhere and answered, whatever the fault, as long as an engine is alive.
- An engine that is well again has its share of the traffic again within `bound_seconds` (`configuration.recovery_bound_seconds`).
- Overload is no fault: it opens no circuit. Where nobody tells, nothing is said.
"""

from __future__ import annotations

from math import inf

from tests.bench.faults.cases import ENGINES, Case
from tests.bench.faults.measures import Measures
from tests.bench.slo.bars import Verdict


def verdicts(case: Case, found: Measures, bound_seconds: float) -> list[Verdict]:
    judged = []
    if not case.broken:
        if found.opened is not None:
            opened = sum(found.opened.values())
            judged.append(_at_most(f"{case.name}: circuits that opened", opened, 0, ""))
        return judged
    if case.broken == 1:
        name = f"{case.name}: calls that failed, of those in flight there"
        judged.append(_at_most(name, found.failed, found.most_in_flight, "calls"))
    if case.broken < ENGINES:
        judged.append(_at_most(f"{case.name}: plain calls lost", found.plain.lost, 0, "calls"))
    back = inf if found.recovered_seconds is None else found.recovered_seconds
    judged.append(_at_most(f"{case.name}: its share of traffic is back after", back, bound_seconds, "s"))
    return judged


def _at_most(name: str, value: float, bar: float, unit: str) -> Verdict:
    return Verdict(name=name, value=value, bar=bar, unit=unit, at_least=False)
