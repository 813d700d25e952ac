"""How many requests one backend may hold at once.

Decides: the window `limit` of one backend, between `min` and `max`, from the service times of its own requests and from what the engine says.
An engine of continuous batching gets slower with its batch without any queue. The batch's share (policies/service_lines.py) is taken out and
only what is left over the base counts as slowdown, smoothed; for the rest TCP Vegas:
    s = (service - slope * in-flight) / base;  queue = in-flight * (1 - 1 / s)
which is the length of the engine's queue by Little's law. Once per control interval, L the limit, l = log10(max(L, 3)):
    queue > 3 l: L -= l;    queue < 1.5 l and in-flight >= 0.75 L: L += l
    95th percentile > 1.2 * `target_seconds`: L *= 0.9 and one interval's rest;  growth only below 0.8 * `target_seconds`
    the engine's queue > 0 in three reports in a row: L -= waiting / 2;  KV cache > 0.9: no growth;  429/503: L *= 0.9
(Half of Vegas' own 3 l and 6 l, which would keep 4 to 7 requests in the engine's queue; less gives up throughput where services scatter.
Its growth from L / 2 on lets bursts of moderate load drive L up to `max`.)
The line is learnt at all levels until the first queue is seen, then at low ones only (at most 0.6 of the highest limit of late): what is slow
there is a slow engine, so the whole line is scaled with it and the window comes back. Where traffic gives no low level for 10 minutes (the
first time, and after the engine got faster: 1) the window is halved for three intervals and put back: about 0.2 % of the throughput.
Inputs: seconds from dispatch to the end of requests that ended well; `in_flight` at that moment, itself included; the engine's numbers, None
where unknown. Settings: `start`, `min`, `max` (1..100000 requests; min == max is a fixed window), `target_seconds` (default infinite: no target).
Control interval: 1 s or two mean services, with 20 samples; five times that with 3. A sample counts at most four times the line at `max`.
Limits: a backend shared with other gateways looks like a slower one. Service that changes with the request's length alone is noise here: where it
scatters by half, about one engine in a dozen gets a window of twice its batch if nothing is heard of the engine's own queue. A
window that starts beyond the engine's batch knows no level without a queue, and stays too wide, until the first halving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log10, sqrt
from typing import NamedTuple

from policies.service_lines import UNKNOWN, ServiceLine, scaled, without_levels_above
from policies.service_lines import learnt as line_learnt

INTERVAL_SECONDS = 1.0
ENOUGH_SAMPLES = 20
FEW_SAMPLES = 3
FEW_SAMPLES_INTERVALS = 5.0
GROW_STEPS = 1.5
SHRINK_STEPS = 3.0
SMOOTHING = 0.4
BACKOFF = 0.9
LOW_SHARE = 0.6
CLEAN_SHARE = 0.75
BUSY_SHARE = 0.75
FASTER = 0.85
HIGH_DECAY = 0.998
"""Per interval: half of what the limit once was is forgotten in some six minutes."""
PROBE_SECONDS = 600.0
FIRST_PROBE_SECONDS = 60.0
PROBE_INTERVALS = 3
KV_FULL = 0.9
KV_HOLD_SECONDS = 3.0
WAITING_REPORTS = 3
RUN_SECONDS = 30.0
"""Older reports say nothing of the queue there is now."""
OUTLIER = 4.0
P95_DEVIATIONS = 1.65


@dataclass(frozen=True, slots=True)
class WindowRules:
    start: int
    min: int
    max: int
    target_seconds: float = inf


class Control(NamedTuple):
    """What changes once per interval or at a report."""

    line: ServiceLine = UNKNOWN
    queued_once: bool = False
    slowdown: float = 1.0
    mean_seconds: float = 0.5 * INTERVAL_SECONDS
    high: float = 0.0
    low_seen_at: float = -inf
    probing: int = 0
    """Intervals left of a halving; `resume` is the limit to be put back then."""
    resume: float = 0.0
    resting: bool = False
    kv_full_until: float = -inf
    waiting_reports: int = 0
    """How many in a row told of a queue; `queued_since` is when the first of them came."""
    queued_since: float = -inf
    pushed_back_at: float = -inf


class Window(NamedTuple):
    limit: float
    since: float = inf
    """Start of the control interval; infinite before the first sample of the first."""
    samples: int = 0
    in_flight_sum: int = 0
    seconds_sum: float = 0.0
    squares_sum: float = 0.0
    cap_seconds: float = inf
    control: Control = Control()


def started(rules: WindowRules) -> Window:
    limit = float(min(max(rules.start, rules.min), rules.max))
    return Window(limit, control=Control(high=limit))


def sampled(window: Window, service_seconds: float, in_flight: int, now: float, rules: WindowRules) -> Window:
    if rules.min == rules.max:
        return window
    limit, since, samples, load, total, squares, cap, control = window
    if service_seconds > cap:
        service_seconds = cap
    # Two services: the samples of the first were sent under the window before.
    interval = 2.0 * control.mean_seconds
    if interval < INTERVAL_SECONDS:
        interval = INTERVAL_SECONDS
    elapsed = now - since
    # What was gathered before a long silence says nothing of the engine today.
    if since == inf or elapsed > 2.0 * FEW_SAMPLES_INTERVALS * interval:
        return Window(
            limit, now, 1, in_flight, service_seconds, service_seconds * service_seconds, cap, control
        )
    samples += 1
    load += in_flight
    total += service_seconds
    squares += service_seconds * service_seconds
    with_it = Window(limit, since, samples, load, total, squares, cap, control)
    if now < since + interval or samples < FEW_SAMPLES:
        return with_it
    if samples < ENOUGH_SAMPLES and elapsed < FEW_SAMPLES_INTERVALS * interval:
        return with_it
    return _evaluated(with_it, now, rules)


def gathers_until(window: Window) -> float:
    """Before this a sample can move nothing, so those until then may be given to `gathered` together."""
    if window.since == inf:
        return -inf
    return window.since + max(2.0 * window.control.mean_seconds, INTERVAL_SECONDS)


def gathered(window: Window, samples: Sequence[tuple[float, int]]) -> Window:
    """As `sampled` for each of (service seconds, in flight), all of them before `gathers_until`."""
    limit, since, count, load, total, squares, cap, control = window
    for service_seconds, in_flight in samples:
        if service_seconds > cap:
            service_seconds = cap
        load += in_flight
        total += service_seconds
        squares += service_seconds * service_seconds
    return Window(limit, since, count + len(samples), load, total, squares, cap, control)


def reported(
    window: Window, waiting: int | None, kv_usage: float | None, now: float, rules: WindowRules
) -> Window:
    """An unknown number leaves what is known: a full KV cache counts for 3 s, a run of queues goes on, but for 30 s in all."""
    if rules.min == rules.max:
        return window
    control, limit = window.control, window.limit
    if kv_usage is not None:
        control = control._replace(kv_full_until=now + KV_HOLD_SECONDS if kv_usage > KV_FULL else -inf)
    if waiting is not None:
        run = control.waiting_reports + 1 if waiting > 0 else 0
        if run > 1 and now - control.queued_since > RUN_SECONDS:
            run = 1
        since = now if run == 1 else control.queued_since
        control = control._replace(waiting_reports=run % WAITING_REPORTS, queued_since=since)
        if run == WAITING_REPORTS:
            limit, control = max(limit - waiting / 2, rules.min), control._replace(probing=0)
    return window._replace(limit=limit, control=control)


def pushed_back(window: Window, now: float, rules: WindowRules) -> Window:
    """At most once per mean service: those that were sent before know nothing of the smaller window yet."""
    control = window.control
    if rules.min == rules.max or now - control.pushed_back_at < control.mean_seconds:
        return window
    limit = max(window.limit * BACKOFF, rules.min)
    return window._replace(limit=limit, control=control._replace(pushed_back_at=now, probing=0))


def _evaluated(window: Window, now: float, rules: WindowRules) -> Window:
    limit, control = window.limit, window.control
    in_flight = max(window.in_flight_sum / window.samples, 1.0)
    seconds = max(window.seconds_sum / window.samples, 1e-6)
    p95_seconds = seconds + P95_DEVIATIONS * sqrt(max(window.squares_sum / window.samples - seconds**2, 0.0))
    high = max(limit, control.resume if control.probing else 0.0, control.high * HIGH_DECAY)
    low = in_flight <= max(LOW_SHARE * high, rules.min)
    line = control.line
    # A queue only adds: less than the line at any level is a faster engine.
    if control.queued_once and (low or control.slowdown < FASTER):
        line = scaled(line, in_flight, seconds)
    if low or not control.queued_once:
        line = line_learnt(line, in_flight, seconds)
    slowdown = max((seconds - line.slope * in_flight) / line.base, 0.1)
    slowdown = control.slowdown + SMOOTHING * (slowdown - control.slowdown)
    queue = in_flight * (1.0 - 1.0 / slowdown)
    step = log10(max(limit, 3.0))
    if queue > step and not control.queued_once:
        line = without_levels_above(line, CLEAN_SHARE * limit, seconds)
    kv_free = now >= control.kv_full_until
    may_grow = kv_free and p95_seconds < 0.8 * rules.target_seconds and in_flight >= BUSY_SHARE * limit
    low_seen_at = control.low_seen_at
    if low:
        low_seen_at = now
    elif low_seen_at == -inf or (slowdown < FASTER and control.queued_once):
        low_seen_at = now - PROBE_SECONDS + FIRST_PROBE_SECONDS
    probing, resume, resting = control.probing, control.resume, False
    if probing:
        probing -= 1
        if not probing and kv_free:
            limit = resume
    elif p95_seconds > 1.2 * rules.target_seconds and not control.resting:
        limit, resting = limit * BACKOFF, True
    elif queue > SHRINK_STEPS * step and not control.resting:
        limit -= step
    elif now - low_seen_at > PROBE_SECONDS:
        probing, resume, limit = PROBE_INTERVALS, limit, limit / 2
    elif queue < GROW_STEPS * step and may_grow and not control.resting:
        limit += step
    control = Control(
        line, control.queued_once or queue > step, slowdown, seconds, high, low_seen_at, probing, resume, resting,
        control.kv_full_until, control.waiting_reports, control.queued_since, control.pushed_back_at,
    )  # fmt: skip
    cap = OUTLIER * (line.base + line.slope * rules.max)
    return Window(min(max(limit, rules.min), rules.max), now, cap_seconds=cap, control=control)
