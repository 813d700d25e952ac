"""The settings of `breaker`, as those of `gateway.settings`. What they do: `policies.circuit` and `policies.outlier`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.bounded import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """One circuit per backend and model. An open one gets no requests of clients; small calls of the gateway's own find out when it is well again."""

    enabled: bool = True
    fast_seconds: int = bounded(10, 1, 600)
    """Opens where of the calls of that time `min_calls` or more were made and `failed_share` failed."""
    min_calls: int = bounded(10, 1, 100_000)
    failed_share: float = bounded(0.5, 0.01, 1)
    failures_in_a_row: int = bounded(5, 1, 100_000)
    """Of two different prompts at least."""
    slow_seconds: int = bounded(60, 1, 3600)
    """Opens where of the calls of that time `slow_min_calls` or more were made and `slow_share` were slow, and the pool's other backends are not."""
    slow_min_calls: int = bounded(20, 1, 100_000)
    slow_share: float = bounded(0.8, 0.01, 1)
    slow_factor: float = bounded(4, 1.1, 1000)
    """Times what the other backends take for such a request: a slow call."""
    open_seconds: float = bounded(5, 0.01, 3600)
    """How long it is open at first, half of it by chance; doubled each time up to `max_open_seconds`."""
    max_open_seconds: float = bounded(300, 0.01, 86_400)
    good_canaries: int = bounded(3, 1, 100)
    """Calls of the gateway's own in a row that have to be answered well."""
    canary_timeout_seconds: float = bounded(30, 0.01, 3600)
    slow_start_seconds: float = bounded(30, 0, 3600)
    """Within which its window grows back."""
    panic_share: float = bounded(0.5, 0, 1)
    """Where more of a pool's backends are open, some of them are used a little all the same."""
    outlier_factor: float = bounded(2, 1.1, 100)
    """Times the pace of its pool: a backend that is slower for long gets less."""
