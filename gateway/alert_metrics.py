"""Alerts that leave, at `/metrics`.

| name | type | labels | meaning |
|---|---|---|---|
| alerts_total | counter | receiver outcome | changes `sent` or `dropped`, alerts `repeated` to an Alertmanager, and calls that `failed`; receivers by their place in the configuration, or `standby` |
| alerts_waiting | gauge | | not delivered yet |
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.alerts import Alerts


class AlertsNow(Collector):
    def __init__(self, alerts: Alerts) -> None:
        self._alerts = alerts

    def collect(self) -> Iterable[Metric]:
        told = CounterMetricFamily("headrace_alerts", "Alerts", labels=("receiver", "outcome"))
        for (receiver, outcome), count in self._alerts.outcomes.items():
            told.add_metric((receiver, outcome), count)
        yield told
        yield GaugeMetricFamily("headrace_alerts_waiting", "Not delivered", value=self._alerts.waiting)
