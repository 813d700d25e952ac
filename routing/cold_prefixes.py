"""The cold part of the affinity table: prefix -> the backend that it was sent to last, direct-mapped.

A prefix has one place by its fingerprint, and who comes there last has it: most of what is cold never comes again, and is not worth an order.
Nothing expires; a backend that restarted is no home any more (`routing.homes`).
The place is the low bits of the fingerprint, one bit less where that is beyond the last place (linear hashing): so one place more or less moves one prefix, and
the others stay where they are.
Memory: 20 bytes for each of `capacity` places, up to 23 after it has grown.
"""

from __future__ import annotations

from array import array

from routing.hot_prefixes import Sent

_KEY, _HOME, _WRITTEN = "Q", "I", "Q"


class ColdPrefixes:
    def __init__(self, capacity: int) -> None:
        """`capacity` at least 1."""
        self.used = 0
        self._fingerprints = array(_KEY, bytes(8 * capacity))
        self._homes = array(_HOME, bytes(4 * capacity))
        self._written = array(_WRITTEN, bytes(8 * capacity))
        self._mask = (1 << capacity.bit_length()) - 1

    @property
    def capacity(self) -> int:
        return len(self._homes)

    def get(self, fingerprint: int) -> Sent | None:
        homes = self._homes
        place = (
            fingerprint & self._mask
        )  # as `_place`, without a call: each boundary of each prompt comes here
        if place >= len(homes):
            place &= self._mask >> 1
        if self._fingerprints[place] != fingerprint or not homes[place]:
            return None
        return homes[place], self._written[place]

    def put(self, fingerprint: int, home: int, written: int) -> None:
        place = self._place(fingerprint)
        if not self._homes[place]:
            self.used += 1
        self._fingerprints[place] = fingerprint
        self._homes[place] = home
        self._written[place] = written

    def take(self, fingerprint: int) -> Sent | None:
        """What `get` finds; it is known here no more."""
        found = self.get(fingerprint)
        if found is not None:
            self._homes[self._place(fingerprint)] = 0
            self.used -= 1
        return found

    def resize(self, capacity: int) -> None:
        """Takes a microsecond for each place more or less, whatever the size. Whose place is gone has the one that is left for it, if nobody is there."""
        while len(self._homes) < capacity:
            self._grow()
        while len(self._homes) > capacity:
            self._shrink()

    def _place(self, fingerprint: int) -> int:
        place = fingerprint & self._mask
        return place if place < len(self._homes) else place & self._mask >> 1

    def _grow(self) -> None:
        place = len(self._homes)
        before = place & self._mask >> 1
        moves = self._homes[before] and self._fingerprints[before] & self._mask == place
        self._fingerprints.append(self._fingerprints[before] if moves else 0)
        self._homes.append(self._homes[before] if moves else 0)
        self._written.append(self._written[before] if moves else 0)
        if moves:
            self._homes[before] = 0
        if place == self._mask:
            self._mask = 2 * self._mask + 1

    def _shrink(self) -> None:
        fingerprint, home, written = self._fingerprints.pop(), self._homes.pop(), self._written.pop()
        if len(self._homes) <= self._mask >> 1:
            self._mask >>= 1
        if home:
            self.used -= 1
            if not self._homes[self._place(fingerprint)]:
                self.put(fingerprint, home, written)
