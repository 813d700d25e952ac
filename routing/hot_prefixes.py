"""The hot part of the affinity table: prefix -> the backends that hold it, least recently used first out, and nothing older than its lifetime.

Two levels. The first is a slot for each prefix by the low bits of its fingerprint, found without a search and used without keeping an order. A prefix whose
slot is another's goes to the second level, an exact LRU. When that is full its least recently used goes (the caller may keep it elsewhere). A slot is free
again when its prefix was not used for `lifetime_seconds`; the next to collide takes it.
Bounds: `capacity` prefixes, with at most `MAX_HOMES` backends each, the last that it was sent to.
Limit: what lies in a slot is not pushed out before its lifetime is over, so within that time the order of eviction is that of the second level alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf

MAX_HOMES = 4

Sent = tuple[int, int]
"""A home's number, and how much had been written there."""


class HotPrefix:
    """`homes`: numbers of `routing.homes`, each with its `written` at the last use there, the latest last. `uses` count since it became hot, several within half a second as one."""

    __slots__ = ("fingerprint", "homes", "used_at", "uses")

    def __init__(self, fingerprint: int, homes: list[Sent], now: float) -> None:
        self.fingerprint = fingerprint
        self.homes = homes
        self.used_at = now
        self.uses = 1

    def use(self, number: int, written: int, now: float) -> None:
        """A request with this prefix goes to this home."""
        self.used_at = now
        self.uses += 1
        homes = self.homes
        for place, sent in enumerate(homes):
            if sent[0] == number:
                homes[place] = number, written
                return
        homes.append((number, written))
        if len(homes) > MAX_HOMES:
            del homes[0]


class HotPrefixes:
    def __init__(self, slots: int, capacity: int) -> None:
        """`slots`, a power of two, of the first level; the second has the rest of `capacity`."""
        self.lifetime_seconds = inf
        self._slots: list[HotPrefix | None] = [None] * slots
        self._mask = slots - 1
        self._second: OrderedDict[int, HotPrefix] = OrderedDict()
        self._in_slots = 0
        self._capacity = capacity

    def __len__(self) -> int:
        """What has expired and not been asked for since counts."""
        return self._in_slots + len(self._second)

    def __iter__(self) -> Iterator[HotPrefix]:
        yield from (one for one in self._slots if one is not None)
        yield from self._second.values()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def collided(self) -> int:
        """In the second level."""
        return len(self._second)

    def at(self, fingerprint: int) -> HotPrefix | None:
        """In the first level, expired or not."""
        found = self._slots[fingerprint & self._mask]
        return found if found is not None and found.fingerprint == fingerprint else None

    def get(self, fingerprint: int, now: float) -> HotPrefix | None:
        index = fingerprint & self._mask
        found = self._slots[index]
        if found is not None and found.fingerprint == fingerprint:
            if now - found.used_at <= self.lifetime_seconds:
                return found
            self._slots[index] = None
            self._in_slots -= 1
            return None
        if not self._second or (found := self._second.get(fingerprint)) is None:
            return None
        if now - found.used_at <= self.lifetime_seconds:
            self._second.move_to_end(fingerprint)
            return found
        del self._second[fingerprint]
        return None

    def add(self, prefix: HotPrefix) -> HotPrefix | None:
        """One that `get` does not find; whoever had to go for it."""
        index = prefix.fingerprint & self._mask
        holder = self._slots[index]
        if holder is None:
            self._in_slots += 1
            self._slots[index] = prefix
            return None
        if prefix.used_at - holder.used_at > self.lifetime_seconds:
            self._slots[index] = prefix
            return None
        self._second[prefix.fingerprint] = prefix
        return self._overflow()

    def resize(self, capacity: int) -> list[HotPrefix]:
        """Those that find no room any more."""
        self._capacity = capacity
        gone = []
        while (one := self._overflow()) is not None:
            gone.append(one)
        return gone

    def _overflow(self) -> HotPrefix | None:
        if len(self._second) <= self._capacity - len(self._slots):
            return None
        return self._second.popitem(last=False)[1]
