"""Who may wait: what a measured drain rate says to a newcomer, and until when who waits is worth a slot."""

from __future__ import annotations

from math import inf

import pytest

from policies.shedding import SheddingRules
from policies.terms import BackendId, Lane, PoolName, Refusal, Verdict
from routing.backend import BackendPlan
from routing.decision import Intent, Lease, Ticket
from routing.router import Router
from routing.rules import Rules

SERVICE_SECONDS = 1.0
WAITING = 5


def router_of(shedding: SheddingRules | None = None) -> Router:
    rules = Rules(shedding=shedding or SheddingRules())
    router = Router(rules)
    router.configure([BackendPlan(BackendId("b"), PoolName("p"), 1)], rules)
    return router


def measured(shedding: SheddingRules | None = None) -> tuple[Router, float]:
    """One slot, `SERVICE_SECONDS` each, five that wait; and the time of now."""
    router, now = router_of(shedding), 0.0
    running = router.arrive("", now)
    for _ in range(WAITING):
        assert isinstance(router.arrive("", now), Ticket)
    for _ in range(40):
        now += SERVICE_SECONDS
        assert isinstance(running, Lease)
        running.verdict, running.service_seconds = Verdict.GOOD, SERVICE_SECONDS
        router.finish(running, now)
        [(_, running)] = router.pump(now)
        assert isinstance(router.arrive("", now), Ticket)
    return router, now


def waiting(router: Router, now: float, intent: Intent) -> Ticket:
    ticket = router.arrive("", now, intent)
    assert isinstance(ticket, Ticket), ticket
    return ticket


@pytest.mark.parametrize("shedding", [SheddingRules(), SheddingRules(enabled=False)])
@pytest.mark.parametrize(("target_seconds", "is_taken"), [(4.0, False), (12.0, True), (inf, True)])
def test_who_is_predicted_to_be_late_may_not_wait_where_anybody_is_refused_for_it(
    target_seconds: float, is_taken: bool, shedding: SheddingRules
) -> None:
    router, now = measured(shedding)
    decision = router.arrive("", now, Intent(target_seconds=target_seconds))
    if is_taken or not shedding.enabled:
        assert isinstance(decision, Ticket)
    else:
        assert decision is Refusal.OVERLOADED


def test_who_would_come_back_is_told_when_it_would_be_served() -> None:
    assert router_of().admission.retry_after_seconds(Lane.STANDARD, 0.0) is None
    router, now = measured()
    told = [router.admission.retry_after_seconds(Lane.STANDARD, now) for _ in range(20)]
    seconds = [one for one in told if one is not None]
    assert len(seconds) == 20 and len(set(seconds)) > 1
    assert WAITING * 0.7 <= min(seconds) <= max(seconds) <= WAITING * 1.6


def test_where_nothing_moves_any_more_nobody_is_told_when_to_come_back() -> None:
    router, now = measured()
    assert router.admission.retry_after_seconds(Lane.STANDARD, now + 1e6) is None


@pytest.mark.parametrize(("margin", "factor"), [(0.5, 1.0), (1.0, 1.0), (2.0, 2.0)])
def test_a_request_is_given_up_when_its_target_is_over_by_the_margin(margin: float, factor: float) -> None:
    router = router_of(SheddingRules(margin=margin))
    router.arrive("", 0.0)
    ticket = waiting(router, 100.0, Intent(target_seconds=3.0))
    assert router.admission.given_up_at(ticket) == 100.0 + factor * 3.0


def test_an_emergency_one_that_is_rather_late_and_one_without_a_target_are_never_given_up() -> None:
    router = router_of()
    router.arrive("", 0.0)
    for intent in (
        Intent(lane=Lane.EMERGENCY, target_seconds=3.0),
        Intent(target_seconds=3.0, relegate=True),
        Intent(),
    ):
        assert router.admission.given_up_at(waiting(router, 0.0, intent)) == inf
    lenient = router_of(SheddingRules(enabled=False))
    lenient.arrive("", 0.0)
    assert lenient.admission.given_up_at(waiting(lenient, 0.0, Intent(target_seconds=3.0))) == inf
