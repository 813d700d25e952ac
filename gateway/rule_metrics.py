"""Degradation rules at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| rule_active | gauge | rule scope subject severity | 1 while it acts; subject is a backend, a pool, or empty for the fleet |
| rule_value | gauge | rule scope subject | its metric; no series where it is not known |
| rule_transitions_total | counter | rule state | changes to `active` and `inactive` |
| rule_usable | gauge | rule | 0 where its metric is not known of any subject |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from routing.degradation import Degradation


class RulesNow(Collector):
    """Read off the live objects at a scrape."""

    def __init__(self, degradation: Callable[[], Degradation]) -> None:
        self._degradation = degradation

    def describe(self) -> Iterable[Metric]:
        return ()  # the live objects do not exist yet when this is registered

    def collect(self) -> Iterable[Metric]:
        degradation = self._degradation()
        active = GaugeMetricFamily(
            "headrace_rule_active", "1 while it acts", labels=("rule", "scope", "subject", "severity")
        )
        value = GaugeMetricFamily("headrace_rule_value", "Its metric", labels=("rule", "scope", "subject"))
        for one in degradation:
            rule = one.rule
            active.add_metric((rule.name, rule.scope, one.subject, rule.severity), float(one.is_active))
            if one.value is not None:
                value.add_metric((rule.name, rule.scope, one.subject), one.value)
        turns = CounterMetricFamily("headrace_rule_transitions", "Changes of rules", labels=("rule", "state"))
        usable = GaugeMetricFamily(
            "headrace_rule_usable", "0 where its metric is not known", labels=("rule",)
        )
        for name in degradation.rules:
            for is_active, state in ((True, "active"), (False, "inactive")):
                turns.add_metric((name, state), degradation.transitions[name, is_active])
            usable.add_metric((name,), float(name in degradation.known))
        yield from (active, value, turns, usable)
