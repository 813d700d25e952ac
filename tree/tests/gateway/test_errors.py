"""Every refusal reaches the client as an OpenAI error."""

from __future__ import annotations

import json

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Refused, error_body, error_event, refusal_answer
from policies.refusals import STATUS_OF, error_type, retry_after_seconds
from policies.terms import Refusal

MESSAGES = st.text(st.characters(), max_size=40)


@given(st.sampled_from(Refusal), MESSAGES, st.none() | st.sampled_from(["model"]))
def test_a_refusal_is_a_json_answer_that_names_its_reason(
    reason: Refusal, message: str, param: str | None
) -> None:
    status, headers, body = refusal_answer(Refused(reason, message, param))
    error = {"message": message, "type": error_type(reason), "param": param, "code": STATUS_OF[reason]}
    assert json.loads(body) == {"error": error}
    assert status == STATUS_OF[reason]
    named = dict(headers)
    assert len(named) == len(headers)
    assert named[b"content-type"] == b"application/json"
    assert int(named[b"content-length"]) == len(body)
    assert named[b"x-headrace-reason"] == reason.value.encode()
    seconds = retry_after_seconds(reason)
    assert named.get(b"retry-after") == (None if seconds is None else str(seconds).encode())


@pytest.mark.parametrize("reason", Refusal)
def test_the_connection_ends_only_where_it_cannot_be_used_again(reason: Refusal) -> None:
    _, headers, _ = refusal_answer(Refused(reason, "m"))
    unread = {Refusal.BODY_TOO_LARGE, Refusal.BODY_TIMEOUT, Refusal.HEAD_TIMEOUT}
    unreadable = {Refusal.MALFORMED_HTTP, Refusal.HEAD_TOO_LARGE, Refusal.TARGET_TOO_LONG}
    ends = reason in unread | unreadable | {Refusal.SHUTTING_DOWN}
    assert ((b"connection", b"close") in headers) == ends


@given(st.sampled_from(Refusal), MESSAGES)
def test_an_error_event_is_one_event_and_no_done(reason: Refusal, message: str) -> None:
    event = error_event(reason, message)
    assert event.startswith(b"data: ") and event.endswith(b"\n\n")
    assert b"\n" not in event[:-2] and b"\r" not in event
    error = json.loads(event.removeprefix(b"data: "))["error"]
    assert error == {
        "message": message,
        "type": error_type(reason),
        "param": None,
        "code": STATUS_OF[reason],
        "reason": reason.value,
    }
    assert event != b"data: [DONE]\n\n"


@given(MESSAGES)
def test_a_message_may_quote_anything_a_client_sent(message: str) -> None:
    body = error_body(message, "invalid_request_error", 400)
    assert json.loads(body)["error"]["message"] == message
    assert b"\n" not in body


def test_the_official_client_knows_the_shape() -> None:
    body = json.loads(refusal_answer(Refused(Refusal.UNKNOWN_MODEL, "no", "model"))[2])
    error = openai.APIError("no", request=None, body=body["error"])  # type: ignore[arg-type]  # not looked at
    assert (error.message, error.type, error.param, error.code) == ("no", "NotFoundError", "model", "404")


def test_a_refusal_is_an_exception_with_its_message() -> None:
    refused = Refused(Refusal.QUEUE_FULL, "too many")
    assert (str(refused), refused.reason, refused.param) == ("too many", Refusal.QUEUE_FULL, None)
