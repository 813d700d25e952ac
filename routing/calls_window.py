"""Calls, failures and slow calls of the last seconds, in a ring of buckets of one second each.

A bucket knows its second, so what is older than the span asked for is never counted, however long nothing was noted. The bucket that runs counts as one of the span.
Bound: `seconds` buckets, fixed at the start.
"""

from __future__ import annotations

from policies.circuit import Calls


class CallsWindow:
    __slots__ = ("_calls", "_failures", "_second", "_slow", "seconds")

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._second = [-1] * seconds
        """Which second each bucket is of; -1 for none."""
        self._calls = [0] * seconds
        self._failures = [0] * seconds
        self._slow = [0] * seconds

    def note(self, now: float, failed: bool = False, slow: bool = False) -> None:
        second = int(now)
        place = second % self.seconds
        if self._second[place] == second:
            self._calls[place] += 1
        else:
            self._second[place] = second
            self._calls[place] = 1
            self._failures[place] = self._slow[place] = 0
        if failed:
            self._failures[place] += 1
        if slow:
            self._slow[place] += 1

    def last(self, seconds: int, now: float) -> Calls:
        """Of the last `seconds`, at most what is kept."""
        newest = int(now)
        calls = failures = slow = 0
        for second in range(newest - min(seconds, self.seconds) + 1, newest + 1):
            place = second % self.seconds
            if self._second[place] == second:
                calls += self._calls[place]
                failures += self._failures[place]
                slow += self._slow[place]
        return Calls(calls, failures, slow)

    def forget(self) -> None:
        self._second = [-1] * self.seconds
