"""One measured figure with its bar, and the bars themselves. A bar is the most a figure may be; figures without one inform."""

from __future__ import annotations

from dataclasses import dataclass

CPU_OVER_SMG = 1.0
CPU_OVER_NGINX = 6.0
CHUNK_OVER_SMG = 1.1
CHUNK_OVER_NGINX = 2.0
ADDED_P50_MS = 1.0
ADDED_P99_MS = 5.0
ADDED_FIRST_BYTE_P99_MS = 3.0
ADDED_GAP_P99_MS = 5.0
ADDED_GAP_P99_WITH_LARGE_MS = 10.0
REST_MB = 80.0
AFTER_MB = 120.0
SLOPE_BYTES_PER_REQUEST = 4.0
"""The smallest Python object is 16 bytes: even one kept in every fourth request would show."""
SLOPE_LEAST_REQUESTS = 200_000
"""Below this many requests the allocator's steps hide the slope, and no bar is set on it."""
STREAM_KB = 60.0
DECISION_US = 25.0
LARGE_DECISION_US = 40.0
FINGERPRINTS_US = 15.0
LONG_FINGERPRINTS_US = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    topic: str
    name: str
    value: float
    unit: str
    bar: float | None = None
    detail: str = ""
    rounds: tuple[float, ...] = ()

    @property
    def missed(self) -> bool:
        return self.bar is not None and not self.value <= self.bar
