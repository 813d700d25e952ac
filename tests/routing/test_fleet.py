"""Which backends there are and which may be used."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.absence import AbsenceRules
from policies.capacity_tokens import TokenRules
from policies.pool_choice import PoolFacts
from policies.terms import UNTAGGED, BackendId, CachePath, Lane, PoolName, Tag
from routing.backend import Backend, BackendPlan, Hold
from routing.decision import NO_INTENT, Lease, Line
from routing.fleet import MAX_ORDERS, Fleet, PoolPlan
from tests.routing.reachable import entries
from tests.strategies import fleet_plans

MODELS = st.frozensets(st.sampled_from("xyz"))


def plan(id: str, window: int | None = None, pool: str = "p") -> BackendPlan:
    return BackendPlan(BackendId(id), PoolName(pool), window)


def fleet_of(*plans: BackendPlan) -> Fleet:
    fleet = Fleet(AbsenceRules())
    fleet.configure(plans)
    return fleet


def backend(fleet: Fleet, id: str) -> Backend:
    found = fleet.get(BackendId(id))
    assert found is not None
    return found


@given(fleet_plans(), fleet_plans(), st.lists(st.tuples(st.sampled_from(["b0", "b1", "b2"]), MODELS)))
def test_a_new_configuration_is_what_the_fleet_is_and_what_stays_keeps_its_state(
    before: list[BackendPlan], after: list[BackendPlan], told: list[tuple[str, frozenset[str]]]
) -> None:
    fleet = fleet_of(*before)
    for id, models in told:
        if found := fleet.get(BackendId(id)):
            fleet.learn_models(found, models)
            found.in_flight += 1
    known = {one.id: (one, one.in_flight, one.models) for one in fleet}
    retired = fleet.configure(after)
    assert [BackendPlan(one.id, one.pool, one.window) for one in fleet] == after
    assert {one.id for one in retired} == known.keys() - {one.id for one in after}
    for one in fleet:
        if one.id in known:
            assert (one, one.in_flight, one.models) == known[one.id]
        else:
            assert (one.in_flight, one.models) == (0, None)
    assert not set(fleet.serving("")) & set(retired)


@given(
    fleet_plans(), st.lists(st.tuples(st.integers(0, 3), MODELS, st.sampled_from(["x", "y", "z", "?", ""])))
)
def test_a_backend_serves_a_model_if_it_said_so_or_has_said_nothing(
    plans: list[BackendPlan], steps: list[tuple[int, frozenset[str], str]]
) -> None:
    fleet = fleet_of(*plans)
    backends = list(fleet)
    for number, models, asked in steps:
        if backends:
            fleet.learn_models(backends[number % len(backends)], models)
        expected = [one for one in backends if not asked or one.models is None or asked in one.models]
        assert list(fleet.serving(asked)) == expected


def test_names_that_clients_invent_are_not_kept_even_where_a_backend_has_not_told_its_models() -> None:
    fleet = fleet_of(plan("told"), plan("silent"))
    fleet.learn_models(backend(fleet, "told"), frozenset({"m"}))
    assert len(fleet.serving("m")) == 2 and len(fleet.serving("")) == 2
    before = entries(fleet)
    for number in range(5000):
        assert [one.id for one in fleet.serving(f"invented-{number}")] == ["silent"]
    assert entries(fleet) == before


def usable(fleet: Fleet, now: float) -> list[str]:
    fleet.pass_time(now)
    return [one.id for one in fleet if not one.is_blocked]


def test_an_absent_backend_is_usable_again_when_its_pause_is_over() -> None:
    fleet = fleet_of(plan("a"), plan("b"))
    fleet.mark_unreachable(backend(fleet, "a"), now=10.0)
    assert usable(fleet, 10.5) == ["b"]
    assert usable(fleet, 11.0) == ["a", "b"]
    assert not backend(fleet, "a").is_present()


def test_a_trial_sends_one_request_and_blocks_the_next_without_counting_as_a_failure() -> None:
    fleet = fleet_of(plan("a"))
    one = backend(fleet, "a")
    fleet.mark_unreachable(one, now=0.0)
    fleet.mark_unreachable(one, now=0.0)
    fleet.take(Lease(one, Line("", (PoolName("p"),)), UNTAGGED, NO_INTENT, 0.0, True), now=2.0)
    assert usable(fleet, 3.9) == []
    assert usable(fleet, 4.0) == ["a"]
    assert one.absence.failures == 2
    fleet.mark_reachable(one)
    assert one.is_present() and usable(fleet, 4.0) == ["a"]


def test_a_backend_shows_itself_in_a_debugger() -> None:
    assert repr(backend(fleet_of(plan("a", 4)), "a")) == "<Backend a in_flight=0 window=4 absent=0>"


def lease_on(fleet: Fleet, id: str, tag: Tag = UNTAGGED) -> Lease:
    lease = Lease(backend(fleet, id), Line("", (PoolName("p"),)), tag, NO_INTENT, 0.0, False)
    fleet.take(lease, 0.0)
    return lease


def test_orders_of_pools_that_are_kept_have_a_bound() -> None:
    fleet = fleet_of(plan("a"))
    pool = PoolName("p")
    for number in range(MAX_ORDERS + 10):
        assert fleet.groups("", (pool, PoolName(f"other-{number}")))[0] is not None
    assert len(fleet._orders) <= MAX_ORDERS
    assert fleet.groups("", (pool,))[0] is fleet.group(pool, "")


def test_only_an_engine_whose_pool_says_so_is_told_priorities_and_a_retired_one_never_is() -> None:
    fleet = Fleet(AbsenceRules())
    pools = [PoolPlan(PoolFacts(PoolName(name)), engine_priority=name == "q") for name in "pq"]
    fleet.configure([plan("a"), plan("b", pool="q")], pools)
    retired = backend(fleet, "b")
    assert [fleet.wants_priority(one) for one in fleet] == [False, True]
    fleet.configure([plan("a")], pools)
    assert not fleet.wants_priority(retired)


def test_emergencies_on_a_held_backend_are_none_of_its_pools_until_it_is_released() -> None:
    fleet = fleet_of(plan("a", 4), plan("b", 4))
    pool = fleet.pools[PoolName("p")]
    urgent = UNTAGGED._replace(lane=Lane.EMERGENCY)
    first, second = lease_on(fleet, "a", urgent), lease_on(fleet, "a", urgent)
    assert (pool.in_flight_emergency, pool.in_flight) == (2, 2)
    fleet.hold(backend(fleet, "a"), Hold.OPERATOR)
    assert (pool.in_flight_emergency, pool.in_flight) == (0, 0)
    fleet.give_back(first)
    assert (pool.in_flight_emergency, pool.in_flight) == (0, 0)
    fleet.release(backend(fleet, "a"), Hold.OPERATOR)
    assert (pool.in_flight_emergency, pool.in_flight) == (1, 1)
    fleet.give_back(second)
    assert (pool.in_flight_emergency, pool.in_flight) == (0, 0)


def test_a_retired_backend_that_cannot_be_reached_is_not_looked_at_again() -> None:
    fleet = fleet_of(plan("a"), plan("b"))
    retired = backend(fleet, "b")
    fleet.configure([plan("a")])
    fleet.mark_unreachable(retired, 0.0)
    assert not fleet.has_absent and not fleet.doubtful
    fleet.mark_unreachable(backend(fleet, "a"), 0.0)
    assert fleet.doubtful == {backend(fleet, "a")}


def test_tokens_on_a_held_backend_are_none_of_its_pools_until_it_is_released() -> None:
    fleet = fleet_of(
        BackendPlan(BackendId("a"), PoolName("p"), tokens=TokenRules(1000)),
        BackendPlan(BackendId("b"), PoolName("p"), tokens=TokenRules(500)),
    )
    pool = fleet.pools[PoolName("p")]
    tag = UNTAGGED._replace(prompt_tokens=100.0, path=CachePath.HOT)
    first, second = lease_on(fleet, "a", tag), lease_on(fleet, "a", tag)
    assert (pool.max_tokens, pool.reserved, pool.reserved_hot) == (1500, 200, 200)
    fleet.hold(backend(fleet, "a"), Hold.OPERATOR)
    assert (pool.max_tokens, pool.reserved, pool.reserved_hot) == (500, 0, 0)
    fleet.give_back(first)
    assert (pool.reserved, pool.reserved_hot) == (0, 0)
    fleet.release(backend(fleet, "a"), Hold.OPERATOR)
    assert (pool.max_tokens, pool.reserved, pool.reserved_hot) == (1500, 100, 100)
    fleet.give_back(second)
    assert (pool.reserved, pool.reserved_hot) == (0, 0)
