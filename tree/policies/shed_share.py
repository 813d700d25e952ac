"""How large a share of a lane's arrivals is shed in overload, and who: the heaviest flows first.

Decides: the share after each tick (`after_tick`), each flow's place among the arrivals (`places`) and whether one request is shed (`sheds`).
Share: a PI controller in velocity form on the queue delay, with the error e in targets of the detector (`policies.overload`), within
-1..`max_error`: share += kp * (e - last e) + ki * e * seconds. It leaves 0 only while the detector says overloaded, never exceeds
`max_share`, and falls by at least `fall_per_second` once the delay is below the target, so that it is gone before the next burst.
Who: arrivals stand in order of their flow's recent usage, the lightest first. A flow's place is (share of the arrivals that come from lighter flows,
share of its own and of equally heavy ones). With a uniform draw each request stands somewhere in [0, 1), and the upper `share` is shed: exactly that
share of the arrivals, lighter flows only after heavier ones are gone, equally heavy ones alike. Emergencies never are.
Tick: an eighth of the lane's budget, at least `min_tick_seconds`. The loop's gain is kp * load / (target per tick), so a fixed tick of 1 s,
with targets of 5 % of 300 ms, would swing between everything and nothing.
Source: the controller as in failsafe-go's prioritizer and PIE (RFC 8033), the order as in DAGOR. Gains and tick were chosen on one simulated
first-in-first-out queue (500 requests/s, bursts of 10 s, no deadlines) and measured on other seeds. Served within 70 % of the budget, of what the
capacity allows in the burst, budgets 0.3, 0.5 and 1 s: with `overloaded` always true 97-98 % at 1.2 times the capacity, 93-98 % at 2, 83-85 % at 3,
and 0.1 % shed at 0.8 times; with the detector 92-98 %, 67-84 % and 45-65 %, because half a second of queue is there before it speaks. So
the detector's caution is dear for budgets near its interval, unless `policies.shedding` keeps the queue short meanwhile.
Inputs: seconds; usage in cost served lately per weight; draws uniform in [0, 1): per request, or one per client and hour to refuse the same ones.
Settings: `kp` (0..10, default 0.05), `ki` (per second, 0..10, default 0.05), `max_error` (1..1000, default 8), `max_share` (0..1, default 0.95),
`fall_per_second` (0..10, default 0.5), `min_tick_seconds` (0.001..10, default 0.02).
Limit: places are as old as their last reckoning, O(flows log flows) each; a flow that appears since has none and counts as lightest. Not tuned
for budgets of seconds: at 5 s and 3 times the capacity 68 % (54 % with the detector), and up to a fifth of the 15 s after a burst is shed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policies.terms import Lane


@dataclass(frozen=True, slots=True)
class ShedShareRules:
    kp: float = 0.05
    ki: float = 0.05
    max_error: float = 8.0
    max_share: float = 0.95
    fall_per_second: float = 0.5
    min_tick_seconds: float = 0.02


class ShedShare(NamedTuple):
    share: float = 0.0
    error: float = 0.0


class Place(NamedTuple):
    """Of a flow among the arrivals, both in shares of them."""

    lighter: float = 0.0
    own: float = 0.0


SHEDS_NOTHING = ShedShare()
LIGHTEST = Place()


def tick_seconds(budget_seconds: float, rules: ShedShareRules) -> float:
    return max(budget_seconds / 8.0, rules.min_tick_seconds)


def after_tick(
    shed: ShedShare,
    delay_seconds: float,
    target: float,
    overloaded: bool,
    elapsed_seconds: float,
    rules: ShedShareRules,
) -> ShedShare:
    """`delay_seconds` is the smallest queue delay since the last tick, or the age of the oldest that waits if nothing was dispatched."""
    error = min((delay_seconds - target) / target, rules.max_error)
    if shed.share <= 0.0 and not overloaded:
        return ShedShare(0.0, error)
    change = rules.kp * (error - shed.error) + rules.ki * error * elapsed_seconds
    if error < 0.0:
        change = min(change, -rules.fall_per_second * elapsed_seconds)
    return ShedShare(min(max(shed.share + change, 0.0), rules.max_share), error)


def places(flows: Sequence[tuple[float, float]]) -> list[Place]:
    """One place for each (usage, arrivals) of a flow, both lately, in the same order."""
    total = sum(arrivals for _, arrivals in flows)
    if total <= 0.0:
        return [LIGHTEST] * len(flows)
    masses: dict[float, float] = {}
    for usage, arrivals in flows:
        masses[usage] = masses.get(usage, 0.0) + arrivals
    found: dict[float, Place] = {}
    lighter = 0.0
    for usage in sorted(masses):
        found[usage] = Place(lighter / total, masses[usage] / total)
        lighter += masses[usage]
    return [found[usage] for usage, _ in flows]


def sheds(lane: Lane, place: Place, draw: float, share: float) -> bool:
    if share <= 0.0 or lane is Lane.EMERGENCY:
        return False
    return place.lighter + draw * place.own >= 1.0 - share
