"""Calls, failures and slow calls of the last seconds, in a ring of buckets of one second each.

A bucket knows its second, so what is older than the span asked for is never counted, however long nothing was noted. The bucket that runs counts as one of the span.
Bound: `seconds` buckets, fixed at the start.
"""

from __future__ import annotations

from policies.circuit import Calls

_SECOND, _CALLS, _FAILURES, _SLOW = range(4)
_NEVER = -1_000_000


class CallsWindow:
    __slots__ = ("_buckets", "_newest", "seconds")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._buckets = [[_NEVER, 0, 0, 0] for _ in range(seconds)]
        self._newest = self._buckets[0]

    def note(self, now: float, failed: bool = False, slow: bool = False) -> None:
        second = int(now)
        bucket = self._newest
        if bucket[_SECOND] != second:
            bucket = self._newest = self._buckets[second % self.seconds]
            bucket[:] = second, 0, 0, 0
        bucket[_CALLS] += 1
        if failed:
            bucket[_FAILURES] += 1
        if slow:
            bucket[_SLOW] += 1

    def last(self, seconds: int, now: float) -> Calls:
        """Of the last `seconds`, at most what is kept."""
        oldest = int(now) - min(seconds, self.seconds)
        recent = [bucket for bucket in self._buckets if bucket[_SECOND] > oldest]
        return Calls(
            sum([bucket[_CALLS] for bucket in recent]),
            sum([bucket[_FAILURES] for bucket in recent]),
            sum([bucket[_SLOW] for bucket in recent]),
        )

    def forget(self) -> None:
        for bucket in self._buckets:
            bucket[_SECOND] = _NEVER
