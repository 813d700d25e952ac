"""Who is served next where several want the same slots: hierarchical start-time fair queueing on token cost.

Decides: how far a node of the tree (a group of lanes, a lane, a tenant, a business type) has been served (`charged`, `rested`, `caught_up`), when a
request is due inside its flow (`due`), which flows starve (`is_starving`), which bound a full queue has hit (`bound_hit`), and how much is served
before a newcomer (`served_meanwhile`).
Every node has a weight w and a service counter S, every parent a virtual time V of its children; the child with the smallest S is served first.
    dispatched:  V = max(V, S);  S = S + cost / w, with the predicted cost
    trued up:    S = S + (actual - charged) / w, either sign
    becomes backlogged after `idle` seconds:  S = V + max(0, S - V) * 0.5^(idle / half-life), so that an idle node saves up nothing; and at most
        V + `debt_requests` * its largest request / w after `debt_idle_seconds`
    dispatched below V (its line was blocked, or predictions were too high):  S = V - (V - S) * 0.5^(seconds since its last / half-life)
Two children that stay backlogged get |W_f / w_f - W_g / w_g| <= largest_f / w_f + largest_g / w_g, however fast or slow the service is.
Weights: `fairness_weight` is the share of the latency-sensitive group (interactive) against the throughput group (standard and batch, of which
`standard_weight` : `batch_weight`); a tenant's own; business types of one tenant are equal. Emergencies stand outside.
Inputs: cost in weighted tokens, seconds, requests. Sources: SFQ (Goyal 1996), which needs no service rate; the lift and charging by tokens of
VTC (Sheng 2024); starvation thresholds of the field.
Settings: `fairness_weight` (0.05..0.95, default 0.6), `standard_weight` (0.01..1000, default 4), `batch_weight` (0.01..1000, default 1),
`half_life_seconds` (1..86400, default 60), `debt_requests` (0..1000, default 2), `debt_idle_seconds` (0..3600, default 30),
`interactive_starving_seconds`, `standard_starving_seconds`, `batch_starving_seconds` (0.1..3600, defaults 5, 30, 120), `starving_every` (one dispatch in
so many may go to a starving flow, 1..1000, default 8), `max_waiting_per_flow` (0..1000000, default 256), `max_waiting_per_lane` and `max_waiting`
(0..1000000, default 1024), `max_flows` (flows remembered while they are idle, 1..1000000, default 10000).
Limits: shares are of cost, not of time; a node that is served where nobody else may be is ahead of those who wait elsewhere, for some half-lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import exp2, inf

from policies.members import BATCH, INTERACTIVE, STANDARD
from policies.terms import Lane


@dataclass(frozen=True, slots=True)
class FairnessRules:
    fairness_weight: float = 0.6
    standard_weight: float = 4.0
    batch_weight: float = 1.0
    half_life_seconds: float = 60.0
    debt_requests: float = 2.0
    debt_idle_seconds: float = 30.0
    interactive_starving_seconds: float = 5.0
    standard_starving_seconds: float = 30.0
    batch_starving_seconds: float = 120.0
    starving_every: int = 8
    max_waiting_per_flow: int = 256
    max_waiting_per_lane: int = 1024
    max_waiting: int = 1024
    max_flows: int = 10_000


class QueueBound(StrEnum):
    """Which bound a newcomer meets."""

    FLOW = "flow"
    LANE = "lane"
    TOTAL = "total"


def charged(service: float, cost: float, weight: float) -> float:
    """Also the true-up: `cost` is then the difference and may be negative."""
    return service + cost / weight


def rested(
    service: float,
    virtual_time: float,
    idle_seconds: float,
    largest_cost: float,
    weight: float,
    rules: FairnessRules,
) -> float:
    """The counter of a node that had nothing waiting for `idle_seconds` since it was last charged."""
    debt = service - virtual_time
    if debt <= 0.0:
        return virtual_time
    if idle_seconds > 0.0:
        debt *= exp2(-idle_seconds / rules.half_life_seconds)
        if idle_seconds > rules.debt_idle_seconds:
            debt = min(debt, rules.debt_requests * largest_cost / weight)
    return virtual_time + debt


def caught_up(service: float, virtual_time: float, seconds: float, rules: FairnessRules) -> float:
    """The counter, below `virtual_time`, of a node that was last charged `seconds` ago: what it lags behind fades too."""
    return virtual_time - (virtual_time - service) * exp2(-max(seconds, 0.0) / rules.half_life_seconds)


def due(deadline: float, arrived: float, starving_seconds: float) -> float:
    """Where a request stands in its flow. Without a deadline it is due when it would starve, so that later ones with one cannot pass it for ever."""
    return deadline if deadline != inf else arrived + starving_seconds


def starving_seconds(lane: Lane, rules: FairnessRules) -> float:
    """How long a flow may wait without being served. Infinite for emergencies, which wait for nobody else."""
    if lane is INTERACTIVE:
        return rules.interactive_starving_seconds
    if lane is STANDARD:
        return rules.standard_starving_seconds
    return rules.batch_starving_seconds if lane is BATCH else inf


def is_starving(unserved_seconds: float, lane: Lane, rules: FairnessRules) -> bool:
    return unserved_seconds >= starving_seconds(lane, rules)


def bound_hit(flow: int, lane: int, total: int, rules: FairnessRules) -> QueueBound | None:
    """The narrowest bound that one more request would exceed, given how many wait."""
    if flow >= rules.max_waiting_per_flow:
        return QueueBound.FLOW
    if lane >= rules.max_waiting_per_lane:
        return QueueBound.LANE
    return QueueBound.TOTAL if total >= rules.max_waiting else None


def served_meanwhile(
    own_cost: float, weight: float, debt: float, others_cost: float, others_weight: float
) -> float:
    """What backlogged siblings get while a node that is `debt` ahead of them gets `own_cost`: their fair share, or all that they wait for."""
    return min(others_cost, others_weight * (own_cost / weight + max(debt, 0.0)))
