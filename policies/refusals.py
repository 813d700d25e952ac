"""Status and retry advice of each refusal.

Decides: the HTTP status, the OpenAI error type and whether a client may try again, for every member of `Refusal`.
400/404/405/409/413/414/431 are the client's to mend; 401 is a key that is missing or wrong, 403 one that gives no right to this; 408 is a request that
never came in full; 429 is a client that has had its share, or more requests than a degradation rule lets in; 502 is a backend that failed this request; 503 is a fleet that is short, broken or
leaving; 504 is an admitted request that ran out of time.

`retry_after_seconds` is a constant per reason: what is said as long as no drain rate is measured.
"""

from __future__ import annotations

from policies.terms import Refusal

STATUS_OF: dict[Refusal, int] = {
    Refusal.MALFORMED_HTTP: 400,
    Refusal.BAD_REQUEST: 400,
    Refusal.NO_POOL: 400,
    Refusal.INVALID_SESSION: 400,
    Refusal.UNAUTHORIZED: 401,
    Refusal.FORBIDDEN: 403,
    Refusal.UNKNOWN_PATH: 404,
    Refusal.UNKNOWN_MODEL: 404,
    Refusal.UNKNOWN_SESSION: 404,
    Refusal.UNKNOWN_RESPONSE: 404,
    Refusal.RESPONSE_GONE: 404,
    Refusal.METHOD_NOT_ALLOWED: 405,
    Refusal.HEAD_TIMEOUT: 408,
    Refusal.BODY_TIMEOUT: 408,
    Refusal.SESSION_CONFLICT: 409,
    Refusal.BODY_TOO_LARGE: 413,
    Refusal.TARGET_TOO_LONG: 414,
    Refusal.OVER_SHARE: 429,
    Refusal.RATE_LIMITED: 429,
    Refusal.HEAD_TOO_LARGE: 431,
    Refusal.INTERNAL: 500,
    Refusal.BACKEND_UNREACHABLE: 502,
    Refusal.BACKEND_BROKE: 502,
    Refusal.NO_BACKEND: 503,
    Refusal.UPSTREAM_FULL: 503,
    Refusal.QUEUE_FULL: 503,
    Refusal.BODIES_FULL: 503,
    Refusal.DEADLINE: 503,
    Refusal.OVERLOADED: 503,
    Refusal.STANDING_QUEUE: 503,
    Refusal.COLD_PATH_CLOSED: 503,
    Refusal.LANE_REFUSED: 503,
    Refusal.SESSION_STORE_UNAVAILABLE: 503,
    Refusal.SHUTTING_DOWN: 503,
    Refusal.QUEUE_TIMEOUT: 504,
    Refusal.FIRST_BYTE_TIMEOUT: 504,
    Refusal.GAP_TIMEOUT: 504,
    Refusal.TOTAL_TIMEOUT: 504,
}

_RETRY_AFTER_SECONDS: dict[Refusal, int] = {
    Refusal.NO_BACKEND: 5,
    Refusal.BACKEND_UNREACHABLE: 1,
    Refusal.BACKEND_BROKE: 1,
    Refusal.UPSTREAM_FULL: 1,
    Refusal.QUEUE_FULL: 1,
    Refusal.BODIES_FULL: 1,
    Refusal.OVER_SHARE: 1,
    Refusal.DEADLINE: 1,
    Refusal.OVERLOADED: 1,
    Refusal.STANDING_QUEUE: 1,
    Refusal.COLD_PATH_CLOSED: 5,
    Refusal.LANE_REFUSED: 5,
    Refusal.RATE_LIMITED: 1,
    Refusal.SESSION_STORE_UNAVAILABLE: 1,
    Refusal.QUEUE_TIMEOUT: 1,
    Refusal.SHUTTING_DOWN: 1,
}


def error_type(reason: Refusal) -> str:
    """The `type` of an OpenAI error body: who has to act."""
    status = STATUS_OF[reason]
    if status == 404:
        return "NotFoundError"
    if status < 500:
        return "invalid_request_error"
    return "server_error" if status in (500, 502) else "service_unavailable" if status == 503 else "timeout"


def retry_after_seconds(reason: Refusal) -> int | None:
    """What `Retry-After` says, or None where a second try of the same request cannot help."""
    return _RETRY_AFTER_SECONDS.get(reason)
