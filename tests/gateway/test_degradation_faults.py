"""Faults in degradation rules: each is named with its line and key, and with what is allowed."""

from __future__ import annotations

import pytest

from gateway.configuration import ConfigurationError, parse
from gateway.degradation_rules import degradation_rules
from policies.default_rules import DEFAULT_RULES
from policies.degradation import Rule
from policies.degradation_actions import wording
from policies.metric_catalogue import SCOPES, Metric, Scope, largest

POOLS = "pools: [{name: p, backends: [{url: 'http://a'}]}]\n"
GOOD = {
    "name": "r",
    "metric": "gpu_temperature_celsius",
    "scope": "backend",
    "threshold": "80",
    "actions": "[hold]",
}


def written(**fields: str | None) -> str:
    """One rule, a line for each field; a field of None is left out."""
    lines = [f"  {key}: {value}" for key, value in {**GOOD, **fields}.items() if value is not None]
    return POOLS + "rules:\n- " + "\n".join(lines)[2:] + "\n"


def faults(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        parse(text, "f.yaml", {})
    return [(fault.line, fault.key, fault.message) for fault in caught.value.faults]


def only_fault(**fields: str | None) -> tuple[int, str, str]:
    (fault,) = faults(written(**fields))
    return fault


@pytest.mark.parametrize(
    ("fields", "line", "key", "says"),
    [
        ({"metric": "gpu_heat"}, 4, "rules[0].metric", "gpu_temperature_celsius"),
        ({"scope": "rack"}, 5, "rules[0].scope", "backend, pool, fleet"),
        ({"operator": "=="}, 8, "rules[0].operator", ">, >=, <, <="),
        ({"aggregate": "median"}, 8, "rules[0].aggregate", "last, mean, min, max, sum"),
        ({"severity": "bad"}, 8, "rules[0].severity", "info, warning, critical"),
        ({"scope": "pool"}, 5, "rules[0].scope", "has no gpu_temperature_celsius; allowed: backend; or name an `aggregate` of its backends"),
        ({"metric": "shed_ratio", "threshold": "0.1"}, 5, "rules[0].scope", "has no shed_ratio; allowed: fleet"),
        ({"aggregate": "mean"}, 8, "rules[0].aggregate", "cannot be made of gpu_temperature_celsius for a backend; allowed: last"),
        ({"actions": "[hold, explode]"}, 7, "rules[0].actions[1]", "is not an action; allowed: close_cold_path"),
        ({"actions": "['window_share 2']"}, 7, "rules[0].actions[0]", "window_share needs a share above 0 and at most 1"),
        ({"threshold": "850"}, 6, "rules[0].threshold", "is 850, where gpu_temperature_celsius never is; allowed: 0 to 200"),
        ({"threshold": "-1"}, 6, "rules[0].threshold", "allowed: 0 to 200"),
        ({"threshold": "hot"}, 6, "rules[0].threshold", "number"),
        ({"metric": "gpu_memory_used_ratio", "threshold": "85"}, 6, "rules[0].threshold", "allowed: 0 to 1"),
        ({"metric": "memory_swing_ratio", "threshold": "-0.1"}, 6, "rules[0].threshold", "allowed: 0 or more"),
        ({"clear_threshold": "81"}, 8, "rules[0].clear_threshold", "would let go where the rule takes hold; allowed: at most `threshold`"),
        ({"operator": "<", "clear_threshold": "79"}, 9, "rules[0].clear_threshold", "allowed: at least `threshold`"),
        ({"clear_threshold": "-3"}, 8, "rules[0].clear_threshold", "is -3, where"),
        ({"for_seconds": "-1"}, 8, "rules[0].for_seconds", "0"),
        ({"samples": "0"}, 8, "rules[0].samples", "1"),
        ({"samples": "3", "for_seconds": "10"}, 8, "rules[0].samples", "stands beside `for_seconds`; allowed: one of them"),
        ({"name": "ladder-9"}, 3, "rules[0].name", "begins as the levels of the ladder do"),
        ({"name": "''"}, 3, "rules[0].name", "is not a name"),
        ({"colour": "red"}, 8, "rules[0].colour", ""),
        ({"scope": "fleet", "aggregate": "max", "only_while": "{metric: engine_running, threshold: 1}"}, 9, "rules[0].only_while", "is about engine_running, which a fleet has no value of"),
        ({"only_while": "{metric: hot_ratio, threshold: 50}"}, 8, "rules[0].only_while.threshold", "is 50, where hot_ratio never is"),
        ({"only_while": "{metric: hot_ratio, threshold: 0.5, clear_threshold: 0.6}"}, 8, "rules[0].only_while.clear_threshold", "at most `threshold`"),
    ],
)  # fmt: skip
def test_each_fault_has_its_line_its_key_and_what_is_allowed(
    fields: dict[str, str], line: int, key: str, says: str
) -> None:
    found = only_fault(**fields)
    assert found[:2] == (line, key) and says in found[2], found


@pytest.mark.parametrize("missing", ["name", "metric"])
def test_a_rule_has_a_name_and_a_metric(missing: str) -> None:
    assert any(missing in message or missing in key for _, key, message in faults(written(**{missing: None})))


def test_two_rules_of_one_name_are_one_too_many() -> None:
    text = written() + "- {name: r, metric: shed_ratio, threshold: 0.5, actions: [serial]}\n"
    assert faults(text) == [(8, "rules[1].name", "is also the name of rules[0]; every rule needs its own")]


@pytest.mark.parametrize(("url", "says"), [("ftp://a", "does not start with"), ("http://", "has no host")])
def test_the_standby_webhook_is_a_url_that_can_be_called(url: str, says: str) -> None:
    [(line, key, message)] = faults(POOLS + f"degradation: {{standby_webhook: '{url}'}}\n")
    assert (line, key) == (2, "degradation.standby_webhook") and says in message


@pytest.mark.parametrize("metric", list(Metric))
def test_every_metric_can_be_used_in_each_of_its_scopes_up_to_the_largest_value_it_has(
    metric: Metric,
) -> None:
    most = largest(metric)
    for scope in SCOPES[metric]:
        for threshold in (0.0, min(most, 1000.0)):
            text = written(metric=metric, scope=scope, threshold=str(threshold))
            assert parse(text, "f", {}).rules[0].metric is metric
    for scope in {Scope.POOL, Scope.FLEET} - SCOPES[metric]:
        if Scope.BACKEND in SCOPES[metric]:
            assert parse(written(metric=metric, scope=scope, threshold="0", aggregate="sum"), "f", {}).rules


def test_a_sum_may_be_above_what_one_backend_reaches() -> None:
    assert (
        parse(written(scope="fleet", aggregate="sum", threshold="500"), "f", {}).rules[0].threshold == 500.0
    )


def yaml_of(rule: Rule) -> str:
    also = rule.only_while
    fields = {
        "metric": rule.metric,
        "scope": rule.scope,
        "operator": f"'{rule.operator}'",
        "threshold": str(rule.threshold),
        "aggregate": rule.aggregate,
        "for_seconds": str(rule.for_seconds),
        "samples": "null" if rule.samples is None else str(rule.samples),
        "clear_threshold": "null" if rule.clear_threshold is None else str(rule.clear_threshold),
        "clear_seconds": str(rule.clear_seconds),
        "min_hold_seconds": str(rule.min_hold_seconds),
        "severity": rule.severity,
        "description": f"'{rule.description}'",
        "runbook": rule.runbook,
        "actions": str([wording(action) for action in rule.actions]),
    }
    if also is not None:
        fields["only_while"] = (
            f"{{metric: {also.metric}, operator: '{also.operator}', threshold: {also.threshold}, "
            f"clear_threshold: {also.clear_threshold}}}"
        )
    return f"- name: {rule.name}\n" + "".join(f"  {key}: {value}\n" for key, value in fields.items())


def test_the_default_rules_can_be_written_in_a_configuration_as_they_are() -> None:
    text = POOLS + "degradation: {default_rules: false}\nrules:\n" + "".join(map(yaml_of, DEFAULT_RULES))
    assert degradation_rules(parse(text, "f", {})).rules == DEFAULT_RULES
