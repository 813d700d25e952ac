"""When a degradation rule takes hold and when it lets go.

Decides, for one rule and one subject, the next state from one reading:
- inactive -> pending at the first reading beyond `threshold`; pending -> active once it has been beyond for `for_seconds`, or in `samples` readings in a row;
- active -> clearing at the first reading that is not beyond `clear_threshold` any more; clearing -> active where one is again; clearing -> inactive after
  `clear_seconds`, and `min_hold_seconds` after it took hold at the earliest.
`only_while` has to hold too, with thresholds of its own to take hold and to let go; it is looked at as the metric is.
Unknown (None, be it never told or too old) is never taken for a number. Nothing takes hold on it: it ends a pending streak. While active it counts as not beyond: a rule keeps its hold
for `clear_seconds` and then lets go, for a metric that will never come back must not degrade a fleet for ever; it says so (`RuleCause.UNKNOWN`, and no value in the event).
Inputs: readings in the metric's unit (`policies.metric_catalogue`), `now` in seconds; `is_new` says whether another sample was taken since the reading before.
Settings of a rule: `for_seconds` (0..604800, default 0: at once), `samples` (1..1000, default None: by time; then no `for_seconds`), `clear_threshold` (default the threshold),
`clear_seconds` (0..604800, default 30), `min_hold_seconds` (0..604800, default 10).
Source of the shape: Prometheus' `for` and `keep_firing_for`; Envoy's overload manager for thresholds with actions.
Limit: readings come at beats; what happens between two of them is not seen, and a time is over at the first beat after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from policies.degradation_actions import Action
from policies.metric_catalogue import SCOPES, Metric, Scope
from policies.rule_events import Severity


class Operator(StrEnum):
    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="


_ABOVE, _AT_LEAST, _BELOW = Operator.ABOVE, Operator.AT_LEAST, Operator.BELOW


class Aggregate(StrEnum):
    """How the values of a scope's backends become one; `LAST` is the scope's own value."""

    LAST = "last"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class Condition:
    """`clear_threshold` None is the threshold itself."""

    metric: Metric
    operator: Operator
    threshold: float
    clear_threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    metric: Metric
    scope: Scope
    operator: Operator
    threshold: float
    actions: tuple[Action, ...]
    aggregate: Aggregate = Aggregate.LAST
    for_seconds: float = 0.0
    samples: int | None = None
    clear_threshold: float | None = None
    clear_seconds: float = 30.0
    min_hold_seconds: float = 10.0
    only_while: Condition | None = None
    severity: Severity = Severity.WARNING
    description: str = ""
    runbook: str = ""


class Phase(StrEnum):
    INACTIVE = "inactive"
    PENDING = "pending"
    ACTIVE = "active"
    CLEARING = "clearing"


_INACTIVE, _ACTIVE, _CLEARING = Phase.INACTIVE, Phase.ACTIVE, Phase.CLEARING
"""An enumeration's own attributes cost more than all the rest of a step."""


class State(NamedTuple):
    """`since` is when the phase began, `samples` how many spoke for it while pending, `held_since` when it took hold."""

    phase: Phase = Phase.INACTIVE
    since: float = 0.0
    samples: int = 0
    held_since: float = 0.0

    @property
    def is_active(self) -> bool:
        return self.phase is _ACTIVE or self.phase is _CLEARING


IDLE = State()


def step(
    state: State, value: float | None, while_value: float | None, now: float, rule: Rule, is_new: bool = True
) -> State:
    """The state after one reading. `while_value` is of `only_while`, and not looked at without one."""
    phase = state.phase
    if phase is _ACTIVE or phase is _CLEARING:
        if _keeps(value, while_value, rule):
            return state if phase is _ACTIVE else State(_ACTIVE, now, 0, state.held_since)
        if phase is _ACTIVE:
            state = State(_CLEARING, now, 0, state.held_since)
        is_over = now - state.since >= rule.clear_seconds
        return IDLE if is_over and now - state.held_since >= rule.min_hold_seconds else state
    if not _takes_hold(value, while_value, rule):
        return IDLE
    if phase is _INACTIVE:
        state = State(Phase.PENDING, now, 1)
    elif is_new:
        state = state._replace(samples=state.samples + 1)
    is_due = now - state.since >= rule.for_seconds if rule.samples is None else state.samples >= rule.samples
    return State(Phase.ACTIVE, now, 0, now) if is_due else state


def is_beyond(value: float | None, operator: Operator, threshold: float) -> bool:
    if value is None:
        return False
    if operator is _ABOVE:
        return value > threshold
    if operator is _AT_LEAST:
        return value >= threshold
    return value < threshold if operator is _BELOW else value <= threshold


def may_clear_at(operator: Operator, threshold: float, clear_threshold: float) -> bool:
    """Whether a clear threshold stands on the side where a rule lets go, so that no value both takes hold and lets go."""
    if operator in (Operator.ABOVE, Operator.AT_LEAST):
        return clear_threshold <= threshold
    return clear_threshold >= threshold


def aggregated(values: list[float], aggregate: Aggregate) -> float | None:
    """Of the known values; None where there are none."""
    if not values:
        return None
    if aggregate is Aggregate.MIN:
        return min(values)
    if aggregate is Aggregate.MAX:
        return max(values)
    total = sum(values)
    return total if aggregate is Aggregate.SUM else total / len(values)


def is_own(metric: Metric, scope: Scope) -> bool:
    """Whether it is measured for such a subject itself."""
    return scope in SCOPES[metric]


def is_composed(metric: Metric, scope: Scope) -> bool:
    """Whether backends' values can be put together for it."""
    return scope is not Scope.BACKEND and scope not in SCOPES[metric] and Scope.BACKEND in SCOPES[metric]


_WIDER = (Scope.BACKEND, Scope.POOL, Scope.FLEET)


def scope_of_while(metric: Metric, scope: Scope) -> Scope | None:
    """Whose value an `only_while` of a rule of `scope` looks at: its subject's, or the narrowest that holds it. None where there is none."""
    for wider in _WIDER[_WIDER.index(scope) :]:
        if wider in SCOPES[metric]:
            return wider
    return None


def scaled(rule: Rule, time_scale: float) -> Rule:
    """The same rule with all its durations so many times as long."""
    return replace(
        rule,
        for_seconds=rule.for_seconds * time_scale,
        clear_seconds=rule.clear_seconds * time_scale,
        min_hold_seconds=rule.min_hold_seconds * time_scale,
    )


def _takes_hold(value: float | None, while_value: float | None, rule: Rule) -> bool:
    also = rule.only_while
    return is_beyond(value, rule.operator, rule.threshold) and (
        also is None or is_beyond(while_value, also.operator, also.threshold)
    )


def _keeps(value: float | None, while_value: float | None, rule: Rule) -> bool:
    clear = rule.threshold if rule.clear_threshold is None else rule.clear_threshold
    if not is_beyond(value, rule.operator, clear):
        return False
    also = rule.only_while
    if also is None:
        return True
    clear = also.threshold if also.clear_threshold is None else also.clear_threshold
    return is_beyond(while_value, also.operator, clear)
