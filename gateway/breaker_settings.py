"""The settings of `breaker`, as those of `gateway.settings`; what they do is told in `policies.circuit` and `policies.outlier`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """Takes a backend out, or one of its models, for what its answers say: failures, or calls much slower than the pool's. `enabled` false judges nobody."""

    enabled: bool = True
    fast_seconds: int = bounded(10, 1, 300)
    """The window in which failures are counted."""
    min_calls: int = bounded(10, 1, 10_000)
    """Calls in it, before their share of failures counts."""
    failed_share: float = bounded(0.5, 0.01, 1)
    failures_in_a_row: int = bounded(5, 2, 1000)
    """So many take it out without regard to time, where they come from more than one client or prompt."""
    slow_seconds: int = bounded(60, 1, 600)
    """The window in which slow calls are counted."""
    slow_min_calls: int = bounded(20, 1, 10_000)
    slow_share: float = bounded(0.8, 0.01, 1)
    slow_factor: float = bounded(4, 1.1, 100)
    """Times what the pool's others take for such a request: beyond that a call is slow."""
    open_seconds: float = bounded(5, 0.05, 3600)
    """Until the first probe, give or take; doubled after each bad one,"""
    max_open_seconds: float = bounded(300, 0.05, 3600)
    """and never longer."""
    canary_timeout_seconds: float = bounded(10, 0.05, 600)
    """Of a probe: a call for a few tokens."""
    slow_start_seconds: float = bounded(30, 0, 3600)
    """In which a backend that comes back gets its whole window again, from a tenth of it on."""
    panic_share: float = bounded(0.5, 0, 1)
    """Of a pool's backends: if more than these are out, the least bad of them are used all the same."""
    outlier_factor: float = bounded(2, 1.1, 100)
    """Times the pool's median: a backend that is slower for half a minute gets less."""
