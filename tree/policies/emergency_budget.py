"""How much of a pool one tenant may claim as emergencies: beyond it its requests count as interactive.

Decides: whether one more emergency is within the budget, and the budget's next state. Excess is demoted, never refused.
Formula: the generic cell rate algorithm in its leaky-bucket form (ITU-T I.371, annex A: both forms decide alike): the level falls by
`budget_share` * rate per second, a request adds its amount and is granted where the level stays within `burst`. Over any time t no more is
granted than `burst` + `budget_share` * rate * t.
Inputs: `now` in seconds; `rate` what the pool serves per second; `amount` of this request in the same unit. In requests the amount is 1; to
count in cost, give requests/s and cost / mean cost, so that `burst` stays in requests. The level is kept and not, as the textbook has it,
a time, because the rate is a measurement: a debt made at one rate must not change when another is measured.
Settings: `budget_share` (0..1, default 0.1), `burst` (requests, 1..1000000, default 20).
Limits: one record per tenant and pool, per process; where `is_full` says so it may be forgotten. With nothing measured (`rate` 0) there is
the burst and no more, which costs nothing while slots are free: interactive requests then start at once as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class EmergencyBudgetRules:
    budget_share: float = 0.1
    burst: float = 20.0


class EmergencyBudget(NamedTuple):
    level: float = 0.0
    """What was claimed and has not leaked away yet, in requests."""
    at: float = 0.0


UNUSED_BUDGET = EmergencyBudget()


def claimed(
    budget: EmergencyBudget, now: float, amount: float, rate: float, rules: EmergencyBudgetRules
) -> EmergencyBudget | None:
    """The budget after one emergency, or None where it is beyond: then the request is interactive and the budget stays as it was."""
    level = _level(budget, now, rate, rules) + amount
    return EmergencyBudget(level, max(now, budget.at)) if level <= rules.burst else None


def is_full(budget: EmergencyBudget, now: float, rate: float, rules: EmergencyBudgetRules) -> bool:
    """Whether the whole burst is there again, so that a fresh record would say the same."""
    return _level(budget, now, rate, rules) <= 0.0


def _level(budget: EmergencyBudget, now: float, rate: float, rules: EmergencyBudgetRules) -> float:
    leaked = rules.budget_share * rate * max(now - budget.at, 0.0)
    return max(budget.level - leaked, 0.0)
