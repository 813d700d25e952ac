"""All degradation rules at work: each rule for each of its subjects, what they do together, and what operators have forced.

At each beat every rule reads its metric for every subject and goes on as `policies.degradation` says; then what holds is combined
(`policies.degradation_actions`) and enforced (`routing.enforcement`). A change of state is a `RuleEvent`.
A force beats the metric until it expires; underneath the metric is followed all the same, so that then its own state holds. Levels of the ladder are rules too:
one that is forced on is the level, whatever the metrics say, one that is forced off is not reached (`policies.ladder`).
A value of a scope is its own (`policies.metric_catalogue`), or put together from its backends that have one and are not on standby.
What a backend is told of in between (`told`) is looked at at once, so that a rule of one sample acts on that sample and not at the next beat.
Samples are told apart by when they were taken; a value that is put together is another one as soon as one of its backends was looked at anew.
Of a metric that is not known any more: see `policies.degradation`. The event of a rule that lets go for it says so, and its cause is `unknown`.
State: one record per rule and subject that the configuration makes. A rule that changes, or goes, ends where it stands; one that stays the same goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Protocol

from policies.degradation import IDLE, Aggregate, Rule, State, aggregated, scope_of_while, step
from policies.degradation_actions import (
    NO_EFFECTS,
    Asked,
    Effects,
    LimitRate,
    PreferFallback,
    combined,
    wording,
)
from policies.ladder import pinned
from policies.metric_catalogue import Metric, Scope
from policies.pool_choice import PoolTag
from policies.rule_events import RuleCause, RuleEvent
from policies.terms import BackendId, PoolName
from routing.backend import Backend, Hold
from routing.enforcement import is_standby
from routing.fleet import Fleet
from routing.ladder import Ladder, ladder_rules, level_of
from routing.rule_forces import Force, RuleForces

_LAST = Aggregate.LAST


class Values(Protocol):
    def value(self, metric: Metric, scope: Scope, subject: str, now: float) -> float | None:
        """None where it is not known, or too old to say anything."""
        ...

    def sampled_at(self, metric: Metric, scope: Scope, subject: str) -> float:
        """When the sample behind it was taken: another time is another sample."""
        ...


@dataclass(frozen=True, slots=True)
class DegradationRules:
    """`time_scale` is the ladder's; that of the rules is in them."""

    rules: tuple[Rule, ...] = ()
    has_ladder: bool = False
    time_scale: float = 1.0


class Instance:
    """One rule for one subject."""

    __slots__ = (
        "asks",
        "is_active",
        "level",
        "rule",
        "sampled_at",
        "served_per_second",
        "since",
        "state",
        "subject",
        "value",
        "was_forced",
        "while_scope",
        "while_value",
    )

    def __init__(self, rule: Rule, subject: str) -> None:
        self.rule = rule
        self.subject = subject
        self.level = level_of(rule)
        also = rule.only_while
        self.while_scope = None if also is None else scope_of_while(also.metric, rule.scope)
        self.asks: tuple[Asked, ...] = ()
        """What it has done while it acts, of the fleet as it is configured."""
        self.state: State = IDLE
        self.value: float | None = None
        self.while_value: float | None = None
        """Both as last read; None where not known then."""
        self.sampled_at = -inf
        self.is_active = False
        """Whether it acts: by its metric, or forced."""
        self.since = 0.0
        """When that changed last."""
        self.was_forced = False
        self.served_per_second = 0.0
        """When it took hold."""

    @property
    def is_known(self) -> bool:
        """Whether its metric is, `only_while`'s included."""
        return self.value is not None and (self.rule.only_while is None or self.while_value is not None)


class Degradation:
    def __init__(
        self,
        fleet: Fleet,
        values: Values,
        served_per_second: Callable[[], float],
        enforce: Callable[[Effects], None],
    ) -> None:
        self.values = values
        self.effects = NO_EFFECTS
        self.rules: dict[str, Rule] = {}
        self.transitions: Counter[tuple[str, bool]] = Counter()
        """By rule, and whether it took hold or let go."""
        self.known: set[str] = set()
        """Rules whose metric was known for some subject at the last beat."""
        self.ladder = Ladder()
        self.level = 0
        """Of the ladder, as its metrics or an operator say; 0 without one."""
        self._fleet = fleet
        self._served_per_second = served_per_second
        self._enforce = enforce
        self.forces = RuleForces()
        self._has_ladder = False
        self._instances: dict[tuple[str, str], Instance] = {}
        self._of_backend: dict[str, list[Instance]] = {}
        """Those of a rule about backends, by backend."""
        self._of_many: list[Instance] = []
        """All others, levels apart."""
        self._levels: list[Instance] = []
        self._active: dict[Instance, None] = {}
        """In the order in which they took hold."""
        self._events: list[RuleEvent] = []
        """Not told yet."""
        self._now = 0.0

    def __iter__(self) -> Iterator[Instance]:
        return iter(self._instances.values())

    def instances(self, rule: str) -> list[Instance]:
        return [one for one in self._instances.values() if one.rule.name == rule]

    def force_of(self, instance: Instance) -> Force | None:
        return self.forces.of(instance.rule.name, instance.subject)

    def configure(self, plan: DegradationRules) -> None:
        """For the fleet as it is configured now. What ends by it is told at the next beat."""
        levels = ladder_rules() if plan.has_ladder else ()
        self.rules = {rule.name: rule for rule in (*plan.rules, *levels)}
        self.ladder.time_scale = plan.time_scale
        self._has_ladder = plan.has_ladder
        if not plan.has_ladder:
            self.ladder.reset()
        before, self._instances = self._instances, {}
        for rule in self.rules.values():
            for subject in self._subjects(rule.scope):
                known = before.get((rule.name, subject))
                kept = known is not None and known.rule == rule
                self._instances[rule.name, subject] = known if kept and known else Instance(rule, subject)
        self._of_backend, self._of_many, self._levels = {}, [], []
        for instance in self._instances.values():
            if instance.level:
                self._levels.append(instance)
            elif instance.rule.scope is Scope.BACKEND:
                self._of_backend.setdefault(instance.subject, []).append(instance)
            else:
                self._of_many.append(instance)
        self.forces.keep_only(self.rules, self._instances, self._now)
        for key, old in before.items():
            if old.is_active and self._instances.get(key) is not old:
                self._changed(old, False, RuleCause.OPERATOR)
        self.known &= self.rules.keys()
        for instance in self._active:
            instance.asks = tuple(self._asked(instance))
        self._settle(self._instances.values())
        self._combine()

    def beat(self, now: float) -> list[RuleEvent]:
        """Reads all metrics once; what has changed since the last beat."""
        self._now = now
        is_changed = self.forces.expire(now)
        self.known.clear()
        for instances in self._of_backend.values():
            is_changed |= self._read(instances, now)
        is_changed |= self._read(self._of_many, now)
        if self._has_ladder:
            self._read(self._levels, now)
            level = self.ladder.rung.level
            active = sum(Hold.STANDBY not in backend.holds for backend in self._fleet)
            self.ladder.beat(self._value_of_fleet, active, now)
            is_changed |= self.ladder.rung.level != level
        if not is_changed:
            self._enforce(self.effects)  # whatever else has happened to the fleet
            return self._take_events()
        return self._settled(self._instances.values())

    def told(self, backend_id: BackendId, now: float) -> list[RuleEvent]:
        """There is another sample of this backend."""
        instances = self._of_backend.get(backend_id, [])
        if not self._read(instances, now):
            return []
        self._now = now
        return self._settled(instances)

    def force(
        self, rule: str, subject: str | None, is_on: bool, until: float, by: str, now: float
    ) -> list[RuleEvent]:
        """At once, of all subjects where None is named. The rule and its subject are known."""
        self._now = now
        self.forces.put(rule, subject, Force(is_on, until, by), now)
        return self._settled(self._instances.values())

    def unforce(self, rule: str, subject: str | None, by: str, now: float) -> list[RuleEvent]:
        self._now = now
        self.forces.release(rule, subject, by, now)
        return self._settled(self._instances.values())

    def backends_of(self, scope: Scope, subject: str) -> list[Backend]:
        if scope is Scope.BACKEND:
            backend = self._fleet.get(BackendId(subject))
            return [] if backend is None else [backend]
        if scope is Scope.POOL:
            pool = self._fleet.pools.get(PoolName(subject))
            return [] if pool is None else pool.backends
        return list(self._fleet)

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _settled(self, instances: Iterable[Instance]) -> list[RuleEvent]:
        self._settle(instances)
        self._combine()
        return self._take_events()

    def _take_events(self) -> list[RuleEvent]:
        events, self._events = self._events, []
        return events

    def _subjects(self, scope: Scope) -> list[str]:
        if scope is Scope.BACKEND:
            return [backend.id for backend in self._fleet]
        return list(self._fleet.pools) if scope is Scope.POOL else [""]

    def _read(self, instances: Iterable[Instance], now: float) -> bool:
        """Those of one backend, or those that are of none: each metric of a backend once. Whether one takes hold or lets go."""
        read: dict[tuple[Metric, str], float | None] = {}
        is_changed = False
        for instance in instances:
            rule, subject = instance.rule, instance.subject
            if rule.aggregate is _LAST:
                key = rule.metric, subject
                if key in read:
                    value = read[key]
                else:
                    value = read[key] = self.values.value(rule.metric, rule.scope, subject, now)
            else:
                value = self._aggregated(rule, subject, now)
            instance.value = value
            also = rule.only_while
            if also is not None:
                instance.while_value = self._value_of_while(instance, also.metric, now)
            if instance.is_known:
                self.known.add(rule.name)
            if instance.level:
                continue
            is_new = True
            if rule.samples is not None:
                sampled_at = self._sampled_at(rule, subject)
                is_new, instance.sampled_at = sampled_at != instance.sampled_at, sampled_at
            before = instance.state
            instance.state = state = step(before, value, instance.while_value, now, rule, is_new)
            if state is not before:
                is_changed |= state.is_active is not before.is_active
        return is_changed

    def _aggregated(self, rule: Rule, subject: str, now: float) -> float | None:
        known = [
            value
            for backend in self._active_of(rule, subject)
            if (value := self.values.value(rule.metric, Scope.BACKEND, backend.id, now)) is not None
        ]
        return aggregated(known, rule.aggregate)

    def _sampled_at(self, rule: Rule, subject: str) -> float:
        if rule.aggregate is Aggregate.LAST:
            return self.values.sampled_at(rule.metric, rule.scope, subject)
        backends = self._active_of(rule, subject)
        return max(
            (self.values.sampled_at(rule.metric, Scope.BACKEND, one.id) for one in backends), default=-inf
        )

    def _active_of(self, rule: Rule, subject: str) -> list[Backend]:
        """Those whose values count: nobody expects anything of the others."""
        uses_standby = self.effects.activates_standby
        return [one for one in self.backends_of(rule.scope, subject) if uses_standby or not is_standby(one)]

    def _value_of_while(self, instance: Instance, metric: Metric, now: float) -> float | None:
        wider, scope, subject = instance.while_scope, instance.rule.scope, instance.subject
        if wider is None:
            return None
        if wider is not scope:
            backends = self.backends_of(scope, subject)
            subject = backends[0].pool if wider is Scope.POOL and backends else ""
        return self.values.value(metric, wider, subject, now)

    def _value_of_fleet(self, metric: Metric) -> float | None:
        return self.values.value(metric, Scope.FLEET, "", self._now)

    def _settle(self, instances: Iterable[Instance]) -> None:
        """Which of these act now."""
        forces = {one.level: force.is_on for one in self._levels if (force := self.force_of(one)) is not None}
        level = self.level = pinned(self.ladder.rung.level, forces)
        for instance in instances:
            force = self.force_of(instance)
            if instance.level:
                is_active, is_forced = instance.level <= level, bool(forces)
            else:
                is_active, is_forced = instance.state.is_active, force is not None
                if force is not None:
                    is_active = force.is_on
            if is_active != instance.is_active:
                cause = RuleCause.METRIC
                if is_forced or instance.was_forced:
                    cause = RuleCause.OPERATOR
                elif not is_active and not instance.level and not instance.is_known:
                    cause = RuleCause.UNKNOWN
                self._changed(instance, is_active, cause)
            instance.was_forced = is_forced

    def _combine(self) -> None:
        """What all that act ask for together, enforced."""
        self.effects = combined(asked for instance in self._active for asked in instance.asks)
        self._enforce(self.effects)

    def _changed(self, instance: Instance, is_active: bool, cause: RuleCause) -> None:
        rule = instance.rule
        instance.is_active, instance.since = is_active, self._now
        if is_active:
            instance.served_per_second = self._served_per_second()
            instance.asks = tuple(self._asked(instance))
            self._active[instance] = None
        else:
            instance.asks = ()
            self._active.pop(instance, None)
        self.transitions[rule.name, is_active] += 1
        self._events.append(
            RuleEvent(
                rule.name,
                rule.scope,
                instance.subject,
                rule.severity,
                is_active,
                rule.metric.value,
                instance.value,
                rule.threshold,
                tuple(map(wording, rule.actions)),
                cause,
                self._now,
            )
        )

    def _asked(self, instance: Instance) -> Iterable[Asked]:
        rule = instance.rule
        backends = self.backends_of(rule.scope, instance.subject)
        ids = tuple(backend.id for backend in backends)
        pools = tuple({backend.pool: None for backend in backends})
        for action in rule.actions:
            if isinstance(action, PreferFallback) and self._is_fallback(rule.scope, pools):
                continue  # of those that are in trouble themselves none is to be preferred
            per_second = instance.served_per_second * action.share if isinstance(action, LimitRate) else 0
            yield Asked(action, ids, pools, per_second)

    def _is_fallback(self, scope: Scope, pools: tuple[PoolName, ...]) -> bool:
        return scope is not Scope.FLEET and all(
            PoolTag.FALLBACK in self._fleet.pools[name].tags for name in pools
        )
