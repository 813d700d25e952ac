"""Whether the session store is asked at all, so that one which does not answer costs no request its patience.

Decides: the breaker after a call or a probe, and when the next probe is due. Three conditions:
- closed: calls go through. It opens after `failures_in_a_row` failed calls, or once at least `min_calls` calls of about the last second
  (`BUCKET_SECONDS` that run and those before: 0.5 to 1 s) failed in a share of `failed_share` or more;
- open: no call goes through until `probe_at`;
- half open (`is_probing`): one probe at a time is under way, never a request's call. A good one closes the breaker, a failed one opens it anew.
How long it is open: `open_seconds`, doubled at each opening that no good call came before, `max_open_seconds` at most; times 1 - `spread` * `jitter`, so that many
gateways do not probe in step. A store that is back is so asked again after `max_open_seconds` and two probes' timeouts at most.
Source: M. Nygard, Release It!, circuit breaker; the doubling with jitter is that of exponential backoff.
Inputs: `now` in seconds on any monotonic clock; `jitter` 0..1, drawn by the caller; `epoch` of a call is the breaker's when it began: what a call of an earlier epoch
brings says nothing about the store now and changes nothing.
Settings: `failures_in_a_row` (1..100, default 3), `min_calls` (1..1000, default 5), `failed_share` (0..1, default 0.5), `open_seconds` (0.05..60, default 0.5),
`max_open_seconds` (>= `open_seconds`, default 1), `spread` (0..1, default 0.25).
Limit: calls that wait at once when a store freezes all wait for their timeout; the breaker spares those that come after the third has failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import NamedTuple

BUCKET_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class BreakerRules:
    failures_in_a_row: int = 3
    min_calls: int = 5
    failed_share: float = 0.5
    open_seconds: float = 0.5
    max_open_seconds: float = 1.0
    spread: float = 0.25


class StoreBreaker(NamedTuple):
    """`probe_at` is None while it is closed. `openings` counts those since the last good call."""

    probe_at: float | None = None
    is_probing: bool = False
    epoch: int = 0
    openings: int = 0
    in_a_row: int = 0
    bucket: int = 0
    calls: int = 0
    failures: int = 0
    earlier_calls: int = 0
    earlier_failures: int = 0

    @property
    def is_open(self) -> bool:
        return self.probe_at is not None


CLOSED = StoreBreaker()


def after_call(
    breaker: StoreBreaker, epoch: int, good: bool, now: float, jitter: float, rules: BreakerRules
) -> StoreBreaker:
    """Of a call that went through while `epoch` was the breaker's."""
    if epoch != breaker.epoch or breaker.probe_at is not None:
        return breaker
    bucket = floor(now / BUCKET_SECONDS)
    calls, failures, earlier_calls, earlier_failures = breaker[6:]
    if bucket != breaker.bucket:
        is_next = bucket == breaker.bucket + 1
        earlier_calls, earlier_failures = (calls, failures) if is_next else (0, 0)
        calls = failures = 0
    calls, failures = calls + 1, failures + (not good)
    in_a_row = 0 if good else breaker.in_a_row + 1
    openings = 0 if good else breaker.openings
    if not good:
        seen, failed = calls + earlier_calls, failures + earlier_failures
        is_poor = seen >= rules.min_calls and failed >= rules.failed_share * seen
        if is_poor or in_a_row >= rules.failures_in_a_row:
            return _opened(breaker.epoch + 1, breaker.openings, now, jitter, rules)
    return StoreBreaker(
        None,
        False,
        breaker.epoch,
        openings,
        in_a_row,
        bucket,
        calls,
        failures,
        earlier_calls,
        earlier_failures,
    )


def probe_is_due(breaker: StoreBreaker, now: float) -> bool:
    return breaker.probe_at is not None and not breaker.is_probing and now >= breaker.probe_at


def probing(breaker: StoreBreaker) -> StoreBreaker:
    """A probe that was due is under way."""
    return breaker._replace(is_probing=True)


def after_probe(
    breaker: StoreBreaker, good: bool, now: float, jitter: float, rules: BreakerRules
) -> StoreBreaker:
    if not breaker.is_probing:
        return breaker
    if good:
        return StoreBreaker(epoch=breaker.epoch, openings=breaker.openings)
    return _opened(breaker.epoch, breaker.openings, now, jitter, rules)


def _opened(epoch: int, openings: int, now: float, jitter: float, rules: BreakerRules) -> StoreBreaker:
    seconds = min(rules.max_open_seconds, rules.open_seconds * 2.0 ** min(openings, 32))
    return StoreBreaker(now + seconds * (1.0 - rules.spread * jitter), epoch=epoch, openings=openings + 1)
