"""Which backends hold which prefix, as far as the gateway knows: it sent them there.

A hot part (`routing.hot_prefixes`) and a cold one (`routing.cold_prefixes`) share `max_prefixes` entries. A prefix has one entry, in one of them:
- it comes to the cold part with its last home, and stays until another one takes its place: no time makes it forgotten;
- when it is sent as a hot one its entry moves to the hot part, with its home, and its place in the cold one is empty;
- there it stays, though it be no longer as frequent, while it is used within `hot.lifetime_seconds`. After that it is forgotten: nothing of it goes on elsewhere;
- when the hot part has no room for it before that, it goes on in the cold part, with the home of its last use.
The hot part has `hot_share` of the entries, but never less than its first level: a fifth to two fifths of all, by the size. An entry there is worth more than one for
what may never come again, and another size of the first level would move all that it holds. So hot shares below that move nothing here.
`share_out` moves the share with the traffic in steps of `STEP`; the entries follow, `MOVED_AT_ONCE` with each request that is sent: 0.1 ms of each, whatever the size, for some
200 requests a step at the default one.
Bound: `max_prefixes` entries of some 20 bytes (cold), 80 (hot, first level) or 350 (hot, second level): at the default size 24 MB, and 29 MB at a hot share of 0.95.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from routing.cold_prefixes import ColdPrefixes
from routing.homes import Home
from routing.hot_prefixes import HotPrefixes, Sent

STEP = 0.05
MOVED_AT_ONCE = 32
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
        slots = 1 << max(0, (max_prefixes // 5).bit_length())
        self._hot_capacity = self._capacity(hot_share, slots)
        self.hot = HotPrefixes(slots, self._hot_capacity)
        self.cold = ColdPrefixes(max_prefixes - self._hot_capacity)

    def homes(self, fingerprint: int, now: float) -> Sequence[Sent]:
        row = self.hot.find(fingerprint, now)
        if row:
            return self.hot.homes(row)
        sent = self.cold.get(fingerprint)
        return () if sent is None else (sent,)

    def is_hot(self, fingerprint: int, now: float) -> bool:
        return self.hot.find(fingerprint, now) != 0

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
        if self.hot.capacity != self._hot_capacity:
            self._move(now)
        number, written = home.number, home.written
        use, cold = self.hot.use, self.cold
        for count, fingerprint in enumerate(hashes, 1):
            if use(fingerprint, number, written, now):
                continue
            if count > hot:
                cold.put(fingerprint, number, written)
            else:
                before = cold.take(fingerprint)
                homes = [(number, written)]
                if before is not None and before[0] != number:
                    homes.insert(0, before)
                gone = self.hot.add(fingerprint, homes, now)
                if gone is not None:
                    cold.put(*gone)

    def share_out(self, hot_share: float) -> None:
        if abs(hot_share - self.hot_share) >= STEP:
            self.hot_share = hot_share
            self._hot_capacity = self._capacity(hot_share, self.hot.slots)

    def top(self, now: float) -> list[PrefixView]:
        """The most used ones: for an operator, not for a request."""
        return [
            PrefixView(
                one.fingerprint, tuple([number for number, _ in one.homes]), one.uses, now - one.used_at
            )
            for one in self.hot.most_used(_SHOWN_PREFIXES)
        ]

    def _move(self, now: float) -> None:
        """Of the entries that one part has to give to the other, the next few."""
        before = self.hot.capacity
        capacity = min(max(self._hot_capacity, before - MOVED_AT_ONCE), before + MOVED_AT_ONCE)
        self.cold.resize(self.max_prefixes - capacity)
        for one in self.hot.resize(capacity, now):
            self.cold.put(*one)

    def _capacity(self, hot_share: float, slots: int) -> int:
        return min(max(int(self.max_prefixes * hot_share), slots), self.max_prefixes - 1)
