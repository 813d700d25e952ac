"""The one place where an ending becomes an OpenAI-shaped error: body, headers, or an event inside a stream.

    {"error": {"message": ..., "type": ..., "param": null, "code": 503}}

`code` is the status as a number, as vLLM sends it. The reason (`policies.terms.Refusal`) is in the header `x-headrace-reason` and, where
no header can be sent any more, in the event's `reason`. While the ladder of overload is above 0 its level is in `x-headrace-route`.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from gateway.paths import StreamForm
from policies.refusals import STATUS_OF, error_type, retry_after_seconds
from policies.terms import Refusal

Headers = list[tuple[bytes, bytes]]


_CLOSING = frozenset(
    {
        Refusal.MALFORMED_HTTP,
        Refusal.HEAD_TIMEOUT,
        Refusal.HEAD_TOO_LARGE,
        Refusal.TARGET_TOO_LONG,
        Refusal.BODY_TOO_LARGE,
        Refusal.BODY_TIMEOUT,
        Refusal.SHUTTING_DOWN,
    }
)
"""The connection ends with these: part of the request is unread, or the process is."""


class Refused(Exception):
    """Raised inside the gateway where a request ends without an engine's answer; the proxy turns it into an answer."""

    def __init__(
        self,
        reason: Refusal,
        message: str,
        param: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        """As measured; None where only the reason says."""
        self.reason = reason
        self.message = message
        self.param = param


def error_body(message: str, type_: str, status: int, param: str | None = None) -> bytes:
    return _dumps({"error": {"message": message, "type": type_, "param": param, "code": status}})


def _dumps(content: Any) -> bytes:
    try:
        return orjson.dumps(content)
    except TypeError:  # a client's lone surrogate, quoted in the message; the standard library escapes it
        return json.dumps(content).encode()


def refusal_answer(refused: Refused, level: int = 0) -> tuple[int, Headers, bytes]:
    """`level` is that of the ladder of overload when the request came."""
    reason = refused.reason
    status = STATUS_OF[reason]
    body = error_body(refused.message, error_type(reason), status, refused.param)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-headrace-reason", reason.value.encode()),
    ]
    if level:
        headers.append((b"x-headrace-route", b"level=%d" % level))
    retry_after = refused.retry_after_seconds or retry_after_seconds(reason)
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    if reason is Refusal.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if reason in _CLOSING:
        headers.append((b"connection", b"close"))
    return status, headers, body


def error_event(reason: Refusal, message: str, form: StreamForm = StreamForm.OPENAI) -> bytes:
    """What a client gets inside a stream that cannot be finished; the broken end follows. Never a `[DONE]`."""
    if form is StreamForm.MESSAGES:
        wrapped = {"type": "error", "error": {"type": "api_error", "message": message}}
        return b"event: error\ndata: " + _dumps(wrapped) + b"\n\n"
    if form is StreamForm.RESPONSES:
        told = {
            "type": "error",
            "code": reason.value,
            "message": message,
            "param": None,
            "sequence_number": 0,
        }
        return b"event: error\ndata: " + _dumps(told) + b"\n\n"
    error = {
        "message": message,
        "type": error_type(reason),
        "param": None,
        "code": STATUS_OF[reason],
        "reason": reason.value,
    }
    return b"data: " + _dumps({"error": error}) + b"\n\n"
