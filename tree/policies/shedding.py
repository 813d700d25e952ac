"""Whether a request can still meet its deadline.

Decides: at arrival whether it is taken (`admit`), at dispatch whether it is still worth a slot (`hopeless`).
    admit:    wait + service <= margin * left     left = deadline - now
    hopeless: left <= 0 or service > margin * left
Guards: what is uncertain is admitted (the wait is None until the drain rate has enough samples), what has no deadline always is, and an
emergency is neither refused nor given up: late is better than never there.
Inputs: seconds. `wait` as `policies.drain` predicts it, `service` from dispatch to the first byte (of a plain call the whole generation) as
`policies.service_times` does, 0 where it is not known.
Settings: `enabled` (default true), `margin` (0.1..10, default 1): above 1 gives requests that are predicted late a chance, below 1 keeps a reserve.
Source: Finagle's deadline admission; the field's gateways that wait 30 s for a target of 2 s show what happens without it.
Limit: a prediction's error is not looked at; whoever predicts chooses how many deviations to add.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.terms import Lane


@dataclass(frozen=True, slots=True)
class SheddingRules:
    enabled: bool = True
    margin: float = 1.0


def admit(
    predicted_wait: float | None,
    service_seconds: float,
    left_seconds: float,
    lane: Lane,
    rules: SheddingRules,
) -> bool:
    if predicted_wait is None or lane is Lane.EMERGENCY or not rules.enabled:
        return True
    return predicted_wait + service_seconds <= rules.margin * left_seconds


def hopeless(now: float, deadline: float, service_seconds: float, lane: Lane, rules: SheddingRules) -> bool:
    if lane is Lane.EMERGENCY or not rules.enabled:
        return False
    left = deadline - now
    return left <= 0.0 or service_seconds > rules.margin * left
