"""When a store that fails is left alone, and when it is tried again.

Closed: every call may go. It opens after `FAILURES_IN_A_ROW` calls that failed one after another, or when, of at least `MIN_CALLS` in the last second, half
failed. Open: no request's call goes; after `FIRST_OPEN_SECONDS`, doubled each time up to `MAX_OPEN_SECONDS` and lengthened by a jitter of at most a quarter,
one probe goes. A good probe closes it, a failed one opens it for the next pause. So a store that comes back is in use again within
1.25 * `MAX_OPEN_SECONDS` and the probe's own time.

A call that began before the breaker opened says nothing when it ends: only calls of the same `generation` count.
"""

from __future__ import annotations

FAILURES_IN_A_ROW = 3
MIN_CALLS = 5
FIRST_OPEN_SECONDS = 0.25
MAX_OPEN_SECONDS = 1.0
JITTER_SHARE = 0.25
_RATE_SECONDS = 1.0


class StoreBreaker:
    def __init__(self) -> None:
        self.is_open = False
        self.generation = 0
        self.opened = 0
        """Times that it opened anew, failed probes apart."""
        self._in_a_row = 0
        self._calls = self._failures = 0
        self._since = 0.0
        self._pause_seconds = FIRST_OPEN_SECONDS

    def succeeded(self, generation: int, now: float) -> None:
        """Of a request's call."""
        if generation == self.generation and not self.is_open:
            self._in_a_row = 0
            self._count(False, now)

    def failed(self, generation: int, now: float) -> bool:
        """Of a request's call. Whether it opened."""
        if generation != self.generation or self.is_open:
            return False
        self._in_a_row += 1
        self._count(True, now)
        many = self._calls >= MIN_CALLS and 2 * self._failures >= self._calls
        if self._in_a_row < FAILURES_IN_A_ROW and not many:
            return False
        self.is_open = True
        self.generation += 1
        self.opened += 1
        self._pause_seconds = FIRST_OPEN_SECONDS
        return True

    def pause_seconds(self, jitter: float) -> float:
        """Until the next probe; `jitter` is drawn from 0 to 1."""
        return self._pause_seconds * (1.0 + JITTER_SHARE * jitter)

    def probed(self, is_well: bool) -> None:
        if is_well:
            self.is_open = False
            self.generation += 1
            self._in_a_row = self._calls = self._failures = 0
        else:
            self._pause_seconds = min(2.0 * self._pause_seconds, MAX_OPEN_SECONDS)

    def _count(self, is_failure: bool, now: float) -> None:
        if now - self._since > _RATE_SECONDS:
            self._since, self._calls, self._failures = now, 0, 0
        self._calls += 1
        self._failures += is_failure
