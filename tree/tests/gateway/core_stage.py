"""The decision core as a configuration makes it, driven in virtual time."""

from __future__ import annotations

from collections import Counter

from gateway.core_rules import backend_plans, core_rules, pool_plans
from gateway.settings import Settings
from policies.terms import Verdict
from routing.decision import NO_INTENT, Intent, Lease, Ticket
from routing.router import Router


def router_of(configured: Settings) -> Router:
    """As the gateway makes it."""
    router = Router(core_rules(configured))
    router.configure(backend_plans(configured), core_rules(configured), pool_plans(configured))
    return router


def leased(router: Router, now: float = 0.0, intent: Intent = NO_INTENT) -> Lease:
    decision = router.arrive("", now, intent)
    assert isinstance(decision, Lease), decision
    return decision


def queued(router: Router, now: float = 0.0, intent: Intent = NO_INTENT) -> Ticket:
    decision = router.arrive("", now, intent)
    assert isinstance(decision, Ticket), decision
    return decision


def ends_well(router: Router, lease: Lease, now: float, service_seconds: float = 0.0) -> None:
    lease.verdict, lease.service_seconds = Verdict.GOOD, service_seconds
    router.finish(lease, now)


def learn_service(router: Router, seconds: float, intent: Intent = NO_INTENT) -> None:
    """So that the core predicts it; enough of them for its rules."""
    for _ in range(10):
        ends_well(router, leased(router, 0.0, intent), 0.0, seconds)


def at_once(router: Router, intent: Intent = NO_INTENT) -> int:
    """How many of these start without waiting, up to a thousand."""
    count = 0
    while count < 1000 and isinstance(router.arrive("", 0.0, intent), Lease):
        count += 1
    return count


def served_of(router: Router, intents: dict[str, Intent], count: int) -> Counter[str]:
    """How many of each kind are served while all of them wait, on one slot."""
    running = leased(router)
    kinds = {queued(router, 0.0, intent).id: kind for kind, intent in intents.items() for _ in range(count)}
    served: Counter[str] = Counter()
    for _ in range(count):
        ends_well(router, running, 0.0)
        [(ticket, grant)] = router.pump(0.0)
        assert isinstance(grant, Lease)
        running = grant
        served[kinds[ticket.id]] += 1
    return served
