"""Status and advice of each refusal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.refusals import STATUS_OF, error_type, retry_after_seconds
from policies.terms import Refusal

REFUSALS = st.sampled_from(Refusal)


@given(REFUSALS)
def test_a_client_is_asked_to_come_back_only_where_the_fault_is_not_its_own(reason: Refusal) -> None:
    seconds = retry_after_seconds(reason)
    if seconds is not None:
        assert (
            STATUS_OF[reason] >= 500 or reason in (Refusal.OVER_SHARE, Refusal.RATE_LIMITED)
        ) and 0 < seconds <= 60
    elif STATUS_OF[reason] in (502, 503):
        pytest.fail(f"{reason}: the fleet is short or broke, and nothing says when to come back")


@given(REFUSALS)
def test_the_type_says_who_has_to_act(reason: Refusal) -> None:
    own_fault = STATUS_OF[reason] < 500
    assert (error_type(reason) in ("invalid_request_error", "NotFoundError")) == own_fault


def test_every_refusal_has_a_status_and_no_status_is_left_over() -> None:
    assert set(STATUS_OF) == set(Refusal)
    assert set(STATUS_OF.values()) <= {
        400,
        401,
        403,
        404,
        405,
        408,
        409,
        413,
        414,
        429,
        431,
        500,
        502,
        503,
        504,
    }


@pytest.mark.parametrize("reason", Refusal)
def test_a_reason_is_a_label_and_a_header_value_as_it_stands(reason: Refusal) -> None:
    assert re.fullmatch(r"[a-z_]+", reason.value)


@pytest.mark.parametrize(
    ("reason", "status", "type_", "seconds"),
    [
        (Refusal.UNAUTHORIZED, 401, "invalid_request_error", None),
        (Refusal.FORBIDDEN, 403, "invalid_request_error", None),
        (Refusal.UNKNOWN_MODEL, 404, "NotFoundError", None),
        (Refusal.BODY_TOO_LARGE, 413, "invalid_request_error", None),
        (Refusal.INTERNAL, 500, "server_error", None),
        (Refusal.BACKEND_BROKE, 502, "server_error", 1),
        (Refusal.QUEUE_FULL, 503, "service_unavailable", 1),
        (Refusal.NO_BACKEND, 503, "service_unavailable", 5),
        (Refusal.TOTAL_TIMEOUT, 504, "timeout", None),
    ],
)
def test_examples(reason: Refusal, status: int, type_: str, seconds: int | None) -> None:
    assert (STATUS_OF[reason], error_type(reason), retry_after_seconds(reason)) == (status, type_, seconds)
