"""The cold part of the affinity table: prefix -> the backend that it was sent to last, direct-mapped.

A prefix has one place by its fingerprint, and who comes there last has it: most of what is cold never comes again, and is not worth an order.
Nothing expires; a backend that restarted is no home any more (`routing.homes`).
Memory: 20 bytes for each of `capacity` places.
"""

from __future__ import annotations

from array import array

from routing.hot_prefixes import Sent

_KEY, _HOME, _WRITTEN = "Q", "I", "Q"


class ColdPrefixes:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._fingerprints = array(_KEY, bytes(8 * capacity))
        self._homes = array(_HOME, bytes(4 * capacity))
        self._written = array(_WRITTEN, bytes(8 * capacity))

    def get(self, fingerprint: int) -> Sent | None:
        place = fingerprint % self.capacity
        if self._fingerprints[place] != fingerprint or not self._homes[place]:
            return None
        return self._homes[place], self._written[place]

    def put(self, fingerprint: int, home: int, written: int) -> None:
        place = fingerprint % self.capacity
        if not self._homes[place]:
            self.used += 1
        self._fingerprints[place] = fingerprint
        self._homes[place] = home
        self._written[place] = written

    def resized(self, capacity: int) -> ColdPrefixes:
        """With all of this that still finds a place."""
        other = ColdPrefixes(capacity)
        for fingerprint, home, written in zip(self._fingerprints, self._homes, self._written, strict=True):
            if home:
                other.put(fingerprint, home, written)
        return other
