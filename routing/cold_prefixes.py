"""The cold part of the affinity table: prefix -> the backend that it was sent to last, direct-mapped.

A prefix has one place by its fingerprint, and who comes there last has it: most of what is cold never comes again, and is not worth an order.
Nothing expires; a backend that restarted is no home any more (`routing.homes`).
Memory: 12 bytes for each of `capacity` places.
"""

from __future__ import annotations

from array import array

_KEY, _HOME = "Q", "I"


class ColdPrefixes:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self._fingerprints = array(_KEY, bytes(8 * capacity))
        self._homes = array(_HOME, bytes(4 * capacity))

    def get(self, fingerprint: int) -> int:
        """A number of `routing.homes`, 0 where it is not known."""
        place = fingerprint % self.capacity
        return self._homes[place] if self._fingerprints[place] == fingerprint else 0

    def put(self, fingerprint: int, home: int) -> None:
        place = fingerprint % self.capacity
        if not self._homes[place]:
            self.used += 1
        self._fingerprints[place] = fingerprint
        self._homes[place] = home

    def resized(self, capacity: int) -> ColdPrefixes:
        """With all of this that still finds a place."""
        other = ColdPrefixes(capacity)
        for fingerprint, home in zip(self._fingerprints, self._homes, strict=True):
            if home:
                other.put(fingerprint, home)
        return other
