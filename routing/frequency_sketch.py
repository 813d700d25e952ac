"""How often a key was seen in the last `window_seconds`, in bounded memory whatever comes.

A count-min sketch (Cormode 2005) of two rows with conservative update (Estan 2002), twice: what was counted since the window began, and what in the one
before it. The estimate weighs the latter by the part of it that a sliding window still covers:
    seen = now + before * (1 - elapsed / window_seconds)
So counts decay without a walk over the counters; when a window ends its rows become those before, and new ones are zero.
Keys are 64-bit hashes; the two rows take their index from different halves of it.
Errors: never below what a sliding window of even arrivals would hold, above it where keys share counters in both rows: with n keys in a window of
`width` counters a key seen once passes for one seen five times in about (n/width)^10 / 10^4 of the cases for n < width. Counters stop at 255.
Memory: 4 * `width` bytes, touched as they are used.
"""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 255


class FrequencySketch:
    def __init__(self, width: int, window_seconds: float) -> None:
        """`width`: counters of a row, a power of two."""
        self.window_seconds = window_seconds
        self._mask = width - 1
        self._began = 0.0
        self._rows = self._empty()
        self._before = self._empty()

    def count(self, keys: Iterable[int], now: float) -> None:
        if now - self._began >= self.window_seconds:
            self._turn(now)
        mask = self._mask
        one, other = self._rows
        for key in keys:
            i, j = key & mask, (key >> 32) & mask
            a, b = one[i], other[j]
            # Only the counters that hold the least: the others have been counted up by other keys.
            if a < b:
                one[i] = a + 1
            elif b < a:
                other[j] = b + 1
            elif a < _MOST:
                one[i] = other[j] = a + 1

    def seen(self, key: int, now: float) -> float:
        elapsed = now - self._began
        if elapsed >= self.window_seconds:
            self._turn(now)
            elapsed = now - self._began
        i, j = key & self._mask, (key >> 32) & self._mask
        one, other = self._rows
        one_before, other_before = self._before
        before = min(one_before[i], other_before[j])
        return min(one[i], other[j]) + before * (1.0 - elapsed / self.window_seconds)

    def _turn(self, now: float) -> None:
        elapsed = now - self._began
        if elapsed < 2.0 * self.window_seconds:
            self._before, self._rows = self._rows, self._empty()
            self._began += self.window_seconds
        else:
            self._before, self._rows = self._empty(), self._empty()
            self._began = now

    def _empty(self) -> tuple[bytearray, bytearray]:
        return bytearray(self._mask + 1), bytearray(self._mask + 1)
