"""Refusals with vLLM's statuses and bodies, as captured from vLLM 0.32.0.

Two families share one shape, `{"error": {message, type, param, code}}`: what a schema check finds (`Bad
Request`, `param` a path like `body.max_tokens`) and what the engine's own checks find (`BadRequestError`,
`param` a bare name). All of them are 400, never 422. Paths and methods that do not exist are answered with
`{"detail": ...}`.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

ENGINE_DIED = "EngineCore encountered an issue. See stack trace (above) for the root cause."
QUEUE_FULL = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."


@dataclass(slots=True, eq=False)
class RefusedError(Exception):
    """A request the engine answers with an error; raised while it is read, rendered by the connection."""

    status: int
    body: bytes
    allow: str = ""
    """The methods a wrong-method answer names."""


def error_body(status: int, kind: str, message: str, param: str | None = None) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": status}})


def _detail(text: str) -> bytes:
    return orjson.dumps({"detail": text})


def malformed(kind: str, location: str, message: str, shown: str, context: str = "") -> RefusedError:
    """A schema check failed at `location`."""
    text = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{location}', 'msg': '{message}', 'input': '{shown}'{context}}}"
    return RefusedError(400, error_body(400, "Bad Request", text, location))


def not_json(position: int, reason: str) -> RefusedError:
    context = f", 'ctx': {{'error': '{reason}'}}"
    return malformed("json_invalid", f"body.{position}", "JSON decode error", "<dict of 0 items>", context)


def not_utf8() -> RefusedError:
    return RefusedError(400, _detail("There was an error parsing the body"))


def not_a_json_type() -> RefusedError:
    text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return RefusedError(400, error_body(400, "Bad Request", text))


def refused(message: str, param: str | None = None, value: object = None) -> RefusedError:
    """The engine's own check failed; `value` is shown when it is given."""
    if param is not None:
        message += f" (parameter={param}, value={value})" if value is not None else f" (parameter={param})"
    return RefusedError(400, error_body(400, "BadRequestError", message, param))


def unknown_model(name: str, alias: str) -> RefusedError:
    message = f"The model `{name}` does not exist. Valid aliases: {alias}."
    return RefusedError(404, error_body(404, "NotFoundError", message, "model"))


def not_found() -> RefusedError:
    return RefusedError(404, _detail("Not Found"))


def wrong_method(allow: str) -> RefusedError:
    return RefusedError(405, _detail("Method Not Allowed"), allow)


def unauthorized() -> RefusedError:
    return RefusedError(401, b'{"error":"Unauthorized"}')


def queue_full() -> RefusedError:
    return RefusedError(503, error_body(503, "Service Unavailable", QUEUE_FULL))


def engine_died() -> RefusedError:
    return RefusedError(500, error_body(500, "InternalServerError", ENGINE_DIED))
