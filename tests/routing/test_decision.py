"""What a request is charged for in the end, and what is forgotten when an attempt is over."""

from __future__ import annotations

from policies.cost import weighted_tokens
from policies.terms import UNTAGGED, BackendId, PoolName, TicketId, Verdict
from routing.backend import Backend, BackendPlan
from routing.decision import NO_INTENT, Lease, Line, Ticket

TAG = UNTAGGED._replace(prompt_tokens=100.0, output_tokens=10.0, cost=140.0)


def lease_of() -> Lease:
    backend = Backend(BackendPlan(BackendId("b"), PoolName("p")))
    return Lease(backend, Line("m", (PoolName("p"),)), TAG, NO_INTENT, 0.0, False)


def test_what_the_engine_counted_is_consumed_and_one_token_at_least() -> None:
    lease = lease_of()
    lease.usage = (100, 20, 50)
    assert lease.consumed() == weighted_tokens(100, 50, 20)
    lease.usage = (0, 0, 0)
    assert lease.consumed() == 1.0


def test_without_a_count_a_good_answer_is_taken_as_expected_and_a_cut_one_as_far_as_it_got() -> None:
    lease = lease_of()
    assert lease.consumed() == 0.0
    lease.produced, lease.service_seconds = 5, 0.1
    assert lease.consumed() == weighted_tokens(100.0, 0.0, 5)
    lease.verdict = Verdict.GOOD
    assert lease.consumed() == TAG.cost


def test_what_was_said_of_an_attempt_is_forgotten_when_it_leaves_but_not_that_it_found_nobody() -> None:
    lease = lease_of()
    lease.verdict, lease.service_seconds, lease.found_nobody, lease.attempts = Verdict.FAULT, 2.0, True, 2
    assert lease.tries == 1
    lease.leaves()
    lease.attempts = 3
    assert (lease.verdict, lease.service_seconds, lease.found_nobody) == (Verdict.IGNORED, 0.0, False)
    assert (lease.has_moved, lease.tries) == (True, 2)


def test_a_request_is_for_the_model_of_its_line() -> None:
    lease = lease_of()
    assert lease.model == Ticket(TicketId(1), lease.line, TAG, NO_INTENT, 0.0).model == "m"
