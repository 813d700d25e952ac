"""The settings of `monitoring`, as those of `gateway.settings`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringSettings:
    """Spans of time that the three levels of metrics are about, see `gateway.monitoring_metrics`."""

    primary_seconds: float = bounded(60, 0.1, 86_400)
    """Cache hits, batching, memory."""
    business_seconds: float = bounded(300, 0.1, 86_400)
    """Intent accuracy, length of dialogues, abnormal requests."""
    cost_seconds: float = bounded(3600, 0.1, 604_800)
    """GPU time, useful throughput, losses, cost."""
