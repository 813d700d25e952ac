"""Numbers for backends in the affinity table. A backend whose engine restarted gets a new one, and what was known of it is forgotten at once.

Bound: one number per backend that has been sent something; those of retired backends go when the fleet is configured.
"""

from __future__ import annotations

from collections.abc import Iterable

from routing.fleet import Backend


class Home:
    """A backend since its engine's last start. `trust`: what the engine's counts say of the guesses made about its cache, 0 to 1."""

    __slots__ = ("backend", "generation", "number", "trust")

    def __init__(self, backend: Backend, number: int) -> None:
        self.backend = backend
        self.generation = backend.generation
        self.number = number
        self.trust = 1.0


class Homes:
    def __init__(self) -> None:
        self._last = 0
        self._of: dict[Backend, Home] = {}
        self._by_number: dict[int, Home] = {}

    def of(self, backend: Backend) -> Home:
        known = self._of.get(backend)
        if known is not None:
            if known.generation == backend.generation:
                return known
            del self._by_number[known.number]
        self._last += 1
        home = self._of[backend] = self._by_number[self._last] = Home(backend, self._last)
        return home

    def get(self, number: int) -> Home | None:
        """None where it has restarted since, or is configured no longer."""
        home = self._by_number.get(number)
        return home if home is not None and home.generation == home.backend.generation else None

    def keep_only(self, backends: Iterable[Backend]) -> None:
        kept = set(backends)
        for backend in [one for one in self._of if one not in kept]:
            del self._by_number[self._of.pop(backend).number]
