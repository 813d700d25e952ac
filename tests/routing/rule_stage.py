"""The router under degradation rules: virtual time, and metrics that the test says.

`Stage` has a router with `pools`; `told` sets a metric, `beat` passes time. `trace` is all that a rule's action may touch, so that two equal traces mean that nothing was left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policies.degradation import Operator, Rule
from policies.degradation_actions import Action, action_of
from policies.gathering import GatheringRules
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolFacts, PoolTag
from policies.rule_events import RuleEvent
from policies.terms import BackendId, CachePath, Lane, PoolName, Refusal
from routing.backend import Backend, BackendPlan
from routing.decision import Decision, Intent, Lease, Ticket
from routing.degradation import DegradationRules
from routing.fleet import PoolPlan
from routing.router import Router
from routing.rules import Rules

HOT = Intent(path=CachePath.HOT)
LANES = (Lane.EMERGENCY, Lane.INTERACTIVE, Lane.STANDARD, Lane.BATCH)


class Told:
    """Metrics as a test tells them. What it has not told is unknown."""

    def __init__(self) -> None:
        self.values: dict[tuple[Metric, Scope, str], float | None] = {}
        self.at: dict[tuple[Metric, Scope, str], float] = {}

    def value(self, metric: Metric, scope: Scope, subject: str, now: float) -> float | None:
        return self.values.get((metric, scope, subject))

    def sampled_at(self, metric: Metric, scope: Scope, subject: str) -> float:
        return self.at.get((metric, scope, subject), -1.0)


def pool(
    name: str,
    *tags: PoolTag,
    backends: int = 1,
    window: int | None = 8,
    gathering: GatheringRules | None = None,
) -> tuple[PoolPlan, list[BackendPlan]]:
    """Backends `name0`, `name1`, ..."""
    plans = [BackendPlan(BackendId(f"{name}{index}"), PoolName(name), window) for index in range(backends)]
    return PoolPlan(PoolFacts(PoolName(name)), gathering, tags=frozenset(tags)), plans


class Stage:
    def __init__(
        self,
        *pools: tuple[PoolPlan, list[BackendPlan]],
        rules: Sequence[Rule] = (),
        ladder: bool = False,
        core: Rules | None = None,
        time_scale: float = 1.0,
    ) -> None:
        self.pools = pools or (pool("p", backends=2),)
        self.core = core or Rules()
        self.router = Router(self.core)
        self._watch()
        self.configure(rules, ladder, time_scale)

    @classmethod
    def around(cls, router: Router) -> Stage:
        """One that somebody else has configured."""
        stage = cls.__new__(cls)
        stage.router = router
        stage._watch()
        return stage

    def _watch(self) -> None:
        self.metrics = Told()
        self.router.degradation.values = self.metrics
        self.now = 0.0

    def configure(self, rules: Sequence[Rule], ladder: bool = False, time_scale: float = 1.0) -> None:
        core = replace(self.core, degradation=DegradationRules(tuple(rules), ladder, time_scale))
        plans = [plan for _, backends in self.pools for plan in backends]
        self.router.configure(plans, core, [plan for plan, _ in self.pools])

    def told(
        self, metric: Metric, value: float | None, scope: Scope = Scope.FLEET, subject: str = ""
    ) -> None:
        key = metric, scope, subject
        self.metrics.values[key] = value
        self.metrics.at[key] = self.now

    def beat(self, seconds: float = 1.0) -> list[RuleEvent]:
        self.now += seconds
        return self.router.degradation.beat(self.now)

    def beats(self, seconds: float, every: float = 1.0) -> list[RuleEvent]:
        """The events of so many seconds."""
        end, events = self.now + seconds, []
        while self.now + every <= end + 1e-9:
            events += self.beat(every)
        return events

    def active(self) -> set[tuple[str, str]]:
        """Rules that act, with their subjects."""
        return {(one.rule.name, one.subject) for one in self.router.degradation if one.is_active}

    def arrive(self, intent: Intent = HOT, model: str = "") -> Decision:
        return self.router.arrive(model, self.now, intent)

    def leased(self, intent: Intent = HOT) -> Lease:
        decision = self.arrive(intent)
        assert isinstance(decision, Lease), decision
        return decision

    def waiting(self, intent: Intent = HOT) -> Ticket:
        decision = self.arrive(intent)
        assert isinstance(decision, Ticket), decision
        return decision

    def finish(self, *leases: Lease) -> None:
        for lease in leases:
            self.router.finish(lease, self.now)

    def fits(self, intent: Intent = HOT) -> dict[str, int]:
        """How many of these run at once on each backend; they have ended when it returns."""
        leases, counts = [], {backend.id: 0 for backend in self.router.fleet}
        while isinstance(decision := self.arrive(intent), Lease):
            leases.append(decision)
            counts[decision.backend.id] += 1
        if isinstance(decision, Ticket):
            self.router.cancel(decision)
        self.finish(*leases)
        return {id: count for id, count in counts.items() if count}

    def objection(self, intent: Intent = HOT) -> Refusal | None:
        """Why it is not let in; None where it runs or waits."""
        decision = self.arrive(intent)
        if isinstance(decision, Lease):
            self.finish(decision)
        elif isinstance(decision, Ticket):
            self.router.cancel(decision)
        return decision if isinstance(decision, Refusal) else None

    def backend(self, id: str) -> Backend:
        found = self.router.fleet.get(BackendId(id))
        assert found is not None
        return found

    def trace(self) -> dict[str, Any]:
        router = self.router
        return {
            "effects": router.degradation.effects,
            "backends": [(one.id, set(one.holds), dict(one.shares), one.window) for one in router.fleet],
            "pools": [
                (one.name, one.gathering, one.capacity, one.usable) for one in router.fleet.pools.values()
            ],
            "gathers": router.fleet.gathers,
            "entrance": [
                self.objection(Intent(lane=lane, path=path)) for lane in LANES for path in CachePath
            ],
            "order": router.tagger.pools_of(HOT, self.tag()),
            "clamps": (router.clamps.is_on, [router.clamps.limit(lane, "", "default") for lane in LANES]),
            "wait": router.entrance.wait_seconds(self.now),
            "fits": self.fits(),
            "batch_shares": [one.batch_share for one in router.fleet.pools.values()],
            "batch_path": self.tag(HOT._replace(lane=Lane.BATCH)).path,
            "absorbs_bursts": router.admission.overload.absorbs_bursts,
        }

    def tag(self, intent: Intent = HOT) -> Any:
        return self.router.tagger.tag("", intent, self.now, 1.0)


def rule(*actions: Action | str, name: str = "r", scope: Scope = Scope.FLEET, **fields: Any) -> Rule:
    """Above 0.5 of a metric of its scope it takes hold, and at 0.5 it lets go, both at once."""
    metric = Metric.GPU_UTILISATION_RATIO if scope is Scope.BACKEND else Metric.SATURATION_RATIO
    return Rule(
        name,
        **{
            "metric": metric,
            "scope": scope,
            "operator": Operator.ABOVE,
            "threshold": 0.5,
            "actions": tuple(action_of(one) if isinstance(one, str) else one for one in actions),
            "clear_seconds": 0.0,
            "min_hold_seconds": 0.0,
            **fields,
        },
    )
