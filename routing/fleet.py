"""Every backend the gateway knows: its pool, window, models, health and requests in flight.

State only; the rules are `policies.absence` (how long an unreachable backend is left alone), `policies.least_time` (in which order they are
used) and `policies.pool_choice` (which pools take what). A `routing.group` is a pool's backends that get requests for one model, in order of load. Whatever an
order depends on is changed here, and the groups are told in the same step.
A backend that a new configuration no longer names is *retired*: it gets nothing new and lives on in its leases alone. Named again it starts anew.
Bounds: one record per configured backend; one group per pool and model that a backend reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, prod
from typing import TYPE_CHECKING

from policies.absence import PRESENT, Absence, AbsenceRules, after_failure
from policies.dialects import EngineReport
from policies.gathering import GatheringRules
from policies.members import BATCH, EMERGENCY, HOT
from policies.pool_choice import PoolFacts, PoolTag
from policies.terms import BackendId, PoolName
from routing.backend import Backend, BackendPlan, Hold, Limiter
from routing.group import Group
from routing.pool import Pool

if TYPE_CHECKING:
    from routing.decision import Lease

MAX_ORDERS = 1024


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What the configuration says of one pool; `gathering` None gathers nothing."""

    facts: PoolFacts
    gathering: GatheringRules | None = None
    engine_priority: bool = False
    tags: frozenset[PoolTag] = frozenset()


class Fleet:
    def __init__(self, absence_rules: AbsenceRules) -> None:
        self.absence_rules = absence_rules
        self.pools: dict[PoolName, Pool] = {}
        self._backends: dict[BackendId, Backend] = {}
        self._groups: dict[tuple[PoolName, str], Group] = {}
        self._orders: dict[tuple[str, tuple[PoolName, ...]], tuple[Group | None, ...]] = {}
        """Groups in an order of pools; kept for the models that have a group."""
        self._absent: set[Backend] = set()
        self._in_panic: set[Backend] = set()
        self.gathers = False
        """Whether some pool holds throughput requests back for a moment."""
        self.version = 0
        """Changes whenever a backend comes, goes, or may be used again."""
        self.on_models: Callable[[Backend], None] = _nobody
        """Told of each backend that serves other models."""
        self.on_fate: Callable[[PoolName], None] = _nobody
        """Told of each pool of which a backend may have begun or ceased to rest or to be held."""
        self._together: dict[PoolName, None] | None = None
        """Pools that are to be looked at once all of a change is made."""

    @property
    def has_absent(self) -> bool:
        return bool(self._absent)

    @property
    def doubtful(self) -> set[Backend]:
        """Absent ones, be it that their pause is over, and those that are only used for want of others."""
        return self._absent | self._in_panic

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def get(self, backend_id: BackendId) -> Backend | None:
        return self._backends.get(backend_id)

    def configure(self, plans: Iterable[BackendPlan], pools: Iterable[PoolPlan] = ()) -> list[Backend]:
        """Make the fleet what the plans say; a backend that stays keeps its state. Returns the retired ones."""
        wanted = {plan.id: plan for plan in plans}
        retired = [backend for id, backend in self._backends.items() if id not in wanted]
        kept, known = self._backends, self.pools
        self._backends, self.pools = {}, {}
        for plan in pools:
            pool = self.pools[plan.facts.name] = known.get(plan.facts.name) or Pool(plan.facts.name)
            # Who gathers one by one at present goes on so, until its rule is looked at again.
            is_serial = pool.gathering is None and pool.planned_gathering is not None
            pool.planned_gathering, pool.engine_priority = plan.gathering, plan.engine_priority
            pool.gathering = None if is_serial else plan.gathering
            pool.role, pool.tags = plan.facts.role, plan.tags
        for backend_plan in wanted.values():
            name = backend_plan.pool
            if name not in self.pools:
                self.pools[name] = known.get(name) or Pool(name)
        for pool in self.pools.values():
            pool.backends = []
        for backend in retired:
            backend.orders = []
            backend.home = None
        for id, backend_plan in wanted.items():
            backend = kept.get(id) or Backend(backend_plan)
            backend.pool = backend_plan.pool
            backend.adapt(backend_plan)
            self._backends[id] = backend
            backend.home = self.pools[backend.pool]
            backend.home.backends.append(backend)
        self.gathers = any(pool.gathering is not None for pool in self.pools.values())
        self._absent = {backend for backend in self._backends.values() if not backend.is_present()}
        self._forget_groups()
        for pool in self.pools.values():
            self._measure(pool)
        return retired

    def learn_models(self, backend: Backend, models: frozenset[str]) -> None:
        if models != backend.models:
            backend.models = models
            self._forget_groups()
            self.on_models(backend)

    def serving(self, model: str) -> tuple[Backend, ...]:
        """Backends that serve `model` ("" = any), healthy or not."""
        return tuple(backend for backend in self._backends.values() if _may_serve(backend, model))

    def is_told(self, model: str) -> bool:
        return any(backend.models is not None and model in backend.models for backend in self)

    def groups(self, model: str, pools: tuple[PoolName, ...]) -> tuple[Group | None, ...]:
        """One for each of these pools."""
        found = self._orders.get((model, pools))
        if found is None:
            found = tuple([self.group(name, model) for name in pools])
            if all(group is None or (group.pool.name, model) in self._groups for group in found):
                if len(self._orders) >= MAX_ORDERS:
                    self._orders.clear()
                if any(found):
                    self._orders[model, pools] = found
        return found

    def group(self, name: PoolName, model: str) -> Group | None:
        """None where the pool has no backend for `model`."""
        found = self._groups.get((name, model))
        if found is not None:
            return found
        pool = self.pools.get(name)
        members = () if pool is None else tuple(one for one in pool.backends if _may_get(one, model))
        if pool is None or not members:
            return None
        group = Group(pool, members)
        # A name that no engine has told is a client's string: keeping it would let clients grow the table.
        if not model or self.is_told(model):
            self._groups[name, model] = group
        elif len(members) > 1:
            for backend in members:
                backend.orders.pop()
        return group

    def wants_priority(self, backend: Backend) -> bool:
        return backend.home is not None and backend.home.engine_priority

    # --- slots ----------------------------------------------------------------------------------------------------------------

    def take(self, lease: Lease, now: float) -> None:
        """A slot and tokens of its backend; of an absent one its one trial: the next comes after that one's verdict or another pause."""
        backend = lease.backend
        if backend.absence is not PRESENT:
            backend.absence = after_failure(Absence(backend.absence.failures - 1), now, self.absence_rules)
            self._rest(backend, True)
        lease.circuit_changes = backend.circuit_changes
        in_flight = backend.in_flight = backend.in_flight + 1
        window, pool, room = backend.window, backend.home, backend.room
        if room is not None:
            room.hold(lease, now)
            self._count_tokens(backend, lease, lease.tokens_held)
        if pool is not None and not backend.is_blocked and (window is None or in_flight <= window):
            pool.in_flight += 1
        lane = lease.tag.lane
        if lane is EMERGENCY:
            self._count_emergency(backend, 1)
        elif lane is BATCH:
            self._count_batch(backend, 1)
        if lease.tag.path is HOT:
            self._count_hot(backend, 1)
        for order in backend.orders:
            order.changed(backend)

    def give_back(self, lease: Lease) -> None:
        backend = lease.backend
        in_flight = backend.in_flight
        backend.in_flight = in_flight - 1
        window, pool = backend.window, backend.home
        if lease.prefilling:
            self.begun(lease)
        if lease.room is not None:
            lease.room.release(lease)
            self._count_tokens(backend, lease, -lease.tokens_held)
        if pool is not None and not backend.is_blocked and (window is None or in_flight <= window):
            pool.in_flight -= 1
        lane = lease.tag.lane
        if lane is EMERGENCY:
            self._count_emergency(backend, -1)
        elif lane is BATCH:
            self._count_batch(backend, -1)
        if lease.tag.path is HOT:
            self._count_hot(backend, -1)
        for order in backend.orders:
            order.changed(backend)

    def begun(self, lease: Lease) -> None:
        """Its prompt is computed, or is not to be any more."""
        lease.backend.prefilling -= lease.prefilling
        lease.prefilling = 0

    def prefilled(self, lease: Lease, now: float) -> None:
        """The answer of one that holds prefill has begun."""
        assert lease.room is not None
        lease.room.prefilled(lease, now)
        for order in lease.backend.orders:
            order.changed(lease.backend)

    def _count_emergency(self, backend: Backend, by: int) -> None:
        backend.in_flight_emergency += by
        if backend.home is not None and not backend.is_blocked:
            backend.home.in_flight_emergency += by
            backend.home.open_below = None

    def _count_batch(self, backend: Backend, by: int) -> None:
        backend.in_flight_batch += by
        if backend.home is not None and not backend.is_blocked:
            backend.home.in_flight_batch += by

    def _count_tokens(self, backend: Backend, lease: Lease, tokens: int) -> None:
        pool = backend.home
        if pool is not None and not backend.is_blocked:
            pool.reserved += tokens
            if lease.tag.path is HOT:
                pool.reserved_hot += tokens

    def _count_hot(self, backend: Backend, by: int) -> None:
        backend.in_flight_hot += by
        if backend.home is not None and not backend.is_blocked:
            backend.home.in_flight_hot += by

    # --- windows --------------------------------------------------------------------------------------------------------------

    def gather(self, pool: Pool, wanted: bool) -> None:
        """As configured, or not at all."""
        gathering = pool.planned_gathering if wanted else None
        if gathering is not pool.gathering:
            pool.gathering = gathering
            self.gathers = any(one.gathering is not None for one in self.pools.values())

    def served(self, lease: Lease, now: float) -> None:
        """A request ended well, and its slot is still counted."""
        if lease.backend.sample(lease, now):
            self._measure_of(lease.backend)

    def reported(self, backend: Backend, report: EngineReport, now: float) -> None:
        if backend.take_report(report, now):
            self._measure_of(backend)

    def mentioned(self, backend: Backend, told: EngineReport, now: float) -> None:
        """An answer told something of its engine's load, and nothing of the rest."""
        if backend.take_mention(told, now):
            self._measure_of(backend)

    def pushed_back(self, backend: Backend, now: float) -> None:
        """The engine said that it is full."""
        if backend.push_back(now):
            self._measure_of(backend)

    def use_share(self, backend: Backend, limiter: Limiter, share: float) -> None:
        """What `limiter` leaves of its window from now on: above 0, and 1 for all of it."""
        if share < 1.0:
            backend.shares[limiter] = share
        else:
            backend.shares.pop(limiter, None)
        if limiter is Limiter.PANIC:
            (self._in_panic.add if share < 1.0 else self._in_panic.discard)(backend)
        whole = prod(backend.shares.values())
        if whole != backend.share:
            backend.use_share(whole)
            self._measure_of(backend)

    # --- health ---------------------------------------------------------------------------------------------------------------

    def hold(self, backend: Backend, hold: Hold) -> None:
        """Nothing new goes there; what runs goes on. More than once is as once."""
        backend.holds.add(hold)
        self._see(backend)

    def release(self, backend: Backend, hold: Hold) -> None:
        backend.holds.discard(hold)
        self._see(backend)

    def leave_out(self, backend: Backend, models: frozenset[str]) -> None:
        """Requests for these of its models do not go there; those for the others do."""
        if models != backend.open_models:
            backend.open_models = models
            self._forget_groups()

    def mark_unreachable(self, backend: Backend, now: float) -> None:
        backend.absences += backend.is_present()
        backend.absence = after_failure(backend.absence, now, self.absence_rules)
        if self._backends.get(backend.id) is backend:
            self._absent.add(backend)
        self._rest(backend, True)

    def mark_reachable(self, backend: Backend) -> None:
        if backend.absence is not PRESENT:
            backend.absence = PRESENT
            backend.came_back()
        backend.probe_failures = 0
        self._absent.discard(backend)
        self._rest(backend, False)

    def pass_time(self, now: float) -> None:
        """Whose pause is over may be tried."""
        for backend in self._absent:
            if backend.is_resting and not backend.absence.blocks(now):
                self._rest(backend, False)

    def _rest(self, backend: Backend, rests: bool) -> None:
        backend.is_resting = rests
        self._see(backend)

    def _see(self, backend: Backend) -> None:
        is_blocked = backend.is_resting or bool(backend.holds)
        if is_blocked != backend.is_blocked:
            backend.is_blocked = is_blocked
            self._measure_of(backend)
        if self._together is not None:
            self._together[backend.pool] = None
        else:
            self.on_fate(backend.pool)  # one that is held all the same may rest no more

    def together(self, change: Callable[[], None]) -> None:
        """`change` holds, releases and gives shares of windows: pools are measured once, at its end, and not for each backend."""
        changed: dict[PoolName, None] = {}
        self._together = changed
        try:
            change()
        finally:
            self._together = None
            for name in changed:
                self._measure(self.pools[name])
            for name in changed:
                self.on_fate(name)

    # --- inside ---------------------------------------------------------------------------------------------------------------

    def _measure_of(self, backend: Backend) -> None:
        for order in backend.orders:
            order.changed(backend)
        if self._together is not None:
            self._together[backend.pool] = None
        elif backend.home is not None:
            self._measure(backend.home)

    def _measure(self, pool: Pool) -> None:
        self.version += 1
        usable = [backend for backend in pool.backends if not backend.is_blocked]
        pool.usable = len(usable)
        pool.capacity = sum(inf if backend.window is None else backend.window for backend in usable)
        pool.in_flight = sum(map(_slots_used, usable))
        pool.foreign = sum(backend.foreign for backend in usable)
        pool.in_flight_emergency = sum(backend.in_flight_emergency for backend in usable)
        pool.in_flight_batch = sum(backend.in_flight_batch for backend in usable)
        pool.in_flight_hot = sum(backend.in_flight_hot for backend in usable)
        rooms = [backend.room for backend in usable if backend.room is not None]
        pool.max_tokens = sum([room.max_tokens for room in rooms])
        pool.reserved = sum([room.reserved for room in rooms])
        pool.reserved_hot = sum([room.reserved_hot for room in rooms])
        pool.open_below = None

    def _forget_groups(self) -> None:
        self._groups.clear()
        self._orders.clear()
        self.version += 1
        for backend in self._backends.values():
            backend.orders = []


def _nobody(subject: object) -> None:
    """Where nobody wants to know."""


def _slots_used(backend: Backend) -> int:
    return backend.in_flight if backend.window is None else min(backend.in_flight, backend.window)


def _may_get(backend: Backend, model: str) -> bool:
    return _may_serve(backend, model) and model not in backend.open_models


def _may_serve(backend: Backend, model: str) -> bool:
    return not model or backend.models is None or model in backend.models
