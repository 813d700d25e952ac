"""What the log says of degradation rules beside their changes of state: who forced what, and which rules cannot work and why.

The trail of forces: each entry once, those that expired or went with their rule included. `AUDIT` begins each of these lines.
The self-check: `PATIENCE_SECONDS` after the start, when every backend has had the time to tell what it tells, and again every so often; one line per reason with the rules that
it concerns, once as long as it stays.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from math import inf

from routing.router import Router
from routing.rule_check import objections
from routing.rule_forces import Audited

_logger = logging.getLogger("headrace")
PATIENCE_SECONDS = 10.0
AUDIT = "rule audit:"


class RuleLog:
    def __init__(self, router: Callable[[], Router]) -> None:
        self._router = router
        self._audited = 0
        self._check_at = -inf
        self._said: set[str] = set()

    def audit(self) -> None:
        """What was noted in the trail since the last call."""
        forces = self._router().degradation.forces
        fresh = min(forces.audited - self._audited, len(forces.trail))
        self._audited = forces.audited
        for entry in list(forces.trail)[len(forces.trail) - fresh :]:
            _logger.warning("%s %s", AUDIT, _worded(entry))

    def beat(self, now: float) -> None:
        if self._check_at == -inf:
            self._check_at = now + PATIENCE_SECONDS
        if now >= self._check_at:
            self._check_at = now + PATIENCE_SECONDS
            self._check(now)

    def _check(self, now: float) -> None:
        router = self._router()
        by_reason: defaultdict[str, list[str]] = defaultdict(list)
        for name in router.degradation.rules:
            for objection in objections(router, name, now):
                by_reason[objection].append(name)
        lines = {f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()}
        for line in sorted(lines - self._said):
            _logger.warning("rules that cannot work, or a part of them: %s", line)
        self._said = lines


def _worded(entry: Audited) -> str:
    of = "all subjects" if entry.subject is None else entry.subject or "the fleet"
    seconds = "" if entry.until is None else f" for {entry.until - entry.at:g} s"
    return f"{entry.rule} of {of} {entry.what}{seconds}, by {entry.by!r}"
