"""Prometheus' own tools on the files of deploy/: configuration, rules, and what each alert fires on and does not fire on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from policies.default_rules import DEFAULT_RULES
from policies.rule_events import Severity
from routing.ladder import ladder_rules
from tests.deploy.questions import DEPLOY, PROMETHEUS, alerts
from tests.deploy.tools import run

TESTS = sorted((PROMETHEUS / "tests").glob("*.test.yml"))


def test_the_scrape_configuration_is_one() -> None:
    assert "is valid prometheus config file syntax" in run(
        "promtool", "check", "config", "prometheus.yml", folder=PROMETHEUS
    )


def test_the_rules_are_such_and_of_different_names() -> None:
    said = run("promtool", "check", "rules", "--lint-fatal", *_names("*.rules.yml"), folder=PROMETHEUS)
    assert len(re.findall("SUCCESS", said)) == 2


@pytest.mark.parametrize("file", [path.name for path in TESTS])
def test_each_alert_fires_on_what_it_should_and_not_on_what_it_should_not(file: str) -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", file, folder=PROMETHEUS / "tests")


def test_there_is_a_series_that_fires_and_one_that_does_not_for_every_alert() -> None:
    fires, is_quiet = set(), set()
    for path in TESTS:
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            asked = test.get("alert_rule_test", ())
            if any(one["exp_alerts"] for one in asked):
                fires |= {one["alertname"] for one in asked}
            else:
                is_quiet |= {one["alertname"] for one in asked}
    assert fires == is_quiet == alerts().keys()


def test_every_alert_needs_three_minutes_is_critical_and_says_what_is_wrong() -> None:
    for name, rule in alerts().items():
        assert rule["for"] == "3m", name
        # A policy that is always at work on some engines wakes nobody.
        assert rule["labels"]["severity"] == ("warning" if name == "HeadraceMemoryAbove80" else "critical"), (
            name
        )
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, name
        assert all(rule["annotations"].values()), name


def test_every_rule_of_the_gateway_that_is_more_than_information_has_an_alert() -> None:
    asked = [rule["expr"] for rule in alerts().values()]
    named = {rule for expression in asked for rule in re.findall(r'\{rule="([a-z0-9-]+)"\}', expression)}
    (ladder,) = re.findall(r'\{rule=~"([^"]+)"\}', " ".join(asked))
    (others,) = re.findall(r'rule!~"([^"]+)"', " ".join(asked))
    for rule in (*DEFAULT_RULES, *ladder_rules()):
        if rule.severity is not Severity.INFO:
            assert (rule.name in named) is not bool(re.fullmatch(ladder, rule.name)), rule.name
            assert re.fullmatch(others, rule.name), "it would be told of twice"
    assert named <= {rule.name for rule in DEFAULT_RULES}


def test_the_example_for_alertmanager_is_a_configuration() -> None:
    assert "SUCCESS" in run("amtool", "check-config", "alertmanager.yml", folder=DEPLOY / "alertmanager")


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ("alertname=gpu-hot severity=critical source=headrace", "pager"),
        ("alertname=HeadraceNoBackend severity=critical job=headrace", "pager"),
        ("alertname=memory-swing severity=warning source=headrace", "chat"),
        ("alertname=something", "chat"),
    ],
)
def test_the_example_routes_by_severity(labels: str, receiver: str) -> None:
    said = run(
        *("amtool", "config", "routes", "test", "--config.file=alertmanager.yml", *labels.split()),
        folder=DEPLOY / "alertmanager",
    )
    assert said.splitlines()[0] == receiver


def _names(pattern: str) -> list[str]:
    return sorted(path.name for path in Path(PROMETHEUS).glob(pattern))
