"""Which captured requests the gateway answers itself, why, and what it then promises (README.md, "HTTP").

Everything else that an engine was ever recorded to answer passes through it: `tests/system/test_captures.py` holds that with the
recordings, `tests/engine/test_differential.py` with the engines.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from tests import client


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """The gateway answers itself; the engine must not see the request."""

    status: int
    why: str
    reason: bytes | None = None
    """What `x-headrace-reason` says; None where the answer is no refusal."""
    has_body: Callable[[bytes], bool] = bool

    def holds_for(self, answer: client.Answer) -> None:
        """A refusal has the shape of OpenAI's errors, whatever the engine's own look like."""
        assert (answer.status, answer.complete) == (self.status, True)
        assert answer.value(b"x-headrace-reason") == self.reason
        if self.reason is not None:
            assert answer.value(b"content-type") == b"application/json"
            error = json.loads(answer.body)["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert error["code"] == self.status
        assert self.has_body(answer.body), answer.body


def _is_load(body: bytes) -> bool:
    load = json.loads(body)
    return list(load) == ["server_load"] and type(load["server_load"]) is int


def _is_own_metrics(body: bytes) -> bool:
    return b"\nheadrace_" in body and b"vllm:" not in body and b"sglang:" not in body


MODELS = OwnAnswer(200, "the union of all backends' models, every field kept")
HEALTH = OwnAnswer(200, "the gateway's health: any backend that can serve", has_body=lambda body: body == b"")
LOAD = OwnAnswer(200, "the load of the whole fleet", has_body=_is_load)
METRICS = OwnAnswer(
    200, "the gateway's own metrics; those of an engine are not a client's business", has_body=_is_own_metrics
)
CONTROL = OwnAnswer(404, "engine control or internals", b"unknown_path")
NO_MODEL = OwnAnswer(
    404, "a model with an empty name; vLLM would redirect to whatever host the client names", b"unknown_model"
)
METHOD = OwnAnswer(405, "the path has other methods", b"method_not_allowed")
BODY = OwnAnswer(400, "not a JSON object, which any engine refuses", b"bad_request")
UNKNOWN_MODEL = OwnAnswer(
    404, "no backend has this model, not even one that would accept any name", b"unknown_model"
)
TOO_LARGE = OwnAnswer(413, "longer than server.max_body_mb", b"body_too_large")
LONG_HEADERS = OwnAnswer(431, "longer than server.max_header_kb", b"head_too_large")

OWN_ANSWERS = {
    "get-v1-models": MODELS,
    "get-v1-models-one": MODELS,
    "err-300-headers": MODELS,
    "request-id-get": MODELS,
    "auth-none-models": MODELS,
    "get-health": HEALTH,
    "get-ping": HEALTH,
    "auth-none-health": HEALTH,
    "queue-full-health": HEALTH,
    "get-load": LOAD,
    "auth-none-load": LOAD,
    "auth-none-metrics": METRICS,
    "queue-full-metrics": METRICS,
    "get-server_info": CONTROL,
    "get-get_server_info": CONTROL,
    "get-model_info": CONTROL,
    "get-get_model_info": CONTROL,
    "get-get_load": CONTROL,
    "get-v1-loads": CONTROL,
    "get-kv_event_sources": CONTROL,
    "get-health_generate": CONTROL,
    "get-openapi": CONTROL,
    "err-trailing-slash": NO_MODEL,
    "err-method-get-chat": METHOD,
    "err-method-delete-models": METHOD,
    "err-malformed-json": BODY,
    "err-empty-body": BODY,
    "err-body-array": BODY,
    "err-body-null": BODY,
    "err-not-utf8": BODY,
    "err-unknown-model": UNKNOWN_MODEL,
    "err-unknown-model-stream": UNKNOWN_MODEL,
    "err-text-unknown-model": UNKNOWN_MODEL,
    "messages-unknown-model": UNKNOWN_MODEL,
    "request-id-error": UNKNOWN_MODEL,
    "err-body-32MiB": TOO_LARGE,
    "err-body-32MiB-chunked": TOO_LARGE,
    "err-header-100KB": LONG_HEADERS,
}
