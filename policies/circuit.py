"""When a backend is taken out for what its answers say of it, for how long, and how it comes back.

Decides: whether a circuit trips and by which cause, how long it stays open, what the next opening's exponent is, and which share of its window a backend has
while it comes back. Three causes, the first two over windows of time, since calls of language models are few:
- `failures`: of the last `fast_seconds` at least `min_calls` calls, a share of `failed_share` or more of them failed. Where one source alone failed (same tenant and size of prompt) and
  nothing says that others serve it well, it is the prompt that is to blame, and the circuit stays closed;
- `slow_calls`: of the last `slow_seconds` at least `slow_min_calls` calls, a share of `slow_share` or more slow, and less than half that share at the pool's other backends;
- `consecutive`: `failures_in_a_row` without a good call between, of two sources at least.
A call is slow if it took more than `slow_factor` times what the forecast says, times what the pool's other backends take of theirs. Nothing is held to an
absolute target, so overload, which slows all of them alike, opens nothing.
How long: d = min(`open_seconds` * 2**k, `max_open_seconds`), half of it fixed and half of it by chance: d/2 * (1 + jitter). k starts at 0; a bad probe, and an opening
that comes before `healthy_seconds` have passed since the last closing, raise it by one, as long as that makes d longer; each `healthy_seconds` closed lower it by one.
Back: `good_canaries` good probes in a row close it; the window then grows from `slow_start_share` to all within `slow_start_seconds`, linearly.
Panic: where more than `panic_share` of those that could be used are open, some are used all the same, with `panic_window_share` of their windows: see `let_back`.
Inputs: counts of calls; seconds; `jitter` 0..1, drawn by the caller.
Source: M. Nygard, Release It!, circuit breaker; windows and slow calls as in Resilience4j; panic as in Envoy; equal jitter after M. Brooker, Exponential Backoff And Jitter.
Settings: the fields of `CircuitRules` with their defaults; those that are configured have their ranges in `gateway.breaker_settings`.
Limits: a backend that nobody calls is not judged. A fault that hits fewer than `failed_share` of the calls opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import floor
from typing import NamedTuple


class CircuitState(StrEnum):
    CLOSED = "closed"
    HALF_OPEN = "half_open"
    """A probe is under way, or the last one was good."""
    OPEN = "open"


class TripCause(StrEnum):
    """Why a circuit opened."""

    FAILURES = "failures"
    SLOW_CALLS = "slow_calls"
    CONSECUTIVE = "consecutive"


class CanaryOutcome(StrEnum):
    """What a probe of an open circuit says."""

    GOOD = "good"
    SLOW = "slow"
    """Good but slow, which counts as bad where slow calls had opened the circuit."""
    BAD = "bad"
    NEUTRAL = "neutral"
    """The engine is full: says nothing."""


@dataclass(frozen=True, slots=True)
class CircuitRules:
    enabled: bool = True
    fast_seconds: int = 10
    min_calls: int = 10
    failed_share: float = 0.5
    slow_seconds: int = 60
    slow_min_calls: int = 20
    slow_share: float = 0.8
    slow_factor: float = 4.0
    failures_in_a_row: int = 5
    open_seconds: float = 5.0
    max_open_seconds: float = 300.0
    good_canaries: int = 3
    healthy_seconds: float = 300.0
    slow_start_seconds: float = 30.0
    slow_start_share: float = 0.1
    panic_share: float = 0.5
    panic_window_share: float = 0.1


class Calls(NamedTuple):
    """Of some span of time; a failed call is no slow one."""

    calls: int = 0
    failures: int = 0
    slow: int = 0

    @property
    def failed_share(self) -> float:
        return self.failures / self.calls if self.calls else 0.0

    @property
    def slow_share(self) -> float:
        return self.slow / self.calls if self.calls else 0.0


def summed(calls: Iterable[Calls]) -> Calls:
    return Calls(*map(sum, zip(*calls, strict=True)))


def less(calls: Calls, part: Calls) -> Calls:
    """Without those of a part of them."""
    return Calls(calls.calls - part.calls, calls.failures - part.failures, calls.slow - part.slow)


def after_failure(
    fast: Calls,
    in_a_row: int,
    row_has_two_sources: bool,
    has_two_sources: bool,
    is_served: Callable[[], bool],
    rules: CircuitRules,
) -> TripCause | None:
    """Whether a failure, counted already, opens the circuit.

    `row_has_two_sources`: of those in a row; `has_two_sources`: of those of the fast window. `is_served`: whether the pool has answered the source of the last one well; asked only where it matters.
    """
    if in_a_row >= rules.failures_in_a_row and row_has_two_sources:
        return TripCause.CONSECUTIVE
    if fast.calls < rules.min_calls or fast.failures < rules.failed_share * fast.calls:
        return None
    return TripCause.FAILURES if has_two_sources or is_served() else None


def is_too_slow(slow: Calls, of_others: Callable[[], Calls], rules: CircuitRules) -> bool:
    """`of_others`: those of the pool's other backends in the same window, asked only where it matters. Where they have too few nothing is too slow."""
    if slow.calls < rules.slow_min_calls or slow.slow_share < rules.slow_share:
        return False
    others = of_others()
    return others.calls >= rules.slow_min_calls and others.slow_share < rules.slow_share / 2


def open_seconds(k: int, jitter: float, rules: CircuitRules) -> float:
    # Whatever rules `k` was raised under: 2.0**1024 overflows.
    seconds = min(rules.open_seconds * 2.0 ** min(k, 32), rules.max_open_seconds)
    return seconds / 2 * (1.0 + jitter)


def raised(k: int, rules: CircuitRules) -> int:
    """One more where that makes a pause longer. A backend that was dead for days has so no more to live down than one that was dead for an hour."""
    return k + 1 if rules.open_seconds * 2.0**k < rules.max_open_seconds else k


def lowered(k: int, healthy_seconds: float, rules: CircuitRules) -> int:
    """What is left of it, so many seconds after the last closing."""
    return k - floor(min(float(k), healthy_seconds / rules.healthy_seconds))


def is_bad(outcome: CanaryOutcome, cause: TripCause | None) -> bool:
    """`cause`: what had opened the circuit."""
    if outcome is CanaryOutcome.SLOW:
        return cause is TripCause.SLOW_CALLS
    return outcome is CanaryOutcome.BAD


def slow_start_share(elapsed: float, rules: CircuitRules) -> float:
    """Of the window, so many seconds after the circuit closed."""
    if elapsed >= rules.slow_start_seconds:
        return 1.0
    least = rules.slow_start_share
    return least + (1.0 - least) * max(0.0, elapsed) / rules.slow_start_seconds


def let_back(open_count: int, count: int, rules: CircuitRules) -> int:
    """How many of the open ones are used all the same: so many that no more than `panic_share` is left out, one at least; none where that holds anyway."""
    if open_count <= rules.panic_share * count:
        return 0
    return max(1, open_count - floor(rules.panic_share * count))
