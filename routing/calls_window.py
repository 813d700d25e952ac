"""Calls, failures and slow calls of the last seconds, in buckets of one second each.

What is older than the span asked for is never counted, however long nothing was noted. The bucket that runs counts as one of the span.
Of the whole window the sums are kept, so they cost the same however long it is; of a shorter span its buckets are added up.
Bound: `seconds` buckets; only seconds in which something was noted have one.
"""

from __future__ import annotations

from collections import deque

from policies.circuit import Calls

_SECOND, _CALLS, _FAILURES, _SLOW = range(4)


class CallsWindow:
    __slots__ = ("_buckets", "_calls", "_failures", "_slow", "seconds")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._buckets: deque[list[int]] = deque()
        """The newest last."""
        self._calls = self._failures = self._slow = 0

    def note(self, now: float, failed: bool = False, slow: bool = False) -> None:
        second = int(now)
        buckets = self._buckets
        if not buckets or buckets[-1][_SECOND] < second:
            self._drop_until(second - self.seconds)
            buckets.append([second, 0, 0, 0])
        bucket = buckets[-1]
        bucket[_CALLS] += 1
        self._calls += 1
        if failed:
            bucket[_FAILURES] += 1
            self._failures += 1
        if slow:
            bucket[_SLOW] += 1
            self._slow += 1

    def last(self, seconds: int, now: float) -> Calls:
        """Of the last `seconds`, at most what is kept."""
        self._drop_until(int(now) - self.seconds)
        if seconds >= self.seconds:
            return Calls(self._calls, self._failures, self._slow)
        oldest = int(now) - seconds
        calls = failures = slow = 0
        for bucket in reversed(self._buckets):
            if bucket[_SECOND] <= oldest:
                break
            calls += bucket[_CALLS]
            failures += bucket[_FAILURES]
            slow += bucket[_SLOW]
        return Calls(calls, failures, slow)

    def forget(self) -> None:
        self._buckets.clear()
        self._calls = self._failures = self._slow = 0

    def _drop_until(self, second: int) -> None:
        buckets = self._buckets
        while buckets and buckets[0][_SECOND] <= second:
            _, calls, failures, slow = buckets.popleft()
            self._calls -= calls
            self._failures -= failures
            self._slow -= slow
