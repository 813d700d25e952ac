"""Which request targets exist here, and what each needs from the gateway.

An engine's client paths pass (`/v1/...` and the list below), its control paths do not exist (404): sleep, LoRA loading, profiling, abort,
weight updates, cache flushes, `/metrics` and the scale-out family, which an engine leaves outside of its key check. The list is closed: what is
not named or below `/v1/` is not passed. Targets that two servers may read differently (dot segments, encoded slashes, empty
segments, backslashes, path parameters after `;`) are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What the gateway may do to a request on its way; also the `route` label of the metrics."""

    __hash__ = str.__hash__  # a key of the metrics at every request; Enum's own is a Python function

    CHAT = "chat"
    """Streams end with `[DONE]`; `stream_options.include_usage` may be added."""
    COMPLETION = "completion"
    """As chat, for `/v1/completions`."""
    JSON = "json"
    """Any other JSON call: model and alias are looked at, nothing else."""
    FORM = "form"
    """Multipart: the model is a form field."""
    OTHER = "other"
    """Passed without a look inside."""


class StreamForm(StrEnum):
    """How a stream of this API says that its answer is whole, and that it failed."""

    OPENAI = "openai"
    """`[DONE]`, a usage or a finish reason; `{"error": ...}`."""
    RESPONSES = "responses"
    """`response.completed`, `.incomplete` or `.failed`; an event `error`."""
    MESSAGES = "messages"
    """`message_stop`; an event `error`."""
    UNKNOWN = "unknown"
    """It may end as it likes."""


@dataclass(frozen=True, slots=True)
class Route:
    kind: Kind
    methods: frozenset[str]
    is_known: bool = True
    """Whether a body that is not of `kind` may be refused here: what an engine's other paths take is the engine's to say."""
    is_responses: bool = False
    """Whether it makes, or is about, a response that an engine may hold: `/v1/responses` and all below."""
    stream_form: StreamForm = StreamForm.UNKNOWN
    limits: tuple[str, ...] = ()
    """Members of the body that say how many tokens an answer may have, the usual one first. None where nothing is generated, and of APIs
    that say it inside of another member (`/generate`, `/api/...`) or in the words of others (`/invocations`)."""


_POST = frozenset({"POST", "OPTIONS"})
_GET = frozenset({"GET", "HEAD", "OPTIONS"})
_ANY = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_JSON_POST = Route(Kind.JSON, _POST)

_CHAT_LIMITS = ("max_tokens", "max_completion_tokens")

_EXACT: dict[str, Route] = {
    "/v1/chat/completions": Route(Kind.CHAT, _POST, stream_form=StreamForm.OPENAI, limits=_CHAT_LIMITS),
    "/v1/chat/completions/batch": Route(Kind.JSON, _POST, limits=_CHAT_LIMITS),
    "/v1/completions": Route(Kind.COMPLETION, _POST, stream_form=StreamForm.OPENAI, limits=("max_tokens",)),
    "/v1/responses": Route(
        Kind.JSON, _POST, is_responses=True, stream_form=StreamForm.RESPONSES, limits=("max_output_tokens",)
    ),
    "/v1/messages": Route(Kind.JSON, _POST, stream_form=StreamForm.MESSAGES, limits=("max_tokens",)),
    "/cohere/v2/chat": Route(Kind.JSON, _POST, limits=("max_tokens",)),
    "/v1/audio/transcriptions": Route(Kind.FORM, _POST),
    "/v1/audio/translations": Route(Kind.FORM, _POST),
    "/v1/rerank": Route(Kind.JSON, frozenset({"POST", "PUT", "OPTIONS"})),
    "/version": Route(Kind.OTHER, _GET),
    "/tokenizer_info": Route(Kind.OTHER, _GET),
    "/api/tags": Route(Kind.OTHER, _GET),
} | dict.fromkeys(
    (
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/v1/classify",
        "/v1/score",
        "/v1/decisions",
        "/v1/systemone",
        "/v1/tokenize",
        "/v1/detokenize",
        "/v2/embed",
        "/v2/rerank",
        "/generative_scoring",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/tokenize",
        "/detokenize",
        "/invocations",
        "/generate",
        "/encode",
        "/api/chat",
        "/api/generate",
        "/api/show",
    ),
    _JSON_POST,
)

EXACT_PATHS = tuple(_EXACT)

_CONTROL = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads"})
_CONTROL_ENDINGS = ("/render", "/derender", "/abort_requests")

_BELOW_V1 = Route(Kind.OTHER, _ANY)
_BELOW_V1_JSON = Route(Kind.JSON, _ANY, is_known=False)
_RESPONSE = Route(Kind.OTHER, _ANY, is_responses=True)
_RESPONSE_JSON = Route(Kind.JSON, _ANY, is_known=False, is_responses=True)


def route_of(path: str, raw_path: bytes, method: str) -> Route | None:
    """The route of a decoded `path`, or None where nothing is served."""
    route = _EXACT.get(path)
    if route is not None:
        return route if path.encode() == raw_path else None
    if not path.startswith("/v1/") or not _is_plain(path, raw_path):
        return None
    bare = path.rstrip("/")
    if bare in _CONTROL or bare.endswith(_CONTROL_ENDINGS):
        return None
    if path.startswith("/v1/responses/"):
        return _RESPONSE_JSON if method == "POST" else _RESPONSE
    return _BELOW_V1_JSON if method == "POST" else _BELOW_V1


def _is_plain(path: str, raw_path: bytes) -> bool:
    """One meaning for every server on the way."""
    if not path.isascii() or b"%2f" in raw_path.lower() or any(odd in path for odd in ("//", "\\", "%", ";")):
        return False
    return not any(segment in (".", "..") for segment in path.split("/")) and path.isprintable()
