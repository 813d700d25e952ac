"""Rules of `rules`, `degradation`, `alerts` and a backend's `gpu`: metrics that their scope has, thresholds on the right side, actions that are actions, URLs that can be called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Any

from gateway.alert_settings import AlertReceiverSettings, AlertSettings
from gateway.configuration.reading import Faults, Reading
from gateway.configuration.spelling import name_fault
from gateway.configuration.urls import web_url_fault
from gateway.degradation_settings import ConditionSettings, DegradationSettings, RuleSettings
from gateway.gpu_settings import GpuSettings
from policies.degradation import Aggregate, is_composed, is_own, may_clear_at, scope_of_while
from policies.degradation_actions import action_of
from policies.metric_catalogue import SCOPES, Metric, Scope, largest

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SERIES_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def degradation_faults(readings: Sequence[Reading]) -> Faults:
    first: dict[str, str] = {}
    for reading in readings:
        if reading.record is RuleSettings:
            name = reading.values.get("name")
            if name is not None:
                if fault := name_fault(name):
                    yield reading.at("name"), fault
                elif name.startswith("ladder-"):
                    yield reading.at("name"), "begins as the levels of the ladder do; allowed: any other name"
                elif name in first:
                    yield reading.at("name"), f"is also the name of {first[name]}; every rule needs its own"
                first.setdefault(name, reading.key)
            yield from _actions(reading)
            if reading.values.get("samples") is not None and reading.values.get("for_seconds"):
                yield reading.at("samples"), "stands beside `for_seconds`; allowed: one of them"
            if not reading.broken:
                yield from _measured(reading)
        if reading.record in (RuleSettings, ConditionSettings):
            yield from _reachable(reading)
            yield from _clear_side(reading)
        elif reading.record is DegradationSettings:
            yield from _url(reading, "standby_webhook")
        elif reading.record is AlertReceiverSettings:
            yield from _url(reading, "url", needed=True)
        elif reading.record is AlertSettings:
            yield from _url(reading, "runbook_base_url")
            for label in reading.values.get("labels", {}):
                if not _LABEL_NAME.fullmatch(label):
                    yield (
                        f"{reading.at('labels')}.{label}",
                        "is not the name of a label; allowed: letters, digits and _",
                    )
        elif reading.record is GpuSettings:
            yield from _gpu(reading)


def _value(reading: Reading, name: str) -> Any:
    return reading.values.get(name, reading.record.__dataclass_fields__[name].default)


def _url(reading: Reading, name: str, needed: bool = False) -> Faults:
    url = reading.values.get(name)
    if (url or needed) and url is not None and (fault := web_url_fault(url)):
        yield reading.at(name), fault


def _actions(reading: Reading) -> Faults:
    actions = reading.values.get("actions")
    if actions is None:
        return
    for index, text in enumerate(actions):
        try:
            action_of(text)
        except ValueError as error:
            yield f"{reading.at('actions')}[{index}]", str(error)


def _measured(reading: Reading) -> Faults:
    metric: Metric = reading.values["metric"]
    scope: Scope = _value(reading, "scope")
    aggregate: Aggregate = _value(reading, "aggregate")
    if aggregate is Aggregate.LAST:
        if not is_own(metric, scope):
            more = "; or name an `aggregate` of its backends" if is_composed(metric, scope) else ""
            yield reading.at("scope"), f"has no {metric}; allowed: {_scopes(metric)}{more}"
    elif not is_composed(metric, scope):
        yield reading.at("aggregate"), f"cannot be made of {metric} for a {scope}; allowed: last"
    also = reading.values.get("only_while")
    if also is not None and scope_of_while(also.metric, scope) is None:
        yield reading.at("only_while"), f"is about {also.metric}, which a {scope} has no value of"


def _scopes(metric: Metric) -> str:
    return ", ".join(sorted(SCOPES[metric]))


def _reachable(reading: Reading) -> Faults:
    metric: Metric | None = reading.values.get("metric")
    if metric is None or reading.values.get("aggregate") is Aggregate.SUM:
        return
    most = largest(metric)
    for name in ("threshold", "clear_threshold"):
        value = reading.values.get(name)
        if value is not None and not 0.0 <= value <= most:
            allowed = "0 or more" if most == inf else f"0 to {most:g}"
            yield reading.at(name), f"is {value:g}, where {metric} never is; allowed: {allowed}"


def _clear_side(reading: Reading) -> Faults:
    clear = reading.values.get("clear_threshold")
    if clear is None or "operator" in reading.broken or "threshold" in reading.broken:
        return
    operator, threshold = _value(reading, "operator"), _value(reading, "threshold")
    if not may_clear_at(operator, threshold, clear):
        side = "at least" if operator in ("<", "<=") else "at most"
        yield (
            reading.at("clear_threshold"),
            f"would let go where the rule takes hold; allowed: {side} `threshold`",
        )


def _gpu(reading: Reading) -> Faults:
    yield from _url(reading, "url", needed=True)
    for index, label in enumerate(reading.values.get("labels", ())):
        name, equals, _ = label.partition("=")
        if not equals or not _LABEL_NAME.fullmatch(name.strip()):
            yield f"{reading.at('labels')}[{index}]", "is not a label; allowed: NAME=VALUE, such as gpu=0"
    for name in ("temperature", "memory_used", "memory_total", "utilisation"):
        series = reading.values.get(name)
        if series and not _SERIES_NAME.fullmatch(series):
            yield reading.at(name), "is not the name of a series; allowed: letters, digits, _ and :"
    if reading.values.get("memory_used") and not reading.values.get("memory_total"):
        yield reading.at("memory_used"), "stands without `memory_total`; allowed: both, or none"
