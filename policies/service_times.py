"""How long a request will take on a pool's engines, from those before it.

Decides: mean and mean deviation of the service time of one key, say (pool, business type), and a prediction from them.
    mean += g * (x - mean);  deviation += g * (|x - mean before| - deviation);  g = max(1 / n, 1 - 2**(-1 / half_life_samples))
so the first samples are averaged plainly and later ones decay; the deviation as in TCP's round-trip time (RFC 6298).
    predicted = mean + k * deviation, never below 0
For a normal spread k = 1.25 is one standard deviation. k = 0 gives up on a request that would more likely fail; a larger k is for
promises (lending), a smaller one for giving up only what is surely late.
Inputs: seconds from dispatch to the first byte, of attempts that ended well; whoever reports leaves out what failed or was cancelled.
Settings: `half_life_samples` (1..100000, default 32), `min_samples` (1..100000, default 5).
Limits: one number per key: output lengths that differ widely inside a key show as deviation only. One that was not seen for long is predicted as
it was last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ServiceTimeRules:
    half_life_samples: float = 32.0
    min_samples: int = 5
    least_gain: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "least_gain", 1.0 - 2.0 ** (-1.0 / self.half_life_samples))


class ServiceTime(NamedTuple):
    mean: float = 0.0
    deviation: float = 0.0
    samples: int = 0


UNSEEN = ServiceTime()


def after_service(known: ServiceTime, seconds: float, rules: ServiceTimeRules) -> ServiceTime:
    mean, deviation, samples = known
    if samples == 0:
        return ServiceTime(seconds, 0.0, 1)
    samples += 1
    gain = 1.0 / samples
    if gain < rules.least_gain:
        gain = rules.least_gain
    error = seconds - mean
    return ServiceTime(mean + gain * error, deviation + gain * (abs(error) - deviation), samples)


def predicted_seconds(known: ServiceTime, k: float, unknown: float, rules: ServiceTimeRules) -> float:
    """`unknown` is what too few samples count as: 0 where that must not refuse anybody, infinity where it must not promise anything."""
    if known.samples < rules.min_samples:
        return unknown
    seconds = known.mean + k * known.deviation
    if seconds < 0.0:
        return 0.0
    return seconds
