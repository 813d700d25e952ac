"""From what is known of a request to its tag: estimated tokens, length class, cost, deadline, order of pools, path, and whether its emergency is granted.

State: what was learnt of lengths (`routing.lengths`), and each tenant's emergency budget.
Bounds: budgets exist for configured tenants while they are in use; orders of pools for what the configuration can ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from policies.cost import weighted_tokens
from policies.emergency_budget import UNUSED_BUDGET, EmergencyBudget, EmergencyBudgetRules, claimed
from policies.lengths import LengthRules, length_class
from policies.members import BATCH, COLD, EMERGENCY, HOT, INTERACTIVE
from policies.outputs import OutputRules
from policies.pool_choice import PoolChoiceRules, PoolFacts, is_realtime, preference
from policies.terms import LengthClass, PoolName, Tag
from routing.counts import Counts
from routing.decision import Intent, Lease
from routing.lengths import Lengths
from routing.placement import Placement

MAX_BUDGETS = 10_000
MAX_ORDERS = 1_000
_UNKNOWN = LengthClass.UNKNOWN


@dataclass(frozen=True, slots=True)
class TaggerRules:
    lengths: LengthRules = field(default_factory=LengthRules)
    budget: EmergencyBudgetRules = field(default_factory=EmergencyBudgetRules)
    pool_choice: PoolChoiceRules = field(default_factory=PoolChoiceRules)


class Tagger:
    def __init__(self, rules: TaggerRules, counts: Counts, placement: Placement) -> None:
        self._counts = counts
        self._placement = placement
        self.lengths = Lengths(rules.lengths, OutputRules())
        self._budgets: dict[str, EmergencyBudget] = {}
        self._pools: Sequence[PoolFacts] = ()
        self._has_bounds = False
        self._orders: dict[tuple[tuple[PoolName, ...], bool], tuple[PoolName, ...]] = {}
        self.batch_is_cold = False
        """Whether a request that comes as batch is a cold one, whatever its prompt."""
        self._preferred: frozenset[PoolName] = frozenset()
        """Pools that come before the others of any order."""
        self.rules = rules

    def configure(self, pools: Sequence[PoolFacts], rules: TaggerRules) -> None:
        self.rules = rules
        self.lengths.configure(rules.lengths)
        self._pools = pools
        self._has_bounds = any(pool.min_prompt_tokens > 0 or pool.max_prompt_tokens < inf for pool in pools)
        self._orders.clear()

    def prefer(self, pools: frozenset[PoolName]) -> bool:
        """Whether that changed anything."""
        if pools == self._preferred:
            return False
        self._preferred = pools
        self._orders.clear()
        return True

    def tag(self, model: str, intent: Intent, now: float, served_per_second: float) -> Tag:
        """`pools` is empty where no pool takes such a request."""
        rules = self.rules
        (
            business, lane, tenant, weight, target, size, max_tokens, streamed, named, backend, _, key, path, is_held,
        ) = intent  # fmt: skip
        if lane is EMERGENCY and not self._grants(tenant, now, served_per_second):
            lane = INTERACTIVE
        prompt = output = output_p90 = 0.0
        length = _UNKNOWN
        cost = 1.0
        if size is not None:
            prompt, output, output_p90 = self.lengths.arrived(model, business, size, max_tokens)
            length = length_class(prompt, rules.lengths)
            cost = weighted_tokens(prompt, 0.0, output)
            if cost < 1.0:
                cost = 1.0
        realtime = is_realtime(lane, prompt, output, rules.pool_choice)
        pools = named if is_held else self._order(named, prompt, realtime, size is not None)
        hot = 0
        if key is not None or path is not None:
            placement = self._placement
            if not placement.rules.enabled:
                key = None
            elif key is not None:
                is_hot, hot = placement.heat(key, now)
                path = path or (HOT if is_hot else COLD)
            if self.batch_is_cold and lane is BATCH:
                path = COLD
            placement.paths.arrived(path or COLD, cost)
        return Tag(
            business, length, lane, path or COLD, tenant, weight, prompt, output, output_p90, cost, streamed, target,
            now + target, pools, backend, key, hot,
        )  # fmt: skip

    def pools_of(self, intent: Intent, tag: Tag) -> tuple[PoolName, ...]:
        """The order for a request that was tagged under another configuration."""
        if intent.is_held:
            return intent.pools
        realtime = is_realtime(tag.lane, tag.prompt_tokens, tag.output_tokens, self.rules.pool_choice)
        return self._order(intent.pools, tag.prompt_tokens, realtime, intent.size is not None)

    def line_up(self, lease: Lease) -> None:
        """For the pools of now: the configuration may have changed while it ran."""
        pools = self.pools_of(lease.intent, lease.tag)
        if pools != lease.line.pools:
            lease.tag = lease.tag._replace(pools=pools)
            lease.line = lease.line._replace(pools=pools)

    def learned(self, lease: Lease, prompt_tokens: int, completion_tokens: int) -> None:
        """From the engine's count of a request that ended well. Nothing where part of the prompt is in the engine's memory alone."""
        size = lease.intent.size
        if size is not None and not lease.intent.is_held:
            model, tag = lease.line.model, lease.tag
            if self.lengths.learned(model, tag.business, size, prompt_tokens, completion_tokens):
                self._counts.estimated(tag.prompt_tokens, prompt_tokens)

    def _grants(self, tenant: str, now: float, served_per_second: float) -> bool:
        budget = claimed(
            self._budgets.get(tenant, UNUSED_BUDGET), now, 1.0, served_per_second, self.rules.budget
        )
        self._counts.emergencies[tenant, budget is not None] += 1
        if budget is None:
            return False
        if len(self._budgets) >= MAX_BUDGETS and tenant not in self._budgets:
            self._budgets.clear()  # tenants that a configuration no longer has; a fresh burst for the rest
        self._budgets[tenant] = budget
        return True

    def _order(
        self, named: tuple[PoolName, ...], prompt_tokens: float, realtime: bool, is_known: bool
    ) -> tuple[PoolName, ...]:
        if self._has_bounds and is_known:
            return self._preferred_first(preference(self._pools, named, prompt_tokens, realtime))
        order = self._orders.get((named, realtime))
        if order is None:
            unbounded = [pool._replace(min_prompt_tokens=0.0, max_prompt_tokens=inf) for pool in self._pools]
            order = self._preferred_first(preference(unbounded, named, 0.0, realtime))
            if len(self._orders) < MAX_ORDERS:
                self._orders[named, realtime] = order
        return order

    def _preferred_first(self, order: tuple[PoolName, ...]) -> tuple[PoolName, ...]:
        preferred = self._preferred
        return tuple(sorted(order, key=lambda name: name not in preferred)) if preferred else order
