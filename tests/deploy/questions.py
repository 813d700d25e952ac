"""What operators' files ask Prometheus, read from deploy/: expressions of dashboards, recording rules and alerts, and the series that they may ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gateway import intent_accuracy
from gateway.sessions import store_metrics
from tests.promised_metrics import promised, rows

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
PROMETHEUS = DEPLOY / "prometheus"
RECORDED = re.compile(r"\b[a-z_]+:headrace_[a-z_]+:[a-z0-9_]+")
METRIC = re.compile(r"(?<![:\w])headrace_[a-z0-9_]+")


class Question(NamedTuple):
    where: str
    expression: str
    legend: str = ""


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows apart."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def of_dashboards() -> Iterator[Question]:
    for name, dashboard in dashboards().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Question(f"{name}: {panel['title']}", target["expr"], target["legendFormat"])


def rules(file: str) -> list[dict[str, Any]]:
    loaded = yaml.safe_load((PROMETHEUS / file).read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules("alerts.rules.yml")}


def recordings() -> dict[str, str]:
    return {rule["record"]: rule["expr"] for rule in rules("recording.rules.yml")}


def of_rules() -> Iterator[Question]:
    for name, expression in recordings().items():
        yield Question(name, expression)
    for name, rule in alerts().items():
        yield Question(name, rule["expr"])


def families() -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each, those of sessions in Redis and of a trained classifier among them."""
    everywhere = [*promised(), *rows(store_metrics), *rows(intent_accuracy)]
    return {name: (kind, labels) for name, kind, labels in everywhere}


def series() -> dict[str, str]:
    """By each name that a series of the page has: its family."""
    found = {}
    for family, (kind, _) in families().items():
        for ending in ("_bucket", "_count", "_sum") if kind == "histogram" else ("",):
            found[family + ending] = family
    # With buckets below zero a histogram has neither.
    for ending in ("_count", "_sum"):
        del found["headrace_wait_error_seconds" + ending]
    return found
