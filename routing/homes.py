"""Numbers for backends in the affinity table. A backend whose engine restarted gets a new one, and what was known of it is forgotten at once.

Bound: one number per backend that has been sent something; those of retired backends go when the fleet is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.cache_trust import FULL_TRUST, CacheTrust, counted, hit_share, restarted, sent, told, trust_in
from policies.dialects import EngineReport
from routing.backend import Backend

SAMPLE_TOKENS = 4_000.0
FOUND_SHARE = 0.3


class Home:
    """A backend since its engine's last start. `trust` is 0 to 1: what the engine's own counts say of the guesses about its cache."""

    __slots__ = (
        "_known",
        "_sent_cached",
        "_sent_prompts",
        "_sent_unfound",
        "_tells",
        "_told_cached",
        "_told_predicted",
        "backend",
        "found_tokens",
        "generation",
        "number",
        "predicted_tokens",
        "trust",
        "written",
    )

    def __init__(self, backend: Backend, number: int, known: CacheTrust = FULL_TRUST) -> None:
        self.backend = backend
        self.generation = backend.generation
        self.number = number
        self._sent_cached = self._sent_prompts = 0.0
        self._sent_unfound = 0.0
        self._tells = False
        self._told_predicted = self._told_cached = 0.0
        self.written = 0
        """Tokens that went into its cache or were asked for again, so far."""
        self.predicted_tokens = 0.0
        """Of requests that ended well, since the gateway's start."""
        self.found_tokens = 0.0
        """Of the same requests, as `usage` said. From an engine that does not say it: of all prompts sent, the share that its counters found."""
        self._know(known)

    def _know(self, known: CacheTrust) -> None:
        self._known = known
        self.trust = trust_in(known)

    def holds(self, written: int) -> bool:
        """Whether its cache, which evicts what was used longest ago, still has what it got when `written` was so much.

        Each block computed since has pushed one out; one found has moved up, which costs those below it a place the first time only: `FOUND_SHARE`
        (measured against the emulated engine: found / predicted is 1.04 with it).
        Always, where the engine does not say how much its cache holds: then only `trust` tells.
        """
        capacity = self.backend.kv_tokens
        return capacity is None or self.written - written <= capacity

    def sent(self, cached_tokens: float, prompt_tokens: float, output_tokens: float) -> None:
        """A request, of which so much was taken for cached."""
        self.written += int(prompt_tokens - (1.0 - FOUND_SHARE) * cached_tokens + output_tokens)
        self._sent_cached += cached_tokens
        self._sent_prompts += prompt_tokens
        self._sent_unfound += prompt_tokens

    def wrote(self, tokens: float) -> None:
        """A request that was not looked into: what it leaves in the cache pushes out as much."""
        self.written += int(tokens)

    def told(self, predicted_tokens: float, cached_tokens: int) -> None:
        """By the `usage` of an answer, 0 where it says nothing of the cache. Several together make one sample."""
        self.predicted_tokens += predicted_tokens
        self.found_tokens += cached_tokens
        self._tells = self._tells or cached_tokens > 0
        self._told_predicted += predicted_tokens
        self._told_cached += cached_tokens
        if self._told_predicted >= SAMPLE_TOKENS:
            always = self.backend.flags.tells_cached_tokens is True
            self._know(told(self._known, self._told_predicted, self._told_cached, always))
            self._told_predicted = self._told_cached = 0.0

    def counted(self, before: EngineReport | None, after: EngineReport) -> None:
        """By two reports of the engine."""
        known = sent(self._known, self._sent_cached, self._sent_prompts)
        self._sent_cached = self._sent_prompts = 0.0
        self._know(counted(known, before, after))
        share = None if self._tells or self.backend.flags.tells_cached_tokens else hit_share(before, after)
        if share is not None:
            self.found_tokens += share * self._sent_unfound
            self._sent_unfound = 0.0

    def renewed(self, number: int) -> Home:
        """After a restart of the engine."""
        home = Home(self.backend, number, restarted(self._known))
        home.predicted_tokens, home.found_tokens = self.predicted_tokens, self.found_tokens
        home._tells = self._tells
        return home


class Homes:
    def __init__(self) -> None:
        self._last = 0
        self._of: dict[Backend, Home] = {}
        self._by_number: dict[int, Home] = {}

    def __iter__(self) -> Iterator[Home]:
        return iter(self._of.values())

    def of(self, backend: Backend) -> Home:
        known = self._of.get(backend)
        if known is not None and known.generation == backend.generation:
            return known
        number = self._last = self._last + 1
        if known is None:
            home = Home(backend, number)
        else:
            del self._by_number[known.number]
            home = known.renewed(number)
        self._of[backend] = self._by_number[number] = home
        return home

    def known(self, backend: Backend) -> Home | None:
        """None where it is configured no longer, or was never sent anything."""
        return self.of(backend) if backend in self._of else None

    def get(self, number: int) -> Home | None:
        """None where it has restarted since, or is configured no longer."""
        home = self._by_number.get(number)
        return home if home is not None and home.generation == home.backend.generation else None

    def keep_only(self, backends: Iterable[Backend]) -> None:
        kept = set(backends)
        for backend in [one for one in self._of if one not in kept]:
            del self._by_number[self._of.pop(backend).number]
