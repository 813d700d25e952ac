"""How many requests one backend may hold at once.

Decides: the window `limit` of one backend, between `min` and `max`, from the service times of its own requests and from what the engine says.
Once per control interval in which the window was full (mean in flight >= 0.95 of it), L the limit and l = log10(max(L, 3)):
    queue = L * (1 - 1 / slowdown)              slowdown against the engine's own past at that number in flight (policies/concurrency_profile.py)
    queue > 6 l: L -= l  (at least 1);          TCP Vegas' bounds; queue > 3 l: no growth
    else L moves to the number of the best throughput for its latency; where that is L itself, a neighbour is looked at:
        a third above until one was worse, from then on an eighth above every 60 intervals (10 while it was seen only once),
        and 0.7 L every 600 intervals in which nothing from 0.5 to 0.8 L was seen
An interval in which the window was half full or more also keeps the target: 95th percentile > 1.2 * `target_seconds`: L *= 0.9 and one
interval's rest; growth only below 0.8 * `target_seconds`. Below half nothing moves, and an idle backend's window stays what it was.
The engine: the least of three reports in a row says that more than max(1, L / 8) wait: L -= half of that; fewer wait for the next step
only. KV cache > 0.9: no growth. 429/503: L *= 0.9. After a queue or a push-back L stays below where it was for 60 s.
Inputs: seconds from dispatch to the end of requests that ended well; `in_flight` at that moment, itself included; `work`, what the request
had to compute in tokens: output tokens + uncached prompt tokens / 500 or so, any unit, 1.0 where unknown (policies/work_fit.py takes the share
of the length out); the engine's numbers, None where unknown, and only fresh ones (at most 1 s old). Not to be given: cancelled, refused and
cached answers, and the first three after a connection came back.
Settings: `start`, `min`, `max` (1..100000 requests; min == max is a fixed window), `target_seconds` (default infinite: no target).
Control interval: 1 s or two mean services, with 20 samples; five times that with 5. Only requests sent within it count, each with at most four
times what is expected of it.
Limits: a backend shared with other gateways looks like a slower one. A window of 256 and more costs throughput for latency: where each
percent more in flight brings less than 0.15 % of throughput, it stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log10, sqrt
from typing import NamedTuple

from policies.concurrency_profile import UNKNOWN, Profile, best_in_flight, is_due, measured, turns_since_below
from policies.work_fit import UNFITTED, WorkFit, WorkSums, fitted, level

INTERVAL_SECONDS = 1.0
ENOUGH_SAMPLES = 20
FEW_SAMPLES = 5
FEW_SAMPLES_INTERVALS = 5.0
GROW_STEPS = 3.0
SHRINK_STEPS = 6.0
BACKOFF = 0.9
FULL_SHARE = 0.95
FIRST_CLIMB = 1 / 3
LATER_CLIMB = 1 / 8
DIP = 0.7
PROBE_TURNS = 60
DIP_TURNS = 600
CEILING_SECONDS = 60.0
KV_FULL = 0.9
KV_HOLD_SECONDS = 3.0
WAITING_REPORTS = 3
STANDING_SHARE = 1 / 8
OUTLIER = 4.0
P95_DEVIATIONS = 1.65
_HERE = 0.6
"""Two numbers in flight this close are the same window."""


@dataclass(frozen=True, slots=True)
class WindowRules:
    start: int
    min: int
    max: int
    target_seconds: float = inf


class Control(NamedTuple):
    """What changes once per interval or at a report."""

    profile: Profile = UNKNOWN
    fit: WorkFit = UNFITTED
    mean_seconds: float = 0.5 * INTERVAL_SECONDS
    """Of a request of the fit's reference work."""
    surpassed: bool = False
    """A number above the best was seen: the first climb is over."""
    resting: bool = False
    kv_full_until: float = -inf
    waiting: tuple[int, ...] = ()
    """The engine's queue in the reports of the present run."""
    pushed_back_at: float = -inf
    ceiling: float = inf
    ceiling_until: float = -inf


class Window(NamedTuple):
    limit: float
    since: float = inf
    """Start of the control interval; infinite before the first sample of the first."""
    samples: int = 0
    in_flight_sum: int = 0
    seconds_sum: float = 0.0
    squares_sum: float = 0.0
    work_sum: float = 0.0
    work_squares: float = 0.0
    products: float = 0.0
    """Of work and seconds."""
    last: float = -inf
    cap: float = inf
    cap_slope: float = 0.0
    """A sample counts as at most `cap + cap_slope * work`."""
    control: Control = Control()


def started(rules: WindowRules) -> Window:
    return Window(float(min(max(rules.start, rules.min), rules.max)))


def sampled(
    window: Window, service_seconds: float, in_flight: int, now: float, rules: WindowRules, work: float = 1.0
) -> Window:
    if rules.min == rules.max:
        return window
    (
        limit,
        since,
        samples,
        load,
        seconds,
        squares,
        works,
        work_squares,
        products,
        last,
        cap,
        slope,
        control,
    ) = window
    # Two services: fewer would leave out the long requests among those that were sent within it.
    interval = max(INTERVAL_SECONDS, 2.0 * control.mean_seconds)
    # What was gathered before a long silence says nothing of the engine today.
    if since == inf or now - last > FEW_SAMPLES_INTERVALS * interval:
        return _afresh(window, limit, control, now)
    if now - service_seconds < since:
        return window if now - last < INTERVAL_SECONDS else window._replace(last=now)
    samples += 1
    taken = min(service_seconds, cap + slope * work)
    gathered = Window(
        limit, since, samples, load + in_flight, seconds + taken, squares + taken * taken, works + work,
        work_squares + work * work, products + work * taken, now, cap, slope, control,
    )  # fmt: skip
    elapsed = now - since
    if elapsed < interval or samples < FEW_SAMPLES:
        return gathered
    if samples < ENOUGH_SAMPLES and elapsed < FEW_SAMPLES_INTERVALS * interval:
        return gathered
    return _evaluated(gathered, now, rules)


def reported(
    window: Window, waiting: int | None, kv_usage: float | None, now: float, rules: WindowRules
) -> Window:
    """An unknown number leaves what is known: a full KV cache counts for 3 s, a run of queues goes on."""
    if rules.min == rules.max:
        return window
    limit, control = window.limit, window.control
    if kv_usage is not None:
        control = control._replace(kv_full_until=now + KV_HOLD_SECONDS if kv_usage > KV_FULL else -inf)
    if waiting is None:
        return window._replace(control=control)
    run = (*control.waiting[1 - WAITING_REPORTS :], waiting) if waiting > 0 else ()
    standing = min(run, default=0)
    if len(run) < WAITING_REPORTS or standing <= max(1.0, STANDING_SHARE * limit):
        return window._replace(control=control._replace(waiting=run))
    limit = max(limit - standing / 2, rules.min)
    control = control._replace(waiting=(), surpassed=True, ceiling=limit, ceiling_until=now + CEILING_SECONDS)
    return _afresh(window, limit, control, now)


def pushed_back(window: Window, now: float, rules: WindowRules) -> Window:
    """At most once per mean service: those that were sent before know nothing of the smaller window yet."""
    control = window.control
    if rules.min == rules.max or now - control.pushed_back_at < control.mean_seconds:
        return window
    control = control._replace(
        pushed_back_at=now, ceiling=max(window.limit - 1, rules.min), ceiling_until=now + CEILING_SECONDS
    )
    return _afresh(window, max(window.limit * BACKOFF, rules.min), control, now)


def _afresh(window: Window, limit: float, control: Control, now: float) -> Window:
    return Window(limit, now, last=now, cap=window.cap, cap_slope=window.cap_slope, control=control)


def _evaluated(window: Window, now: float, rules: WindowRules) -> Window:
    limit, control, count = window.limit, window.control, window.samples
    profile, surpassed, resting = control.profile, control.surpassed, False
    sums = WorkSums(
        count, max(window.seconds_sum, 1e-9), window.work_sum, window.work_squares, window.products
    )
    fit = fitted(control.fit, sums)
    reference_seconds = level(fit, sums)
    seconds = sums.seconds / count
    p95_seconds = seconds + P95_DEVIATIONS * sqrt(max(window.squares_sum / count - seconds * seconds, 0.0))
    in_flight = max(window.in_flight_sum / count, 1.0)
    held = int(limit)
    full = in_flight >= FULL_SHARE * held
    if full:
        profile = measured(profile, in_flight, reference_seconds, now)
    if in_flight >= held / 2 and p95_seconds > 1.2 * rules.target_seconds:
        if not control.resting:
            limit, resting = limit * BACKOFF, True
    elif full:
        ceiling = control.ceiling if now < control.ceiling_until else inf
        high = max(limit, min(rules.max, ceiling))
        surpassed = surpassed or held >= int(high) or best_in_flight(profile) < held - _HERE
        may_grow = (
            now >= control.kv_full_until and p95_seconds < 0.8 * rules.target_seconds and not control.resting
        )
        limit = _moved(limit, profile, high if may_grow else limit, surpassed, rules.min)
    mean_seconds = reference_seconds
    if control.fit.samples:
        mean_seconds = control.mean_seconds + 0.5 * (reference_seconds - control.mean_seconds)
    control = control._replace(
        profile=profile, fit=fit, mean_seconds=mean_seconds, surpassed=surpassed, resting=resting
    )
    limit = min(max(limit, rules.min), rules.max)
    cap = OUTLIER * mean_seconds
    return Window(limit, now, last=now, cap=cap * fit.intercept, cap_slope=cap * fit.slope, control=control)


def _moved(limit: float, profile: Profile, high: float, surpassed: bool, low: int) -> float:
    """Growth ends at `high`."""
    held = int(limit)
    steps = log10(max(limit, 3.0))
    queue = held * (1.0 - 1.0 / max(1.0, profile.slowdown))
    if queue > SHRINK_STEPS * steps:
        return limit - max(1.0, steps)
    best = best_in_flight(profile)
    if best < held - _HERE:
        return best + 0.01
    if queue > GROW_STEPS * steps:
        return limit
    if best > held + _HERE:
        return min(best + 0.01, limit + max(1.0, steps, (best - limit) / 2), high)
    further = min(held + max(1.0, held * (LATER_CLIMB if surpassed else FIRST_CLIMB)), high)
    if int(further) > held and is_due(profile, int(further), PROBE_TURNS):
        return further
    if surpassed and held > low and turns_since_below(profile, held) > DIP_TURNS:
        return held * DIP
    return limit
