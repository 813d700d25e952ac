"""Whether a failed attempt may be repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.retries import RetryRules, may_retry
from policies.terms import Verdict


@given(
    verdict=st.sampled_from(Verdict),
    attempts=st.integers(1, 20),
    first_byte_sent=st.booleans(),
    repeatable=st.booleans(),
    max_retries=st.integers(0, 10),
)
def test_a_second_try_needs_a_failure_that_the_client_has_not_seen_and_an_attempt_left(
    verdict: Verdict, attempts: int, first_byte_sent: bool, repeatable: bool, max_retries: int
) -> None:
    failed = verdict in (Verdict.FAULT, Verdict.BACKPRESSURE)
    expected = failed and not first_byte_sent and repeatable and attempts <= max_retries
    assert may_retry(verdict, attempts, first_byte_sent, repeatable, RetryRules(max_retries)) == expected


@given(st.integers(0, 10))
def test_a_request_that_always_fails_is_tried_once_more_than_there_are_retries(max_retries: int) -> None:
    attempts = 1
    while may_retry(Verdict.FAULT, attempts, False, True, RetryRules(max_retries)):
        attempts += 1
    assert attempts == max_retries + 1


@pytest.mark.parametrize(
    ("verdict", "first_byte_sent", "repeatable", "expected"),
    [
        (Verdict.FAULT, False, True, True),
        (Verdict.BACKPRESSURE, False, True, True),
        (Verdict.FAULT, True, True, False),
        (Verdict.FAULT, False, False, False),
        (Verdict.IGNORED, False, True, False),
        (Verdict.GOOD, False, True, False),
    ],
)
def test_examples(verdict: Verdict, first_byte_sent: bool, repeatable: bool, expected: bool) -> None:
    assert may_retry(verdict, 1, first_byte_sent, repeatable, RetryRules()) is expected
