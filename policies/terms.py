"""The words that every layer shares. Closed enums are also metric labels, so their members are the whole label space."""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import NamedTuple, NewType

from policies.cache_key import CacheKey

BackendId = NewType("BackendId", str)
PoolName = NewType("PoolName", str)
TicketId = NewType("TicketId", int)


class Lane(StrEnum):
    """Priority between requests, most urgent first."""

    __hash__ = str.__hash__  # a key of the metrics at every request; Enum's own is a Python function

    EMERGENCY = "emergency"
    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"


class Verdict(StrEnum):
    """What one attempt says about its backend."""

    GOOD = "good"
    FAULT = "fault"
    BACKPRESSURE = "backpressure"
    """The engine is well but full: its 429 and 503."""
    IGNORED = "ignored"
    """Says nothing: the client left, or the client was wrong (4xx)."""


class Refusal(StrEnum):
    """Why the gateway itself answers instead of an engine. `STATUS_OF` in `policies.refusals` gives each one's status."""

    MALFORMED_HTTP = "malformed_http"
    HEAD_TIMEOUT = "head_timeout"
    HEAD_TOO_LARGE = "head_too_large"
    TARGET_TOO_LONG = "target_too_long"
    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    UNKNOWN_PATH = "unknown_path"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NO_POOL = "no_pool"
    INVALID_SESSION = "invalid_session"
    UNKNOWN_SESSION = "unknown_session"
    SESSION_CONFLICT = "session_conflict"
    SESSION_STORE_UNAVAILABLE = "session_store_unavailable"
    UNKNOWN_RESPONSE = "unknown_response"
    RESPONSE_GONE = "response_gone"
    UNKNOWN_MODEL = "unknown_model"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TIMEOUT = "body_timeout"
    BODIES_FULL = "bodies_full"
    NO_BACKEND = "no_backend"
    BACKEND_UNREACHABLE = "backend_unreachable"
    BACKEND_BROKE = "backend_broke"
    UPSTREAM_FULL = "upstream_full"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    GAP_TIMEOUT = "gap_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    DEADLINE = "deadline"
    OVERLOADED = "overloaded"
    STANDING_QUEUE = "standing_queue"
    COLD_PATH_CLOSED = "cold_path_closed"
    LANE_REFUSED = "lane_refused"
    RATE_LIMITED = "rate_limited"
    OVER_SHARE = "over_share"
    SHUTTING_DOWN = "shutting_down"
    INTERNAL = "internal_error"


class LengthClass(StrEnum):
    """Of a request's prompt, by its estimated tokens."""

    __hash__ = str.__hash__  # as `Lane`'s

    UNKNOWN = "unknown"
    """Not a prompt: audio, a path that the gateway does not look into."""
    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


class CachePath(StrEnum):
    """Whether an engine's cache most likely holds what a request begins with."""

    __hash__ = str.__hash__  # as `Lane`'s

    HOT = "hot"
    COLD = "cold"


class Tag(NamedTuple):
    """What the gateway decided about a request before it chose a backend. Tokens are estimates; `cost` is in weighted tokens.

    `path` is hot or cold; `hot_prefixes` counts the leading boundaries of `key` that are hot. `deadline` is when the first byte of the answer is due, on the clock of `now`; infinite without a target. `pools` is the order of
    preference, empty for any; `backend` is set where a trusted client named one.
    """

    business: str = "default"
    length: LengthClass = LengthClass.UNKNOWN
    lane: Lane = Lane.STANDARD
    path: CachePath = CachePath.COLD
    tenant: str = "anonymous"
    weight: float = 1.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    output_tokens_p90: float = 0.0
    cost: float = 1.0
    streamed: bool = False
    target_seconds: float = inf
    deadline: float = inf
    pools: tuple[PoolName, ...] = ()
    backend: BackendId | None = None
    key: CacheKey | None = None
    hot_prefixes: int = 0


UNTAGGED = Tag()
