"""The settings of a backend's `gpu`, as those of `gateway.settings`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """Where the state of a backend's GPUs is told, in Prometheus' text format: a DCGM exporter, nvidia_gpu_exporter, or any page with such series.

    Without names those of the two exporters are looked for.
    """

    url: str
    labels: tuple[str, ...] = ()
    """`name=value` of the series that are this backend's; of several values of one name any. None takes all series of the page."""
    interval_seconds: float = bounded(1, 0.05, 3600)
    """Time between two readings, or up to a tenth less."""
    timeout_seconds: float = bounded(2, 0.05, 600)
    """Of a whole reading."""
    stale_seconds: float = bounded(10, 0.1, 86_400)
    """A number that was asked for longer ago, or whose line says an older time, is unknown."""
    temperature: str = ""
    """Name of the series in degrees Celsius."""
    memory_used: str = ""
    memory_total: str = ""
    """Both in the same unit."""
    utilisation: str = ""
    """In percent, or 0 to 1 where the name ends in `ratio`."""
