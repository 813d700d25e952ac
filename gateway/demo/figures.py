"""What became of the load: per row of the display, over the last `WINDOW_SECONDS`, by second, and over the whole run.

Times are seconds since the load began. A request belongs to the second in which it was due, whenever it ended. Times to the first byte are counted
per millisecond, so memory is bounded by the longest of them and not by the length of the run. A percentile is the nearest rank, rounded up to
the millisecond. `inside` counts whole answers whose first byte came within the target; its share is taken of everything that ended, so
a refused or failed request is outside. The seconds of the last `HISTORY_SECONDS` are kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

WINDOW_SECONDS = 5
HISTORY_SECONDS = 240


class Ending(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    """An error status before any answer."""
    FAILED = "failed"
    """No answer at all, or one that was broken off."""


@dataclass(slots=True)
class Span:
    """Counts of some stretch of time."""

    sent: int = 0
    inside: int = 0
    endings: Counter[Ending] = field(default_factory=Counter)
    first_bytes_ms: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Of the refused ones, as `x-headrace-reason` gave them."""
    retry_after: Counter[int] = field(default_factory=Counter)
    """Seconds that refused ones were told to stay away."""

    @property
    def ended(self) -> int:
        return self.endings.total()

    @property
    def inside_share(self) -> float | None:
        return self.inside / self.ended if self.ended else None

    def percentile_ms(self, share: float) -> int | None:
        rank = math.ceil(share * self.first_bytes_ms.total())
        for first_byte in sorted(self.first_bytes_ms):
            rank -= self.first_bytes_ms[first_byte]
            if rank <= 0:
                return first_byte
        return None

    def add(self, other: Span) -> None:
        self.sent += other.sent
        self.inside += other.inside
        self.endings.update(other.endings)
        self.first_bytes_ms.update(other.first_bytes_ms)
        self.reasons.update(other.reasons)
        self.retry_after.update(other.retry_after)


class RowFigures:
    def __init__(self) -> None:
        self.whole = Span()
        self._seconds: dict[int, Span] = {}

    @property
    def by_second(self) -> Mapping[int, Span]:
        return self._seconds

    def sent(self, due: float) -> None:
        second = math.floor(due)
        if second not in self._seconds:
            self._seconds[second] = Span()
            while len(self._seconds) > HISTORY_SECONDS:
                del self._seconds[next(iter(self._seconds))]
        for span in self._spans(due):
            span.sent += 1

    def answered(self, due: float, first_byte_seconds: float, target_ms: int) -> None:
        first_byte_ms = math.ceil(round(first_byte_seconds * 1000, 3))
        for span in self._spans(due):
            span.endings[Ending.ANSWERED] += 1
            span.first_bytes_ms[first_byte_ms] += 1
            span.inside += first_byte_ms <= target_ms

    def refused(self, due: float, reason: str, retry_after_seconds: int | None) -> None:
        for span in self._spans(due):
            span.endings[Ending.REFUSED] += 1
            span.reasons[reason] += 1
            if retry_after_seconds is not None:
                span.retry_after[retry_after_seconds] += 1

    def failed(self, due: float) -> None:
        for span in self._spans(due):
            span.endings[Ending.FAILED] += 1

    def recent(self, now: float) -> Span:
        """The last seconds that are over."""
        this = math.floor(now)
        return self.within(range(this - WINDOW_SECONDS, this))

    def within(self, seconds: Iterable[int]) -> Span:
        total = Span()
        for second in seconds:
            if second in self._seconds:
                total.add(self._seconds[second])
        return total

    def _spans(self, due: float) -> list[Span]:
        own = self._seconds.get(math.floor(due))
        return [self.whole] if own is None else [self.whole, own]
