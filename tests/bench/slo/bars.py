"""The bars, and whether a run meets them.

`allowed` is the share of the burst's arrivals that the fleet could answer at most: min(1, saturation throughput / arrivals), with the saturation
measured in the same run by full batches at every engine and no gateway. It says nothing of targets: a call that a full batch of 16 answers in
250 ms counts for it whatever it had waited.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.arithmetic import percentile
from tests.bench.slo.kinds import KINDS
from tests.bench.slo.schedule import AFTER, BURST, REFERENCE, STEADY, WARM_UP, Phase, starts
from tests.bench.slo.shares import Ended, Ending, allowed_share, refusal_times_ms, share_inside

STEADY_SHARE = 0.995
OF_ALLOWED = 0.95
TYPE_OF_ALLOWED = 0.5
AFTER_SHARE = 0.99
AFTER_FROM_SECONDS = 1.0
"""The second second begins here."""
EMERGENCY_SHARE = 0.99
EMERGENCY_QUEUE_MS = 50.0
REFUSAL_MS = 20.0
UNTAGGED_POINTS = 2.0
COUNTING_NOISE = 0.02
"""What the goodput of a 10 s burst is uncertain by: some 4,300 answers, 1.5 % being one standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    name: str
    value: float
    bar: float
    unit: str = "%"
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar


def verdicts(calls: Sequence[Ended], phases: Sequence[Phase], saturation_rate: float) -> list[Verdict]:
    """Of a whole run. A bar whose phase the run does not have is left out."""
    found: list[Verdict] = []
    edges = starts(phases)
    for number, phase in enumerate(phases):
        inside_phase = [one for one in calls if one.call.phase == number]
        if phase.name == WARM_UP or not inside_phase:
            continue
        if phase.name == STEADY:
            found.append(_share(f"{phase.name}: inside target", share_inside(inside_phase), STEADY_SHARE))
        if phase.name == BURST:
            allowed = allowed_share(saturation_rate, len(inside_phase), phase.seconds)
            share = share_inside(inside_phase)
            found.append(
                _share(
                    f"{phase.name}: inside target, of the {allowed:.1%} allowed", share / allowed, OF_ALLOWED
                )
            )
            for kind_number, kind in enumerate(KINDS):
                share = share_inside(one for one in inside_phase if one.call.kind == kind_number)
                found.append(
                    _share(f"{phase.name}: {kind.name}, of its fair share", share / allowed, TYPE_OF_ALLOWED)
                )
        if phase.name == AFTER:
            later = [one for one in inside_phase if one.call.due >= edges[number] + AFTER_FROM_SECONDS]
            if later:
                found.append(
                    _share(
                        f"{phase.name}: inside target from the 2nd second on",
                        share_inside(later),
                        AFTER_SHARE,
                    )
                )
        found += _emergencies(phase.name, [one for one in inside_phase if one.call.emergency])
    found += _collapse(calls, phases)
    refusals = refusal_times_ms(calls)
    if refusals:
        found.append(_at_most("refusals answered, P99", percentile(refusals, 0.99), REFUSAL_MS, "ms"))
    timed_out = sum(one.ending is Ending.TIMED_OUT for one in calls)
    failed = sum(one.ending is Ending.FAILED for one in calls)
    return [*found, _at_most("timed out", timed_out, 0, ""), _at_most("failed", failed, 0, "")]


def untagged_verdicts(
    tagged: Sequence[Ended], untagged: Sequence[Ended], phases: Sequence[Phase]
) -> list[Verdict]:
    """How much worse a run is whose types had to be found in the texts, in points of the share inside target."""
    found = []
    for number, phase in enumerate(phases):
        if phase.name != WARM_UP:
            with_tags = share_inside(one for one in tagged if one.call.phase == number)
            without = share_inside(one for one in untagged if one.call.phase == number)
            name = f"{phase.name}: untagged traffic behind tagged"
            found.append(_at_most(name, 100 * (with_tags - without), UNTAGGED_POINTS, "points"))
    return found


def goodput(calls: Sequence[Ended], phases: Sequence[Phase], name: str) -> float:
    """Answers inside target that came during the phase, per second.

    Not those of its arrivals: what waits and runs at its end would flatter a short phase against a long one.
    """
    edges = starts(phases)
    spans = [
        (edges[number], edges[number] + phase.seconds)
        for number, phase in enumerate(phases)
        if phase.name == name
    ]
    came = [one.call.due + one.latency_ms / 1000 for one in calls if one.ending is Ending.INSIDE]
    inside = sum(begin <= at < end for begin, end in spans for at in came)
    seconds = sum(end - begin for begin, end in spans)
    return inside / seconds if seconds else math.nan


def _emergencies(phase: str, calls: Sequence[Ended]) -> list[Verdict]:
    if not calls:
        return []
    found = [_share(f"{phase}: emergencies inside target", share_inside(calls), EMERGENCY_SHARE)]
    waits = [one.queue_ms for one in calls if one.queue_ms >= 0]
    if waits:
        found.append(
            _at_most(
                f"{phase}: emergencies in the queue, P99", percentile(waits, 0.99), EMERGENCY_QUEUE_MS, "ms"
            )
        )
    return found


def _collapse(calls: Sequence[Ended], phases: Sequence[Phase]) -> list[Verdict]:
    reference = goodput(calls, phases, REFERENCE)
    if math.isnan(reference):
        return []
    share = goodput(calls, phases, BURST) / reference if reference else math.nan
    return [_share(f"{BURST}: goodput, of that in the {REFERENCE}", share, 1 - COUNTING_NOISE)]


def _share(name: str, share: float, bar: float) -> Verdict:
    return Verdict(name=name, value=100 * share, bar=100 * bar)


def _at_most(name: str, value: float, bar: float, unit: str) -> Verdict:
    return Verdict(name=name, value=value, bar=bar, unit=unit, at_least=False)
