"""What became of the load: per business type, over the last `WINDOW_SECONDS` and over the whole run.

Latencies are counted per millisecond, so memory is bounded by the longest latency and not by the length of the run. A percentile is the
nearest rank, rounded up to the millisecond. `inside` counts answers within the target; its share is taken of everything that ended, so a
refused or failed request is outside.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum

WINDOW_SECONDS = 10


class Ending(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    """An error status before any answer."""
    FAILED = "failed"
    """No answer at all, or one that was broken off."""


@dataclass(slots=True)
class Span:
    """Counts of some stretch of time."""

    second: int = 0
    sent: int = 0
    inside: int = 0
    endings: Counter[Ending] = field(default_factory=Counter)
    latencies_ms: Counter[int] = field(default_factory=Counter)

    @property
    def ended(self) -> int:
        return self.endings.total()

    @property
    def inside_share(self) -> float | None:
        return self.inside / self.ended if self.ended else None

    def percentile_ms(self, share: float) -> int | None:
        rank = math.ceil(share * self.latencies_ms.total())
        for latency in sorted(self.latencies_ms):
            rank -= self.latencies_ms[latency]
            if rank <= 0:
                return latency
        return None

    def add(self, other: Span) -> None:
        self.sent += other.sent
        self.inside += other.inside
        self.endings.update(other.endings)
        self.latencies_ms.update(other.latencies_ms)


class TypeFigures:
    def __init__(self, target_ms: int) -> None:
        self._target_ms = target_ms
        self._slots: deque[Span] = deque(maxlen=WINDOW_SECONDS + 1)
        self.whole = Span()

    def sent(self, now: float) -> None:
        self.whole.sent += 1
        self._slot(now).sent += 1

    def ended(self, ending: Ending, latency_seconds: float, now: float) -> None:
        for span in (self.whole, self._slot(now)):
            span.endings[ending] += 1
            if ending is Ending.ANSWERED:
                latency_ms = math.ceil(latency_seconds * 1000)
                span.latencies_ms[latency_ms] += 1
                span.inside += latency_ms <= self._target_ms

    def recent(self, now: float) -> tuple[Span, float]:
        """The last seconds that are over, and the rate per second at which requests were sent in them."""
        this = math.floor(now)
        total = Span()
        seconds = 0
        for slot in self._slots:
            if this - WINDOW_SECONDS <= slot.second < this:
                total.add(slot)
                seconds = max(seconds, this - slot.second)
        return total, total.sent / seconds if seconds else 0.0

    def _slot(self, now: float) -> Span:
        second = math.floor(now)
        if not self._slots or self._slots[-1].second != second:
            self._slots.append(Span(second))
        return self._slots[-1]
