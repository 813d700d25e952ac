"""The hot part of the affinity table: prefix -> the backends that hold it, least recently used first out, and nothing older than its lifetime.

Two levels. The first is a slot for each prefix by the low bits of its fingerprint, found without a search and used without keeping an order. A prefix whose
slot is another's goes to the second level, an exact LRU. When that is full its least recently used goes (the caller may keep it elsewhere), unless it has
expired: then it is forgotten. A slot is free again when its prefix was not used for `lifetime_seconds`; the next to collide takes it.
Bounds: `capacity` prefixes, with at most `MAX_HOMES` backends each.
Memory: a prefix is a row of numbers in arrays, some 80 bytes however many homes it has, and in the second level some 270 more for its place in the order. Rows are
made when needed, kept and used again: as many as there ever were prefixes at once, and one.
Limit: what lies in a slot is not pushed out before its lifetime is over, so within that time the order of eviction is that of the second level alone.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import nlargest
from math import inf
from typing import NamedTuple

MAX_HOMES = 4
REFRESH_SECONDS = 0.5
"""A prefix that goes where it went last is not written down anew for so long."""
_CHUNK = 256

Sent = tuple[int, int]
"""A home's number, and how much had been written there."""


class Gone(NamedTuple):
    """A prefix that had to go, and where it was sent last."""

    fingerprint: int
    number: int
    written: int


class HotPrefix(NamedTuple):
    """`homes`: numbers of `routing.homes`, in the order in which they came to it, each with its `written` at the last use there. `uses` count since it became hot,
    several at the same home within half a second as one, the first of them."""

    fingerprint: int
    homes: Sequence[Sent]
    uses: int
    used_at: float


class HotPrefixes:
    """A row is a number above 0, good until the next `add`, `find` or `resize`; 0 is none."""

    def __init__(self, slots: int, capacity: int) -> None:
        """`slots`, a power of two, of the first level; the second has the rest of `capacity`."""
        self.lifetime_seconds = inf
        """After the last use, or `REFRESH_SECONDS` less."""
        self._slots = array("I", bytes(4 * slots))
        self._mask = slots - 1
        self._second: OrderedDict[int, int] = OrderedDict()
        self._in_slots = 0
        self._capacity = capacity
        self._fingerprints = array("Q", [0])
        self._used_at = array("d", [0.0])
        self._uses = array("Q", [0])
        self._last = array("I", [0])
        self._homes = array("I", [0] * MAX_HOMES)
        self._written = array("Q", [0] * MAX_HOMES)
        self._free = array("I")

    def __len__(self) -> int:
        """What has expired and not been asked for since counts."""
        return self._in_slots + len(self._second)

    def __iter__(self) -> Iterator[HotPrefix]:
        yield from (self.shown(row) for row in self._slots if row)
        yield from map(self.shown, self._second.values())

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def slots(self) -> int:
        """The least that the capacity may be."""
        return len(self._slots)

    @property
    def collided(self) -> int:
        """In the second level."""
        return len(self._second)

    def find(self, fingerprint: int, now: float) -> int:
        """Its row. One that has expired is forgotten."""
        slot = fingerprint & self._mask
        row = self._slots[slot]
        if row and self._fingerprints[row] == fingerprint:
            if now - self._used_at[row] <= self.lifetime_seconds:
                return row
            self._slots[slot] = 0
            self._in_slots -= 1
            self._give_back(row)
            return 0
        if not self._second or (row := self._second.get(fingerprint, 0)) == 0:
            return 0
        if now - self._used_at[row] <= self.lifetime_seconds:
            self._second.move_to_end(fingerprint)
            return row
        del self._second[fingerprint]
        self._give_back(row)
        return 0

    def homes(self, row: int) -> Sequence[Sent]:
        numbers, written = self._homes, self._written
        first = row * MAX_HOMES
        found = [(numbers[first], written[first])]
        if not numbers[first + 1]:
            return found
        for place in range(first + 1, first + MAX_HOMES):
            if not (number := numbers[place]):
                break
            found.append((number, written[place]))
        return found

    def shown(self, row: int) -> HotPrefix:
        return HotPrefix(self._fingerprints[row], self.homes(row), self._uses[row], self._used_at[row])

    def use(self, fingerprint: int, number: int, written: int, now: float) -> bool:
        """A request with this prefix goes to this home; False where the prefix is not found. Of more than `MAX_HOMES` the one that came first goes, or the second
        where the request before went to the first."""
        row = self.find(fingerprint, now)
        if not row:
            return False
        last = self._last[row]
        if last == number and now - self._used_at[row] < REFRESH_SECONDS:
            return True  # what is asked for all the time needs no word of each time
        self._used_at[row] = now
        self._uses[row] += 1
        self._last[row] = number
        homes = self._homes
        first = row * MAX_HOMES
        for place in range(first, first + MAX_HOMES):
            if homes[place] == number or not homes[place]:
                break
        else:
            goes = first + (homes[first] == last)
            homes[goes:place] = homes[goes + 1 : place + 1]
            self._written[goes:place] = self._written[goes + 1 : place + 1]
        homes[place] = number
        self._written[place] = written
        return True

    def add(self, fingerprint: int, homes: Sequence[Sent], now: float) -> Gone | None:
        """One that `find` does not find, with its homes, the last of them that of this use; whoever had to go for it."""
        row = self._row(fingerprint, homes, now)
        slot = fingerprint & self._mask
        holder = self._slots[slot]
        if not holder:
            self._in_slots += 1
        elif now - self._used_at[holder] <= self.lifetime_seconds:
            self._second[fingerprint] = row
            return self._overflow(now)
        else:
            self._give_back(holder)
        self._slots[slot] = row
        return None

    def resize(self, capacity: int, now: float) -> list[Gone]:
        """Those that find no room any more."""
        self._capacity = capacity
        gone = []
        while len(self._second) > self._capacity - len(self._slots):
            if (one := self._overflow(now)) is not None:
                gone.append(one)
        return gone

    def most_used(self, count: int) -> list[HotPrefix]:
        """Some 20 ns for each prefix: they are among those of the chunks with the highest counts."""
        uses = self._uses
        begins = range(0, len(uses), _CHUNK)
        chunks = nlargest(count, begins, key=lambda begin: max(uses[begin : begin + _CHUNK]))
        rows = [row for begin in chunks for row in range(begin, min(begin + _CHUNK, len(uses))) if uses[row]]
        return [self.shown(row) for row in nlargest(count, rows, key=uses.__getitem__)]

    def _row(self, fingerprint: int, homes: Sequence[Sent], now: float) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._uses)
            for column in (self._fingerprints, self._uses, self._last):
                column.append(0)
            self._used_at.append(0.0)
            for _ in range(MAX_HOMES):
                self._homes.append(0)
                self._written.append(0)
        self._fingerprints[row] = fingerprint
        self._used_at[row] = now
        self._uses[row] = 1
        self._last[row] = homes[-1][0]
        for place in range(MAX_HOMES):
            number, written = homes[place] if place < len(homes) else (0, 0)
            self._homes[row * MAX_HOMES + place] = number
            self._written[row * MAX_HOMES + place] = written
        return row

    def _give_back(self, row: int) -> None:
        self._uses[row] = 0
        self._free.append(row)

    def _overflow(self, now: float) -> Gone | None:
        if len(self._second) <= self._capacity - len(self._slots):
            return None
        fingerprint, row = self._second.popitem(last=False)
        self._give_back(row)
        if now - self._used_at[row] > self.lifetime_seconds:
            return None
        number = self._last[row]
        return Gone(fingerprint, number, dict(self.homes(row))[number])
