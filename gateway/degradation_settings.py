"""The settings of `degradation` and `rules`, as those of `gateway.settings`. What they do: `policies.degradation`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded
from policies.degradation import Aggregate, Operator
from policies.metric_catalogue import Metric, Scope
from policies.rule_events import Severity

_ANY = 1e18
_WEEK = 604_800


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionSettings:
    """Has to hold as well, of the same subject or of the pool or fleet that it is in."""

    metric: Metric
    operator: Operator = Operator.ABOVE
    threshold: float = bounded(0, -_ANY, _ANY)
    clear_threshold: float | None = bounded(None, -_ANY, _ANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """One degradation rule. `actions` are words, some with a value: `close_cold_path`, `window_share 0.5`, `serial`, `hold`, `prefer_fallback`, `activate_standby`, `limit_rate 0.9`,
    `clamp_max_tokens batch 256` (or `p90`), `refuse_below standard`, `no_retries`, `no_lending`,
    `batch_share 0.6`, `batch_cold`, `no_optional_work`, `shed_over_share`. What each does: `policies.degradation_actions`."""

    name: str
    metric: Metric
    scope: Scope = Scope.FLEET
    aggregate: Aggregate = Aggregate.LAST
    """`last` is the scope's own value; else of its backends' values."""
    operator: Operator = Operator.ABOVE
    threshold: float = bounded(0, -_ANY, _ANY)
    for_seconds: float = bounded(0, 0, _WEEK)
    samples: int | None = bounded(None, 1, 1000)
    """Readings in a row, in place of a time."""
    clear_threshold: float | None = bounded(None, -_ANY, _ANY)
    clear_seconds: float = bounded(30, 0, _WEEK)
    min_hold_seconds: float = bounded(10, 0, _WEEK)
    only_while: ConditionSettings | None = None
    actions: tuple[str, ...] = ()
    severity: Severity = Severity.WARNING
    description: str = ""
    runbook: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradationSettings:
    """The rules of `rules` and of the default set; a rule of the same name takes the default one's place."""

    enabled: bool = True
    interval_seconds: float = bounded(1, 0.01, 3600)
    """How often metrics are read and rules looked at; also of the breaker's slow start."""
    default_rules: bool = True
    ladder: bool = False
    """Five levels of overload, from shorter answers of batch requests to emergencies alone."""
    time_scale: float = bounded(1, 0.0001, 1000)
    """All durations of all rules are so many times as long: for rehearsals."""
    standby_webhook: str = ""
    """A URL that is told when rules want standby backends, and when they do not any more."""
