"""Which backends hold which prefix, as far as the gateway knows: it sent them there.

A hot part (`routing.hot_prefixes`) and a cold one (`routing.cold_prefixes`) share `max_prefixes` entries; the hot one has `hot_share` of them, and `share_out`
moves that with the traffic in steps of `STEP`. What the hot part has no room for goes on in the cold one.
Bound: `max_prefixes` entries, some 150 bytes for a hot one and 12 for a cold one.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import NamedTuple

from routing.cold_prefixes import ColdPrefixes
from routing.hot_prefixes import HotPrefix, HotPrefixes

STEP = 0.05
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

    def homes(self, fingerprint: int, now: float) -> Sequence[int]:
        found = self.hot.get(fingerprint, now)
        if found is not None:
            return found.homes
        home = self.cold.get(fingerprint)
        return (home,) if home else ()

    def is_hot(self, fingerprint: int, now: float) -> bool:
        return self.hot.get(fingerprint, now) is not None

    def sent(self, hashes: Sequence[int], hot: int, home: int, now: float) -> int:
        """A request goes to `home`; the first `hot` of its prefixes are hot. How many of them were known to be there."""
        known = 0
        get, cold = self.hot.get, self.cold
        for count, fingerprint in enumerate(hashes, 1):
            found = get(fingerprint, now)
            if found is not None:
                if found.use(home, now):
                    known = count
                continue
            before = cold.get(fingerprint)
            if before == home:
                known = count
            if count <= hot:
                homes = [home] if before in (0, home) else [before, home]
                gone = self.hot.add(HotPrefix(fingerprint, homes, now))
                if gone is not None:
                    cold.put(gone.fingerprint, gone.homes[-1])
            elif before != home:
                cold.put(fingerprint, home)
        return known

    def share_out(self, hot_share: float) -> None:
        if abs(hot_share - self.hot_share) < STEP:
            return
        self.hot_share = hot_share
        capacity = self._hot_capacity(hot_share)
        gone = self.hot.resize(capacity)
        self.cold = self.cold.resized(self.max_prefixes - capacity)
        for one in gone:
            self.cold.put(one.fingerprint, one.homes[-1])

    def top(self, now: float) -> list[PrefixView]:
        """The most used ones; looks at all that are hot: for an operator, not for a request."""
        return [
            PrefixView(one.fingerprint, tuple(one.homes), one.uses, now - one.used_at)
            for one in nlargest(_SHOWN_PREFIXES, self.hot, key=lambda one: one.uses)
        ]

    def _hot_capacity(self, hot_share: float) -> int:
        return min(max(int(self.max_prefixes * hot_share), self._slots), self.max_prefixes - 1)
