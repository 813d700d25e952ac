"""The ladder of `policies.ladder` for this fleet: which of its entry conditions have held for how long, and the level they have led to.

State: since when each condition holds, and the rung. A condition that is not known does not hold.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.degradation import Rule, is_beyond
from policies.ladder import ALL_BUT_ONE, GROUND, LEVELS, climbed, threshold_of
from policies.metric_catalogue import Metric, Scope
from policies.rule_events import Severity

_NAME = "ladder-"


class Ladder:
    def __init__(self) -> None:
        self.time_scale = 1.0
        self.rung = GROUND
        self._held_since: dict[tuple[int, int], float] = {}

    def reset(self) -> None:
        self.rung = GROUND
        self._held_since.clear()

    def beat(self, value: Callable[[Metric], float | None], backends: int, now: float) -> None:
        wanted = 0
        for number, level in enumerate(LEVELS, 1):
            for index, (condition, for_seconds) in enumerate(level.entries):
                key = number, index
                threshold = threshold_of(condition, backends)
                if not is_beyond(value(condition.metric), condition.operator, threshold):
                    self._held_since.pop(key, None)
                elif now - self._held_since.setdefault(key, now) >= for_seconds * self.time_scale:
                    wanted = number
        self.rung = climbed(self.rung, wanted, now, self.time_scale)


def ladder_rules() -> tuple[Rule, ...]:
    """Its levels, as rules that are shown, forced and told of like all others; what they say of their metric is their first condition."""
    return tuple(
        Rule(
            f"{_NAME}{number}",
            first.metric,
            Scope.FLEET,
            first.operator,
            1.0 if first.threshold == ALL_BUT_ONE else first.threshold,
            level.actions,
            for_seconds=level.entries[0].for_seconds,
            clear_seconds=level.clear_seconds,
            min_hold_seconds=0.0,
            severity=Severity.CRITICAL if number >= 4 else Severity.WARNING,
            description=level.description,
            runbook="deploy/runbooks/ladder.md",
        )
        for number, level in enumerate(LEVELS, 1)
        for first in (level.entries[0].condition,)
    )


def level_of(rule: Rule) -> int:
    """0 of a rule that is none of its levels."""
    number = rule.name.removeprefix(_NAME)
    is_level = number != rule.name and number.isdecimal() and int(number) <= len(LEVELS)
    return int(number) if is_level else 0
