"""The Grafana dashboard asks for nothing that the metrics page does not have, and leaves nothing of it out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.promised_metrics import promised

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "headrace.json"
METRIC = re.compile(r"\bheadrace_[a-z_]+")
LABELS = re.compile(r"\bby \(([^)]*)\)|\{([^}]*)\}")
OF_EVERY_SERIES = {"job", "instance", "le"}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return loaded


def expressions() -> Iterator[tuple[str, str]]:
    """Each question and the legend of its answers."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


def series_names() -> dict[str, tuple[str, set[str]]]:
    """By each name that a series of the page has: its family and its labels."""
    found = {}
    for family, kind, labels in promised():
        for ending in ("_bucket", "_count", "_sum") if kind == "histogram" else ("",):
            found[family + ending] = family, labels
    # With buckets below zero a histogram has neither.
    for ending in ("_count", "_sum"):
        del found["headrace_wait_error_seconds" + ending]
    return found


def test_every_name_that_the_dashboard_uses_is_exported() -> None:
    used = {name for expression, _ in expressions() for name in METRIC.findall(expression)}
    assert used and used <= series_names().keys()


def test_every_metric_that_is_exported_is_on_the_dashboard() -> None:
    names = series_names()
    shown = {names[name][0] for expression, _ in expressions() for name in METRIC.findall(expression)}
    assert {family for family, _, _ in promised()} - shown == set()


def test_a_question_goes_by_labels_that_all_its_metrics_have() -> None:
    names = series_names()
    for expression, legend in expressions():
        metrics = METRIC.findall(expression)
        if not metrics:
            continue
        labels = set.intersection(*(names[metric][1] for metric in metrics)) | OF_EVERY_SERIES
        grouped = {
            word.strip() for words, _ in LABELS.findall(expression) for word in words.split(",") if word
        }
        chosen = {
            re.split("=~|=", word)[0].strip()
            for _, words in LABELS.findall(expression)
            for word in words.split(",")
            if word
        }
        assert grouped | chosen <= labels | {"waited", "kind"}, expression
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped | {"instance"}, expression


def test_a_quantile_is_taken_of_buckets_and_a_rate_of_what_only_grows() -> None:
    kinds = {family: kind for family, kind, _ in promised()}
    names = series_names()
    for expression, _ in expressions():
        for name in METRIC.findall(expression):
            grows = kinds[names[name][0]] != "gauge"
            assert grows == bool(re.search(r"(rate|increase)\(" + name, expression)), expression
        if "histogram_quantile" in expression:
            assert all(name.endswith("_bucket") for name in METRIC.findall(expression)), expression


def test_panels_lie_side_by_side_and_have_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
