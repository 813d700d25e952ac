"""Which backends hold which prefix, as far as the gateway knows: it sent them there.

A hot part (`routing.hot_prefixes`) and a cold one (`routing.cold_prefixes`) share `max_prefixes` entries; the hot one has `hot_share` of them, and `share_out`
moves that with the traffic in steps of `STEP`. What the hot part has no room for goes on in the cold one.
Bound: `max_prefixes` entries, some 300 bytes for a hot one and 20 for a cold one.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import NamedTuple

from routing.cold_prefixes import ColdPrefixes
from routing.homes import Home
from routing.hot_prefixes import HotPrefix, HotPrefixes, Sent

STEP = 0.05
REFRESH_SECONDS = 0.5
"""A hot prefix that goes where it went last is not written down anew for so long."""
_SHOWN_PREFIXES = 20


class PrefixView(NamedTuple):
    fingerprint: int
    homes: tuple[int, ...]
    uses: int
    idle_seconds: float


class AffinityTable:
    def __init__(self, max_prefixes: int, hot_share: float) -> None:
        self.max_prefixes = max_prefixes
        self.hot_share = hot_share
        # A fifth to two fifths of all: the hot part never has less, and moving its share moves the second level only.
        self._slots = 1 << max(0, (max_prefixes // 5).bit_length())
        capacity = self._hot_capacity(hot_share)
        self.hot = HotPrefixes(self._slots, capacity)
        self.cold = ColdPrefixes(max_prefixes - capacity)

    def homes(self, fingerprint: int, now: float) -> Sequence[Sent]:
        found = self.hot.get(fingerprint, now)
        if found is not None:
            return found.homes
        sent = self.cold.get(fingerprint)
        return () if sent is None else (sent,)

    def is_hot(self, fingerprint: int, now: float) -> bool:
        return self.hot.get(fingerprint, now) is not None

    def known(self, hashes: Sequence[int], home: Home, now: float) -> int:
        """How many of these prefixes, from the first on, the home holds."""
        number = home.number
        for count in range(len(hashes), 0, -1):
            for sent, written in self.homes(hashes[count - 1], now):
                if sent == number and home.holds(written):
                    return count
        return 0

    def sent(self, hashes: Sequence[int], hot: int, home: Home, now: float) -> None:
        """A request goes to `home`; the first `hot` of its prefixes are hot."""
        number, written = home.number, home.written
        get, at, cold = self.hot.get, self.hot.at, self.cold
        lately = now - REFRESH_SECONDS
        for count, fingerprint in enumerate(hashes, 1):
            found = at(fingerprint)
            if found is not None and found.used_at > lately and found.homes[-1][0] == number:
                continue  # what is asked for all the time needs no word of each time
            found = get(fingerprint, now)
            if found is not None:
                found.use(number, written, now)
            elif count > hot:
                cold.put(fingerprint, number, written)
            else:
                before = cold.get(fingerprint)
                homes = (
                    [(number, written)]
                    if before is None or before[0] == number
                    else [before, (number, written)]
                )
                self._demote(self.hot.add(HotPrefix(fingerprint, homes, now)))

    def share_out(self, hot_share: float) -> None:
        if abs(hot_share - self.hot_share) < STEP:
            return
        self.hot_share = hot_share
        capacity = self._hot_capacity(hot_share)
        gone = self.hot.resize(capacity)
        self.cold = self.cold.resized(self.max_prefixes - capacity)
        for one in gone:
            self._demote(one)

    def _demote(self, gone: HotPrefix | None) -> None:
        if gone is not None:
            self.cold.put(gone.fingerprint, *gone.homes[-1])

    def top(self, now: float) -> list[PrefixView]:
        """The most used ones; looks at all that are hot: for an operator, not for a request."""
        return [
            PrefixView(
                one.fingerprint, tuple([number for number, _ in one.homes]), one.uses, now - one.used_at
            )
            for one in nlargest(_SHOWN_PREFIXES, self.hot, key=lambda one: one.uses)
        ]

    def _hot_capacity(self, hot_share: float) -> int:
        return min(max(int(self.max_prefixes * hot_share), self._slots), self.max_prefixes - 1)
