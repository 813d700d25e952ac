"""How many requests per second are let in: a token bucket.

Decides whether one more request may come now (`taken`), and how long the next one has to wait (`wait_seconds`).
Formula: the bucket holds `rate` * `burst_seconds` requests, 1 at least, and fills by `rate` per second; a request takes one. Over any time t no more than
burst + `rate` * t are let in.
Inputs: requests per second; `now` in seconds. Setting: `burst_seconds` (0.1..60, default 1).
Limit: per process; several gateways let in what each of them served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class RateLimitRules:
    burst_seconds: float = 1.0


class Bucket(NamedTuple):
    """`taken` is what was taken and has not filled up again, as of `at`."""

    taken: float = 0.0
    at: float = 0.0


FULL = Bucket()


def taken(bucket: Bucket, rate: float, now: float, rules: RateLimitRules) -> Bucket | None:
    """The bucket without one more request; None where there is none left, and nothing has changed."""
    missing = _missing(bucket, rate, now) + 1.0
    return Bucket(missing, max(now, bucket.at)) if missing <= _size(rate, rules) else None


def wait_seconds(bucket: Bucket, rate: float, now: float, rules: RateLimitRules) -> float:
    """Until there is one again."""
    return max(0.0, _missing(bucket, rate, now) + 1.0 - _size(rate, rules)) / rate


def _size(rate: float, rules: RateLimitRules) -> float:
    return max(1.0, rate * rules.burst_seconds)


def _missing(bucket: Bucket, rate: float, now: float) -> float:
    return max(0.0, bucket.taken - rate * max(now - bucket.at, 0.0))
