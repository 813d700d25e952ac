"""From the settings to the degradation rules in force: the default set, the configured ones in its place or beside it, all with their durations scaled."""

from __future__ import annotations

from gateway.degradation_settings import ConditionSettings, RuleSettings
from gateway.settings import Settings
from policies.default_rules import DEFAULT_RULES
from policies.degradation import Condition, Rule, scaled
from policies.degradation_actions import action_of
from routing.degradation import DegradationRules


def degradation_rules(settings: Settings) -> DegradationRules:
    degradation = settings.degradation
    if not degradation.enabled:
        return DegradationRules()
    rules = {rule.name: rule for rule in DEFAULT_RULES} if degradation.default_rules else {}
    rules |= {rule.name: rule_of(rule) for rule in settings.rules}
    return DegradationRules(
        tuple(scaled(rule, degradation.time_scale) for rule in rules.values()),
        degradation.ladder,
        degradation.time_scale,
    )


def rule_of(settings: RuleSettings) -> Rule:
    """`ValueError` where an action is none."""
    return Rule(
        settings.name,
        settings.metric,
        settings.scope,
        settings.operator,
        settings.threshold,
        tuple(map(action_of, settings.actions)),
        settings.aggregate,
        settings.for_seconds,
        settings.samples,
        settings.clear_threshold,
        settings.clear_seconds,
        settings.min_hold_seconds,
        _condition(settings.only_while),
        settings.severity,
        settings.description,
        settings.runbook,
    )


def _condition(settings: ConditionSettings | None) -> Condition | None:
    if settings is None:
        return None
    return Condition(settings.metric, settings.operator, settings.threshold, settings.clear_threshold)
