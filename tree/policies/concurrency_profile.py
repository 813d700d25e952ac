"""How long a backend takes at which number of requests in flight, and at which number it does best.

Decides: `best_in_flight` and `slowdown`, from measured intervals during which the window was full.
Why a profile and not only a quiet baseline: continuous batching slows every request down as the batch grows, long before anything queues
(110 ms + 5.25 ms x batch is 1.7 times as long at 16 as at 1). Measured against the quiet engine that reads like a queue, and a
delay-based controller stops at two thirds of the batch; measured against the same number in flight it is 1.

Formulas. Service time at n in flight = `pace * share[n]`: the shares are the engine's shape, the pace is its speed, in seconds per
request of reference work. A measurement right after the number in flight has changed is laid to the shape (two neighbouring intervals see
the same speed); one at the same number is laid to the speed. Jumps that no change of the number explains are speed. By Little's law the
throughput is n / time; best is the n of the highest `n**0.85 / time`, throughput weighed against latency as in Kleinrock's generalised
power: growing by a percent has to bring at least 0.15 % of throughput.
`slowdown` is the pace against the reference pace, the engine's own past: that one follows a faster engine at once (`_FASTER_SHARE` of the way per
interval) and a slower one with a time constant of 60 s, so a slow phase shows and a slow engine is accepted in the end. The slowdown
is the median of 5 intervals, then an EWMA.

Limits: a shape is known only where the backend has been; neighbours within 9 % are one entry. Numbers in flight are this gateway's own.
Requests of one and the same length run in lockstep, and the flat region beyond the batch then reads up to a third wider than it is.
Bound: one entry per 9 %, that is about 80 up to 4,096 in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log, log2
from typing import NamedTuple

LATENCY_EXPONENT = 0.15
FOLLOW_SECONDS = 60.0
"""Time constant with which a slower engine becomes the new normal."""
_FASTER_SHARE = 0.3
_STEADY_GAIN = 0.3
_JUMP = 0.22
"""Natural logarithm: a pace 25 % off is another pace, not noise."""
_SHAPE_SLACK = 0.15
_MOST_VISITS = 6
_LONGEST_GAP_SECONDS = 10.0
"""What an idle time counts at most against the reference."""


class Entry(NamedTuple):
    in_flight: float
    share: float
    visits: int
    turn: int
    """Of the last visit, counted in intervals: an idle time makes nothing older."""


class Profile(NamedTuple):
    shares: Mapping[int, Entry] = {}
    """By `bucket` of the number in flight; never changed in place."""
    reference_pace: float = 0.0
    pace: float = 0.0
    """Both in seconds at share 1; 0 until the first interval."""
    recent: tuple[float, ...] = ()
    """Slowdowns of the last 5 intervals."""
    slowdown: float = 1.0
    here: int = 0
    """Bucket of the last interval."""
    measured_at: float = 0.0
    turn: int = 0


UNKNOWN = Profile()


def bucket(in_flight: float) -> int:
    """One per number below 16, eight per doubling above."""
    return max(1, round(in_flight)) if in_flight < 15.5 else 16 + round(8 * log2(in_flight / 16))


def measured(profile: Profile, in_flight: float, seconds: float, now: float) -> Profile:
    """After one more interval at `in_flight`, in which a request of reference work took `seconds`."""
    here, turn = bucket(in_flight), profile.turn + 1
    if not profile.shares:
        return Profile({here: Entry(in_flight, 1.0, 1, turn)}, seconds, seconds, (1.0,), 1.0, here, now, turn)
    entry = profile.shares.get(here)
    if here != profile.here or entry is None:
        share, visits = _shape(profile, in_flight, seconds / profile.pace), 1
        if entry is not None:
            visits = min(entry.visits + 1, _MOST_VISITS)
            share = entry.share * (share / entry.share) ** (1 / visits)
        entry = Entry(in_flight, share, visits, turn)
    else:
        entry = entry._replace(turn=turn)
    pace = seconds / entry.share
    off = log(pace / profile.pace)
    if abs(off) < _JUMP:
        pace = profile.pace * exp(_STEADY_GAIN * off)
    # Against what the reference was before this interval: a slow engine must show before it becomes the new normal.
    recent = (*profile.recent[-4:], seconds / entry.share / profile.reference_pace)
    middle = sorted(recent)[len(recent) // 2]
    off = log(pace / profile.reference_pace)
    gap_seconds = min(now - profile.measured_at, _LONGEST_GAP_SECONDS)
    part = _FASTER_SHARE if off < 0 else gap_seconds / FOLLOW_SECONDS
    return Profile(
        {**profile.shares, here: entry},
        profile.reference_pace * exp(part * off),
        pace,
        recent,
        profile.slowdown + 0.5 * (middle - profile.slowdown),
        here,
        now,
        turn,
    )


def _shape(profile: Profile, in_flight: float, share: float) -> float:
    """`share` as far as the move from the last interval can explain it: between unchanged and proportional, and some noise."""
    before = profile.shares[profile.here]
    growth = in_flight / before.in_flight
    return min(
        max(share, before.share * min(1.0, growth) * (1 - _SHAPE_SLACK)),
        before.share * max(1.0, growth) * (1 + _SHAPE_SLACK),
    )


def score(entry: Entry) -> float:
    return float(entry.in_flight ** (1 - LATENCY_EXPONENT)) / entry.share


def best_in_flight(profile: Profile) -> float:
    """0 while nothing is known."""
    return max(profile.shares.values(), key=score).in_flight if profile.shares else 0.0


def is_due(profile: Profile, in_flight: float, after_turns: int) -> bool:
    """Whether to look again: a number seen once is looked at again six times sooner than one seen often."""
    entry = profile.shares.get(bucket(in_flight))
    return entry is None or profile.turn - entry.turn > after_turns * entry.visits / _MOST_VISITS


def turns_since_below(profile: Profile, in_flight: float) -> float:
    """Intervals since anything from half of this number to eight tenths of it was measured; infinite if never."""
    low, high = bucket(in_flight / 2), bucket(0.8 * in_flight)
    return min(
        (profile.turn - entry.turn for key, entry in profile.shares.items() if low <= key <= high),
        default=inf,
    )
