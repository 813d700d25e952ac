"""How many requests one backend may hold at once.

Decides: the window `limit` of one backend, between `min` and `max`, from the service times of its own requests and from what the engine says.
An engine of continuous batching gets slower with its batch without any queue: service = base + slope * in-flight. That line is learnt, the
batch's share is taken out, and only what is left over the base counts as slowdown (TCP Vegas on the rest):
    s = (service - slope * in-flight) / base;  queue = in-flight * (1 - 1 / s)
which is the length of the engine's queue by Little's law. Once per control interval, L the limit, l = log10(L):
    queue > 2 l: L -= l;    queue < l and in-flight >= L / 2: L += l
(Vegas has 3 l and 6 l for a queue that counts the batch as well; they would hold 3 to 7 requests in the engine's queue.)
    95th percentile > 1.2 * `target_seconds`: L *= 0.9 and one interval's rest;  growth only below 0.8 * `target_seconds`
    the engine's queue > 0 in three reports in a row: L -= waiting / 2;  KV cache > 0.9: no growth;  429/503: L *= 0.9
The line: mean service per level of in-flight (four levels to an octave), least squares over the levels. All levels are learnt until the first
queue is seen, then only low ones (at most 0.6 of the highest limit of late): what is slow there is a slow engine, so the whole line is
scaled with it and the window comes back. Where traffic gives no low level for 10 minutes (the first time: 1) the window is halved for three
intervals and put back: about 0.2 % of the throughput, and an engine that changed for good is followed.
Inputs: seconds from dispatch to the end of requests that ended well; `in_flight` at that moment, itself included; the engine's numbers, None
where unknown. Settings: `start`, `min`, `max` (1..100000 requests; min == max is a fixed window), `target_seconds` (default infinite: no target).
Control interval: 1 s or a mean service, with 20 samples; five times that with 3. A sample counts at most four times the line at `max`.
Limits: a backend shared with other gateways looks like a slower one. Service that changes with the request's length alone shows as noise. A
window that starts beyond the engine's batch sees no level without a queue before the first halving.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2, log10, sqrt
from typing import NamedTuple

INTERVAL_SECONDS = 1.0
ENOUGH_SAMPLES = 20
FEW_SAMPLES = 3
FEW_SAMPLES_INTERVALS = 5.0
SMOOTHING = 0.4
BACKOFF = 0.9
LOW_SHARE = 0.6
CLEAN_SHARE = 0.75
BUSY_SHARE = 0.75
FASTER = 0.85
HIGH_DECAY = 0.998
"""Per interval: the highest limit of late is forgotten by half in some six minutes of 1 s."""
SCALE_GAIN = 0.3
LEVELS = 40
LEVEL_SAMPLES = 20.0
LEAST_BASE_SHARE = 0.2
"""The base is at least this share of the mean service: below it the line would explain a queue as well."""
PROBE_SECONDS = 600.0
FIRST_PROBE_SECONDS = 60.0
PROBE_INTERVALS = 3
KV_FULL = 0.9
KV_HOLD_SECONDS = 3.0
WAITING_REPORTS = 3
OUTLIER = 4.0
P95_DEVIATIONS = 1.65


@dataclass(frozen=True, slots=True)
class WindowRules:
    start: int
    min: int
    max: int
    target_seconds: float = inf


class Level(NamedTuple):
    in_flight: float = 0.0
    seconds: float = 0.0
    weight: float = 0.0


class Learnt(NamedTuple):
    """What changes once per interval or at a report."""

    levels: tuple[Level, ...] = (Level(),) * LEVELS
    base: float = 0.0
    slope: float = 0.0
    queued_once: bool = False
    slowdown: float = 1.0
    mean_seconds: float = INTERVAL_SECONDS
    high: float = 0.0
    low_seen_at: float = -inf
    probing: int = 0
    """Intervals left of a halving; `resume` is the limit to be put back then."""
    resume: float = 0.0
    resting: bool = False
    kv_full_until: float = -inf
    waiting_reports: int = 0
    pushed_back_at: float = -inf


class Window(NamedTuple):
    limit: float
    since: float = inf
    """Start of the control interval; infinite before the first sample of one."""
    samples: int = 0
    in_flight_sum: int = 0
    seconds_sum: float = 0.0
    squares_sum: float = 0.0
    cap_seconds: float = inf
    learnt: Learnt = Learnt()


def started(rules: WindowRules) -> Window:
    limit = float(min(max(rules.start, rules.min), rules.max))
    return Window(limit, learnt=Learnt(high=limit))


def sampled(window: Window, service_seconds: float, in_flight: int, now: float, rules: WindowRules) -> Window:
    if rules.min == rules.max:
        return window
    limit, since, samples, in_flight_sum, seconds_sum, squares_sum, cap, learnt = window
    seconds = min(cap, service_seconds)
    interval = max(INTERVAL_SECONDS, learnt.mean_seconds)
    # What was gathered before a long silence says nothing of the engine today.
    if since == inf or now - since > 2 * FEW_SAMPLES_INTERVALS * interval:
        return Window(limit, now, 1, in_flight, seconds, seconds * seconds, cap, learnt)
    gathered = Window(
        limit,
        since,
        samples + 1,
        in_flight_sum + in_flight,
        seconds_sum + seconds,
        squares_sum + seconds * seconds,
        cap,
        learnt,
    )
    needed = ENOUGH_SAMPLES if now - since < FEW_SAMPLES_INTERVALS * interval else FEW_SAMPLES
    return gathered if now - since < interval or samples + 1 < needed else _evaluated(gathered, now, rules)


def reported(
    window: Window, waiting: int | None, kv_usage: float | None, now: float, rules: WindowRules
) -> Window:
    if rules.min == rules.max:
        return window
    learnt, limit = window.learnt, window.limit
    if kv_usage is not None:
        learnt = learnt._replace(kv_full_until=now + KV_HOLD_SECONDS if kv_usage > KV_FULL else -inf)
    if waiting is not None:
        run = learnt.waiting_reports + 1 if waiting > 0 else 0
        learnt = learnt._replace(waiting_reports=run % WAITING_REPORTS)
        if run == WAITING_REPORTS:
            limit, learnt = max(limit - waiting / 2, rules.min), learnt._replace(probing=0)
    return window._replace(limit=limit, learnt=learnt)


def pushed_back(window: Window, now: float, rules: WindowRules) -> Window:
    """At most once per mean service: those that were sent before know nothing of the smaller window yet."""
    learnt = window.learnt
    if rules.min == rules.max or now - learnt.pushed_back_at < learnt.mean_seconds:
        return window
    return window._replace(
        limit=max(window.limit * BACKOFF, rules.min), learnt=learnt._replace(pushed_back_at=now, probing=0)
    )


def _evaluated(window: Window, now: float, rules: WindowRules) -> Window:
    limit, learnt = window.limit, window.learnt
    in_flight = window.in_flight_sum / window.samples
    seconds = window.seconds_sum / window.samples
    deviation = sqrt(max(window.squares_sum / window.samples - seconds * seconds, 0.0))
    p95_seconds = seconds + P95_DEVIATIONS * deviation
    high = max(limit, learnt.resume if learnt.probing else 0.0, learnt.high * HIGH_DECAY)
    low = in_flight <= max(LOW_SHARE * high, rules.min)
    learnt = _after(learnt, in_flight, seconds, low)
    slowdown = max((seconds - learnt.slope * in_flight) / learnt.base, 0.1)
    slowdown = learnt.slowdown + SMOOTHING * (slowdown - learnt.slowdown)
    queue = in_flight * (1.0 - 1.0 / slowdown)
    step = log10(max(limit, 3.0))
    may_grow = now >= learnt.kv_full_until and p95_seconds < 0.8 * rules.target_seconds
    low_seen_at = learnt.low_seen_at
    if low:
        low_seen_at = now
    elif low_seen_at == -inf or (slowdown < FASTER and learnt.queued_once):
        # A queue only adds: less than the line at any level is another engine, which is looked at soon.
        low_seen_at = now - PROBE_SECONDS + FIRST_PROBE_SECONDS
    probing, resume, resting = learnt.probing, learnt.resume, False
    if probing:
        probing -= 1
        if not probing and now >= learnt.kv_full_until:
            limit = resume
    elif learnt.resting:
        pass
    elif p95_seconds > 1.2 * rules.target_seconds:
        limit, resting = limit * BACKOFF, True
    elif queue > 2.0 * step:
        limit -= step
    elif now - low_seen_at > PROBE_SECONDS:
        probing, resume, limit = PROBE_INTERVALS, limit, limit / 2
    elif queue < step and in_flight >= BUSY_SHARE * limit and may_grow:
        limit += step
    levels = learnt.levels
    if queue > step and not learnt.queued_once:
        # The last levels of the climb held a part of that queue already.
        levels = tuple(level if level.in_flight <= CLEAN_SHARE * limit else Level() for level in levels)
    learnt = learnt._replace(
        levels=levels,
        queued_once=learnt.queued_once or queue > step,
        slowdown=slowdown,
        mean_seconds=seconds,
        high=high,
        low_seen_at=low_seen_at,
        probing=probing,
        resume=resume,
        resting=resting,
    )
    cap = OUTLIER * (learnt.base + learnt.slope * rules.max)
    return Window(min(max(limit, rules.min), rules.max), now, cap_seconds=cap, learnt=learnt)


def _after(learnt: Learnt, in_flight: float, seconds: float, low: bool) -> Learnt:
    """With the line as it is after this interval."""
    levels, expected = learnt.levels, learnt.base + learnt.slope * in_flight
    ratio = seconds / expected if expected else 1.0
    slope = learnt.slope
    if learnt.queued_once and (low or learnt.slowdown < FASTER):
        scale = 1.0 + SCALE_GAIN * (ratio - 1.0)
        levels, slope = tuple(Level(x, y * scale, weight) for x, y, weight in levels), slope * scale
        learnt = learnt._replace(levels=levels, base=learnt.base * scale, slope=slope)
    if learnt.queued_once and not low:
        return learnt
    index = min(int(4.0 * log2(max(in_flight, 1.0))), LEVELS - 1)
    x, y, weight = levels[index]
    gain = 1.0 / min(weight + 1.0, LEVEL_SAMPLES)
    level = Level(x + gain * (in_flight - x), y + gain * (seconds - y), min(weight + 1.0, LEVEL_SAMPLES))
    levels = (*levels[:index], level, *levels[index + 1 :])
    total = sum(weight for _, _, weight in levels)
    mean_x = sum(weight * x for x, _, weight in levels) / total
    mean_y = sum(weight * y for _, y, weight in levels) / total
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in levels)
    rising = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in levels)
    # The slope so far counts as one sample a tenth off the mean: the first few, or a single level, do not draw any line they like.
    prior = (0.1 * mean_x) ** 2
    slope = max((rising + prior * slope) / (spread + prior), 0.0)
    slope = min(slope, (1.0 - LEAST_BASE_SHARE) * mean_y / mean_x)
    return learnt._replace(levels=levels, base=mean_y - slope * mean_x, slope=slope)
