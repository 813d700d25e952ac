"""One step of the decision core at a time; sequences of steps are in `test_router_machine`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.absence import AbsenceRules
from policies.dialects import Dialect, EngineFlags, EngineReport
from policies.fairness import FairnessRules
from policies.lengths import TextSize
from policies.retries import RetryRules
from policies.retry_budget import RetryBudgetRules
from policies.terms import BackendId, Lane, PoolName, Refusal, Verdict
from routing.backend import Backend, BackendPlan
from routing.decision import Decision, Intent, Lease, Ticket
from routing.router import Router
from routing.rules import Rules
from tests.routing.reachable import entries, kept_by


def router_of(*windows: int | None, rules: Rules | None = None) -> Router:
    """Backends `b0`, `b1`, ... with these windows."""
    rules = rules or Rules()
    router = Router(rules)
    router.configure(plans(*windows), rules)
    return router


def plans(*windows: int | None) -> list[BackendPlan]:
    return [
        BackendPlan(BackendId(f"b{number}"), PoolName("p"), window) for number, window in enumerate(windows)
    ]


def leased(decision: Decision) -> Lease:
    assert isinstance(decision, Lease), decision
    return decision


def waiting(decision: Decision) -> Ticket:
    assert isinstance(decision, Ticket), decision
    return decision


def backend(router: Router, id: str) -> Backend:
    found = router.fleet.get(BackendId(id))
    assert found is not None
    return found


def test_a_free_slot_is_given_at_once_and_taken_back() -> None:
    router = router_of(1)
    lease = leased(router.arrive("m", 0.0, Intent(lane=Lane.BATCH)))
    assert (lease.backend.id, lease.attempts, lease.queue_seconds, lease.tag.lane) == (
        "b0",
        1,
        0.0,
        Lane.BATCH,
    )
    assert lease.backend.in_flight == 1
    router.finish(lease, 0.0)
    assert lease.backend.in_flight == 0


def test_a_lease_is_given_back_once() -> None:
    router = router_of(1)
    lease = leased(router.arrive("", 0.0))
    router.finish(lease, 0.0)
    with pytest.raises(AssertionError):
        router.finish(lease, 0.0)


def test_who_waits_is_served_in_order_and_knows_how_long_it_waited() -> None:
    router = router_of(1)
    first = leased(router.arrive("m", 0.0))
    tickets = [waiting(router.arrive("m", float(number))) for number in (1, 2)]
    assert router.pump(3.0) == []
    router.finish(first, 0.0)
    [(ticket, grant)] = router.pump(5.0)
    assert ticket is tickets[0]
    assert isinstance(grant, Lease) and grant.queue_seconds == 4.0
    assert router.waiting == 1


def test_who_comes_while_others_wait_stands_behind_them_even_if_a_slot_is_free() -> None:
    router = router_of(1)
    running = leased(router.arrive("m", 0.0))
    early = waiting(router.arrive("m", 0.0))
    router.finish(running, 0.0)
    late = waiting(router.arrive("m", 0.0))
    [(served, _)] = router.pump(0.0)
    assert served is early
    assert router.cancel(late)


def test_after_the_last_waiter_has_gone_the_line_is_gone_too() -> None:
    router = router_of(1)
    running = leased(router.arrive("m", 0.0))
    assert router.cancel(waiting(router.arrive("m", 0.0)))  # what is remembered of the flow itself
    before = entries(router)
    ticket = waiting(router.arrive("m", 0.0))
    assert router.cancel(ticket)
    assert not router.cancel(ticket)
    assert (router.waiting, entries(router)) == (0, before)
    router.finish(running, 0.0)
    assert leased(router.arrive("m", 0.0)).backend.id == "b0"


def test_models_that_share_a_backend_share_its_slots_in_order_of_arrival() -> None:
    router = router_of(1)
    router.engines.learn_models(BackendId("b0"), frozenset({"x", "y"}))
    running = leased(router.arrive("x", 0.0))
    asked = ["x", "x", "y", "x", "", "y"]
    tickets = [waiting(router.arrive(model, 0.0)) for model in asked]
    served = []
    for _ in asked:
        router.finish(running, 0.0)
        [(ticket, grant)] = router.pump(0.0)
        assert isinstance(grant, Lease)
        running = grant
        served.append(ticket)
    assert served == tickets


def test_slots_that_come_free_together_are_shared_in_order_of_arrival_too() -> None:
    router = router_of(1)
    leased(router.arrive("x", 0.0))
    tickets = [waiting(router.arrive(model, 0.0)) for model in "xxyxyz"]
    router.configure(plans(5), router.rules)
    assert [ticket for ticket, _ in router.pump(0.0)] == tickets[:4]


def test_a_full_model_never_blocks_another() -> None:
    router = router_of(1, 1)
    router.engines.learn_models(BackendId("b0"), frozenset({"x"}))
    router.engines.learn_models(BackendId("b1"), frozenset({"y"}))
    leased(router.arrive("x", 0.0))
    on_y = leased(router.arrive("y", 0.0))
    waiting(router.arrive("x", 0.0))
    behind = waiting(router.arrive("y", 0.0))
    router.finish(on_y, 0.0)
    assert [ticket for ticket, _ in router.pump(0.0)] == [behind]


def test_the_queue_is_bounded() -> None:
    router = router_of(1, rules=Rules(fairness=FairnessRules(max_waiting=2)))
    leased(router.arrive("x", 0.0))
    waiting(router.arrive("x", 0.0))
    waiting(router.arrive("y", 0.0))
    assert router.arrive("x", 0.0) is Refusal.QUEUE_FULL
    assert router.arrive("z", 0.0) is Refusal.QUEUE_FULL


def test_with_no_room_to_wait_a_full_fleet_refuses_and_a_free_one_serves() -> None:
    router = router_of(1, rules=Rules(fairness=FairnessRules(max_waiting=0)))
    lease = leased(router.arrive("", 0.0))
    assert router.arrive("", 0.0) is Refusal.QUEUE_FULL
    router.finish(lease, 0.0)
    leased(router.arrive("", 0.0))


def test_a_model_that_no_engine_serves_does_not_exist() -> None:
    router = router_of(None)
    leased(router.arrive("any", 0.0))
    router.engines.learn_models(BackendId("b0"), frozenset({"m"}))
    assert router.arrive("other", 0.0) is Refusal.UNKNOWN_MODEL
    leased(router.arrive("m", 0.0))
    leased(router.arrive("", 0.0))


def test_a_model_whose_engines_are_all_away_exists() -> None:
    router = router_of(None)
    router.engines.learn_models(BackendId("b0"), frozenset({"m"}))
    router.unreachable(backend(router, "b0"), 0.0)
    assert router.arrive("m", 0.5) is Refusal.NO_BACKEND
    assert router.arrive("", 0.5) is Refusal.NO_BACKEND
    assert router.arrive("other", 0.5) is Refusal.UNKNOWN_MODEL


def test_without_any_backend_there_is_none() -> None:
    assert router_of().arrive("", 0.0) is Refusal.NO_BACKEND


def test_who_waits_is_told_when_no_backend_is_left() -> None:
    router = router_of(1)
    leased(router.arrive("m", 0.0))
    tickets = [waiting(router.arrive("m", 0.0)) for _ in range(3)]
    router.unreachable(backend(router, "b0"), 0.0)
    assert router.pump(0.0) == [(ticket, Refusal.NO_BACKEND) for ticket in tickets]
    assert router.waiting == 0


def test_a_moved_lease_holds_one_slot_and_never_returns_to_where_it_failed() -> None:
    router = router_of(None, None, rules=Rules(retries=RetryRules(max_retries=5)))
    lease = leased(router.arrive("m", 0.0))
    first = lease.backend
    lease.verdict = Verdict.FAULT
    assert router.move(lease, Verdict.FAULT, False, True, 0.0)
    assert lease.backend is not first and lease.attempts == 2
    assert [one.in_flight for one in router.fleet if one is not lease.backend] == [0]
    assert not router.move(lease, Verdict.FAULT, False, True, 0.0)
    assert (lease.attempts, lease.backend.in_flight, lease.open) == (2, 1, True)


def _nobody_listens(router: Router, lease: Lease) -> bool:
    """Whether the lease moved."""
    lease.found_nobody = True
    router.unreachable(lease.backend, 0.0)
    return router.move(lease, Verdict.FAULT, False, True, 0.0)


def test_an_attempt_that_found_nobody_counts_neither_as_a_try_nor_for_the_budget() -> None:
    rules = Rules(retries=RetryRules(max_retries=1), retry_budget=RetryBudgetRules(share=0.0, floor=1.0))
    router = router_of(*[None] * 9, rules=rules)
    leases = [leased(router.arrive("m", 0.0)) for _ in range(3)]
    assert all(_nobody_listens(router, lease) for lease in leases for _ in range(2))
    assert [lease.attempts for lease in leases] == [3, 3, 3]
    for lease in leases:
        router.finish(lease, 0.0)
    # What they had taken of the budget they have given back, which is nothing.
    one, other = leased(router.arrive("m", 0.0)), leased(router.arrive("m", 0.0))
    assert router.move(one, Verdict.FAULT, False, True, 0.0)
    assert not router.move(other, Verdict.FAULT, False, True, 0.0)
    assert not router.move(one, Verdict.FAULT, False, True, 0.0), "what is tried counts again"


def test_an_attempt_that_found_nobody_is_not_repeated_where_retries_are_off() -> None:
    router = router_of(None, None, rules=Rules(retries=RetryRules(max_retries=0)))
    assert not _nobody_listens(router, leased(router.arrive("m", 0.0)))
    router = router_of(None, None)
    router.degradation.effects = replace(router.degradation.effects, has_no_retries=True)
    assert not _nobody_listens(router, leased(router.arrive("m", 0.0)))


def test_what_was_said_of_one_backend_is_not_said_of_the_next() -> None:
    router = router_of(None, None)
    lease = leased(router.arrive("m", 0.0))
    lease.verdict = Verdict.FAULT
    assert router.move(lease, Verdict.FAULT, False, True, 0.0)
    assert lease.verdict is Verdict.IGNORED


def test_a_failed_attempt_waits_before_everybody_else_for_a_backend_that_is_full() -> None:
    router = router_of(1, 1)
    failed = leased(router.arrive("", 0.0))
    other = leased(router.arrive("", 0.0))
    waiting = router.arrive("", 0.5)
    first = failed.backend
    assert router.move(failed, Verdict.BACKPRESSURE, False, True, 1.0)
    assert failed.ticket is not None and first.in_flight == 0

    # The free slot is on the backend that just failed it; whoever is behind may have it only after its turn.
    assert router.pump(1.0) == []
    router.finish(other, 0.0)
    grants = router.pump(3.0)

    assert grants[0][1] is failed and failed.backend is other.backend
    assert (failed.attempts, failed.queue_seconds) == (2, 2.0)
    assert grants[1][0] is waiting and leased(grants[1][1]).backend is first


def test_a_moved_lease_that_ends_while_it_waits_leaves_nothing_behind() -> None:
    router = router_of(1, 1)
    failed = leased(router.arrive("", 0.0))
    other = leased(router.arrive("", 0.0))
    assert router.move(failed, Verdict.FAULT, False, True, 0.0)
    router.finish(failed, 0.0)
    router.finish(other, 0.0)
    assert router.waiting == 0
    assert [one.in_flight for one in router.fleet] == [0, 0]


def test_a_request_that_ran_before_its_backend_went_absent_does_not_bring_it_back() -> None:
    router = router_of(None)
    lease = leased(router.arrive("", 0.0))
    router.unreachable(lease.backend, 1.0)
    lease.verdict = Verdict.GOOD
    router.finish(lease, 0.0)
    assert not lease.backend.is_present()


@pytest.mark.parametrize(
    ("verdict", "first_byte_sent", "repeatable"),
    [(Verdict.IGNORED, False, True), (Verdict.FAULT, True, True), (Verdict.FAULT, False, False)],
)
def test_what_may_not_be_repeated_does_not_move(
    verdict: Verdict, first_byte_sent: bool, repeatable: bool
) -> None:
    router = router_of(None, None)
    lease = leased(router.arrive("", 0.0))
    assert not router.move(lease, verdict, first_byte_sent, repeatable, 0.0)
    assert lease.backend.in_flight == 1


def test_a_good_answer_brings_an_absent_backend_back_and_a_bad_one_does_not() -> None:
    router = router_of(None)
    one = backend(router, "b0")
    router.unreachable(one, 0.0)
    for verdict in (Verdict.IGNORED, Verdict.FAULT, Verdict.BACKPRESSURE):
        trial = leased(router.arrive("", 100.0))
        trial.verdict = verdict
        router.finish(trial, 0.0)
        assert not one.is_present()
        router.unreachable(one, 0.0)
    trial = leased(router.arrive("", 100.0))
    assert router.arrive("", 100.0) is Refusal.NO_BACKEND
    trial.verdict = Verdict.GOOD
    router.finish(trial, 0.0)
    assert one.is_present()
    leased(router.arrive("", 100.0))


def test_probes_take_a_backend_out_after_so_many_failures_in_a_row() -> None:
    router = router_of(None, rules=Rules(probe_failures=3))
    one = backend(router, "b0")
    for healthy in (False, False, True, False, False):
        router.engines.probed(one.id, healthy, False, 0.0)
        assert one.is_present()
    router.engines.probed(one.id, False, False, 0.0)
    assert not one.is_present()
    router.engines.probed(one.id, True, False, 0.0)
    assert one.is_present()


def test_a_refused_connection_needs_no_second_opinion() -> None:
    router = router_of(None)
    router.engines.probed(BackendId("b0"), False, True, 0.0)
    assert not backend(router, "b0").is_present()


def test_word_of_a_backend_that_is_no_longer_there_is_ignored() -> None:
    router = router_of(None)
    router.engines.probed(BackendId("gone"), True, False, 0.0)
    router.engines.learn_models(BackendId("gone"), frozenset({"m"}))
    assert [one.id for one in router.fleet] == ["b0"]
    leased(router.arrive("other", 0.0))


@given(st.integers(0, 5), st.integers(0, 5))
def test_a_new_window_holds_for_new_grants_and_takes_nothing_back(before: int, after: int) -> None:
    router = router_of(before)
    leases = [one for _ in range(6) if isinstance(one := router.arrive("", 0.0), Lease)]
    router.configure(plans(after), router.rules)
    granted = [grant for _, grant in router.pump(0.0) if isinstance(grant, Lease)]
    assert len(leases) == before
    assert len(granted) == max(0, min(after, 6) - before)
    assert backend(router, "b0").in_flight == max(before, len(leases) + len(granted))


def test_a_retired_backend_lives_on_in_its_leases_alone() -> None:
    router = router_of(2, 2)
    leases = [leased(router.arrive("", 0.0)) for _ in range(4)]
    [retired] = router.configure(plans(2), router.rules)
    assert retired.id == "b1"
    assert retired not in kept_by(router)
    for lease in leases:
        lease.verdict = Verdict.GOOD
        router.finish(lease, 0.0)
    assert [one.in_flight for one in (retired, *router.fleet)] == [0, 0]
    assert all(leased(router.arrive("", 0.0)).backend.id == "b0" for _ in range(2))


def test_a_configuration_brings_its_rules() -> None:
    router = router_of(1, 1)
    quick = AbsenceRules(first_seconds=0.25)
    rules = Rules(
        fairness=FairnessRules(max_waiting=1), probe_failures=1, retries=RetryRules(0), absence=quick
    )
    router.configure(plans(1, 1), rules)
    lease = leased(router.arrive("", 0.0))
    assert not router.move(lease, Verdict.FAULT, False, True, 0.0)
    leased(router.arrive("", 0.0))
    waiting(router.arrive("", 0.0))
    assert router.arrive("", 0.0) is Refusal.QUEUE_FULL
    router.engines.probed(BackendId("b0"), False, False, 0.0)
    assert not backend(router, "b0").is_present()
    assert backend(router, "b0").absence.until == 0.25


def test_names_that_clients_invent_leave_nothing_in_the_router() -> None:
    router = router_of(None, None)
    router.engines.learn_models(BackendId("b0"), frozenset({"m"}))
    router.finish(leased(router.arrive("m", 0.0)), 0.0)
    before = entries(router)
    for number in range(5000):
        router.finish(leased(router.arrive(f"invented-{number}", 0.0)), 0.0)
    router.engines.learn_models(BackendId("b1"), frozenset({"m"}))
    for number in range(5000):
        assert router.arrive(f"invented-{number}", 0.0) is Refusal.UNKNOWN_MODEL
    assert abs(entries(router) - before) <= 40


def test_who_is_put_out_of_a_full_queue_is_told_at_the_next_pump() -> None:
    router = router_of(1, rules=Rules(fairness=FairnessRules(max_waiting=1)))
    leased(router.arrive("", 0.0))
    low = waiting(router.arrive("", 0.0, Intent(lane=Lane.BATCH)))
    assert not router.has_evicted
    high = waiting(router.arrive("", 0.0, Intent(lane=Lane.INTERACTIVE)))
    assert router.has_evicted
    assert router.pump(0.0) == [(low, Refusal.QUEUE_FULL)]
    assert not router.has_evicted and router.waiting == 1
    assert router.cancel(high)


def test_a_moved_request_that_waits_goes_to_the_pools_of_a_new_configuration() -> None:
    router = router_of(1, 1)
    moved, other = leased(router.arrive("", 0.0)), leased(router.arrive("", 0.0))
    assert router.move(moved, Verdict.FAULT, False, True, 0.0)
    new = PoolName("new")
    router.configure([*plans(1, 1), BackendPlan(BackendId("c"), new, 1)], router.rules)
    assert new in moved.line.pools
    assert moved.ticket is not None and moved.ticket.line is moved.line
    [(_, grant)] = router.pump(1.0)
    assert grant is moved and moved.backend.id == "c"
    router.finish(other, 1.0)
    router.finish(moved, 1.0)
    assert (router.in_flight, router.waiting) == (0, 0)


@pytest.mark.parametrize("id", ["b0", "gone"])
def test_whatever_is_heard_of_an_engine_is_noted_where_it_is_configured(id: str) -> None:
    router = router_of(1)
    engines, known = router.engines, BackendId(id)
    engines.is_dialect(known, Dialect.VLLM, EngineFlags())
    engines.reported(known, EngineReport(waiting=3), 1.0)
    engines.learn_models(known, frozenset({"m"}))
    one = backend(router, "b0")
    noted = (one.dialect, one.report, one.models)
    if id == "b0":
        assert noted == (Dialect.VLLM, EngineReport(waiting=3), frozenset({"m"}))
    else:
        assert noted == (Dialect.UNKNOWN, None, None)


def test_a_prompt_that_is_partly_in_the_engines_memory_teaches_nothing_of_lengths_and_is_charged_whole() -> (
    None
):
    asked = Intent(size=TextSize(letters=400.0), max_tokens=10, pools=(PoolName("p"),))
    guesses: dict[bool, float] = {}
    for is_held in (False, True):
        router = router_of(64)
        lease = leased(router.arrive("m", 0.0, asked))
        for _ in range(50):
            lease = leased(router.arrive("m", 0.0, asked._replace(is_held=is_held)))
            lease.verdict, lease.usage = Verdict.GOOD, (2_000, 10, 0)
            router.finish(lease, 1.0)
        assert lease.charged > 2_000.0
        guesses[is_held] = leased(router.arrive("m", 2.0, asked)).tag.prompt_tokens
    assert guesses[True] < 200.0 < guesses[False]
