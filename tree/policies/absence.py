"""How long a backend that could not be reached is left alone, and when it is back.

Decides: the next `Absence` after a failure to connect. Nothing is sent to an absent backend until its time is over; then one request (or
a probe, whichever comes first) tries it. A success ends the absence at once, a failure doubles it.
Formula: `first_seconds * 2**(failures-1)`, at most `longest_seconds`. Defaults 1 s and 30 s: an engine takes 20 to 80 s to
start, so a longer pause would only add to that.
Limit: knows connection failures and failed probes only; error rates are a circuit breaker's business.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AbsenceRules:
    first_seconds: float = 1.0
    longest_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Absence:
    failures: int = 0
    until: float = 0.0

    def blocks(self, now: float) -> bool:
        return self.failures > 0 and now < self.until


PRESENT = Absence()


def after_failure(absence: Absence, now: float, rules: AbsenceRules) -> Absence:
    failures = absence.failures + 1
    # The exponent is capped: a backend may stay away for weeks, and 2.0**1024 overflows.
    pause = min(rules.first_seconds * 2.0 ** min(failures - 1, 16), rules.longest_seconds)
    return Absence(failures, now + pause)
