"""What is known of the GPUs of one backend at one moment."""

from __future__ import annotations

from typing import NamedTuple


class GpuReport(NamedTuple):
    """Over all GPUs of a backend. None is what was not told, never zero."""

    temperature_celsius: float | None = None
    """Of the hottest."""
    memory_used_ratio: float | None = None
    """0 to 1, of the fullest."""
    utilisation_ratio: float | None = None
    """0 to 1, their mean."""


NO_GPU = GpuReport()
