"""The Grafana dashboards and the rules of Prometheus ask for nothing that the metrics page does not have, and the dashboards leave nothing of it out."""

from __future__ import annotations

import re

import pytest

from tests.deploy.questions import (
    METRIC,
    RECORDED,
    dashboards,
    families,
    of_dashboards,
    of_rules,
    panels,
    recordings,
    series,
)

GROUPED = re.compile(r"\bby \(([^)]*)\)")
CHOSEN = re.compile(r"\{([^}]*)\}")
OF_EVERY_SERIES = {"job", "instance", "le"}
NAMES = ("backends", "cost", "overview", "scheduling")


def labels_of(expression: str) -> set[str]:
    """That all of its series have."""
    names, known, recorded = series(), families(), recordings()
    found = [known[names[name]][1] | OF_EVERY_SERIES for name in METRIC.findall(expression)]
    found += [grouping(recorded[name]) for name in RECORDED.findall(expression)]
    return set.intersection(*found) if found else OF_EVERY_SERIES


def grouping(expression: str) -> set[str]:
    groups = [{word.strip() for word in words.split(",")} for words in GROUPED.findall(expression)]
    return set.union(*groups) if groups else set()


def test_the_dashboards_are_four() -> None:
    assert tuple(dashboards()) == NAMES
    assert {one["uid"] for one in dashboards().values()} == {f"headrace-{name}" for name in NAMES}


def test_every_name_that_dashboards_and_rules_use_is_exported_or_recorded() -> None:
    asked = [*of_dashboards(), *of_rules()]
    used = {name for question in asked for name in METRIC.findall(question.expression)}
    assert used and used <= series().keys()
    assert {
        name for question in asked for name in RECORDED.findall(question.expression)
    } == recordings().keys()


def test_every_metric_that_is_exported_is_on_a_dashboard() -> None:
    names = series()
    shown = {names[name] for question in of_dashboards() for name in METRIC.findall(question.expression)}
    assert families().keys() - shown == set()


def test_a_question_goes_by_labels_that_all_its_series_have() -> None:
    for question in (*of_dashboards(), *of_rules()):
        expression = question.expression
        if not METRIC.findall(expression) and not RECORDED.findall(expression):
            continue
        labels = labels_of(expression)
        grouped = grouping(expression)
        assert grouped <= labels, question
        for name, words in re.findall(r"([a-z_:0-9]+)\{([^}]*)\}", expression):
            chosen = {
                re.split("=~|!~|!=|=", word)[0].strip()
                for word in re.findall(r'[a-z_]+(?:=~|!~|!=|=)"', words)
            }
            assert name.startswith(("process_", "up")) or chosen <= labels_of(name), question
        assert set(re.findall(r"\{\{(\w+)\}\}", question.legend)) <= grouped | {"instance"}, question


def test_a_quantile_is_taken_of_buckets_and_a_rate_of_what_only_grows() -> None:
    known, names = families(), series()
    for question in (*of_dashboards(), *of_rules()):
        expression = question.expression
        for name in METRIC.findall(expression):
            grows = known[names[name]][0] != "gauge"
            assert grows == bool(re.search(r"(rate|increase)\(" + name + r"\b", expression)), question
        if "histogram_quantile" in expression:
            assert all(name.endswith("_bucket") for name in METRIC.findall(expression)), question


@pytest.mark.parametrize("name", NAMES)
def test_each_panel_says_what_it_shows_in_which_unit_of_the_chosen_jobs(name: str) -> None:
    dashboard = dashboards()[name]
    assert dashboard["description"] and "headrace" in dashboard["tags"]
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "job"]
    for panel in panels(dashboard):
        title = panel["title"]
        assert len(panel["description"]) >= 15 and panel["description"].endswith("."), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["targets"], title
        for target in panel["targets"]:
            assert (
                target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            )
            named = re.findall(r"(?:[a-z_]+:)?(?:headrace|process)_[a-z0-9_:]+", target["expr"])
            assert len(named) == target["expr"].count('job=~"$job"'), title
        assert panel["type"] == "stat" or all(target["legendFormat"] for target in panel["targets"]), title
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_side_by_side_and_have_numbers_of_their_own(name: str) -> None:
    every = dashboards()[name]["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells = [
        (x, y)
        for panel in every
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
