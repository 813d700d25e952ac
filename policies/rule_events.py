"""What is told to the outside when a degradation rule takes hold or lets go."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from policies.metric_catalogue import Scope


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class RuleCause(StrEnum):
    METRIC = "metric"
    OPERATOR = "operator"
    """Forced on or off at `/admin/rules`, or by a new configuration."""
    UNKNOWN = "unknown"
    """It has let go because its metric, or that of its `only_while`, is not known any more."""


class RuleEvent(NamedTuple):
    """One change of state of one rule for one subject. `value` is None where it is not known, `at` on the clock of `now`; `actions` as the configuration words them."""

    rule: str
    scope: Scope
    subject: str
    severity: Severity
    is_active: bool
    metric: str
    value: float | None
    threshold: float
    actions: tuple[str, ...]
    cause: RuleCause
    at: float
