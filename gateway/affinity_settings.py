"""The sections `affinity` and `paths` of the configuration: where a request's cache is, and which requests are hot."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinitySettings:
    """Sends a request where the KV cache holds the beginning of its prompt. `enabled` false looks into no prompt, and every request is cold; so it is behind a
    single backend without a window, where there is nothing to choose and no slot to share out."""

    enabled: bool = True
    max_prefixes: int = bounded(131_072, 64, 10_000_000)
    """Remembered at most, hot and cold; a prompt has one for each fifth that it is longer. 24 MB at the default once so much was seen, 30 MB at most."""
    load_bound: float = bounded(1.25, 1, 10)
    """Times its share of the load: more than that no backend gets for its cache's sake."""
    min_ttl_seconds: float = bounded(30, 1, 86_400)
    max_ttl_seconds: float = bounded(600, 1, 86_400)
    """Between these, twice the mean gap between two requests of a session: how long a hot prefix or a session is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """The hot path (prefixes and sessions that come often) and the cold one, and how they share slots that both want."""

    reuse_cache_min_hits: int = bounded(5, 1, 200)
    """Times in the window that make a prefix or a session hot."""
    window_seconds: float = bounded(300, 1, 86_400)
    hot_cache_preallocation: float = bounded(0.7, 0, 1)
    cache_low_freq_ratio: float = bounded(0.3, 0, 1)
    """Shares of hot and of cold requests while both wait."""
    follow_traffic: bool = True
    """Whether the shares move with what arrives, by 0.2 at most."""
    cold_open: bool = True
    """False refuses cold requests, emergencies apart. Cold is also what can never be hot unless a trusted client says so: prompts below 256 characters and embeddings,
    both without a session, and everything where `affinity.enabled` is false."""
