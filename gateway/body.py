"""The request body: read up to its bound, looked at for the few fields that routing needs, forwarded as it came.

Settings: `server.max_body_mb` (413 beyond it), `server.body_gap_seconds` (enforced by the front).
JSON is read leniently: what this gateway does not use may be anything, and forms that only some parsers take (NaN, lone surrogates)
get a second reading by the standard library before the body counts as malformed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from gateway.errors import Refused
from gateway.paths import Kind
from gateway.splice import set_member
from policies.terms import Refusal

Receive = Callable[[], Awaitable[Any]]


class ClientLeft(Exception):
    """The client's connection ended while its request was still coming."""


async def read_body(receive: Receive, declared_length: int | None, limit_bytes: int) -> bytes:
    """The whole body; `Refused` beyond the limit, before reading it where its length was declared."""
    if declared_length is not None and declared_length > limit_bytes:
        raise _too_large(limit_bytes)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes)
        return body
    parts = [body]
    size = len(body)
    while message.get("more_body", False):
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    return b"".join(parts)


def _too_large(limit_bytes: int) -> Refused:
    return Refused(Refusal.BODY_TOO_LARGE, f"The request body exceeds {limit_bytes} bytes")


class View(NamedTuple):
    """What routing and relaying need of a body. `model` "" = none named; `stores`: the engine would keep something of it.

    `usage_options` are the `stream_options` that would make the engine report usage, None where the client asked for it
    itself, does not stream, or sent options that may not be touched.
    """

    model: str = ""
    stores: bool = False
    usage_options: dict[str, Any] | None = None


_NOTHING = View()


def view_json(body: bytes) -> View:
    """`Refused` with a 400 where the body is not a JSON object: every engine refuses that too."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            raise Refused(Refusal.BAD_REQUEST, f"The request body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Refused(Refusal.BAD_REQUEST, "The request body must be a JSON object")
    model = fields.get("model")
    return View(
        model=model if isinstance(model, str) else "",
        stores=fields.get("store") is True or fields.get("background") is True,
        usage_options=_usage_options(fields) if fields.get("stream") is True else None,
    )


def _usage_options(fields: dict[str, Any]) -> dict[str, Any] | None:
    options = fields.get("stream_options")
    if options is None:
        return {"include_usage": True}
    if not isinstance(options, dict):
        return None  # the engine will refuse it; so it must see it
    # With usage asked for, `continuous_usage_stats` would put a usage into every event; alone it does nothing.
    if options.get("include_usage") is True or options.get("continuous_usage_stats"):
        return None
    return {**options, "include_usage": True}


_FORM_MODEL = re.compile(
    rb'\r\nContent-Disposition:[^\r\n]*;\s*name="?model"?\s*(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]*)\r\n',
    re.IGNORECASE,
)


def view_form(body: bytes) -> View:
    """Of a multipart form: its `model` field, wherever it stands."""
    found = _FORM_MODEL.search(body)
    return View(model=found.group(1).decode("utf-8", "replace")) if found else _NOTHING


def for_engine(body: bytes, view: View, kind: Kind, engine_model: str) -> tuple[bytes, bool]:
    """The bytes to send, and whether usage was added that the client must not see.

    `engine_model` differs from `view.model` where the client used an alias.
    """
    if engine_model != view.model:
        if kind is Kind.FORM:
            found = _FORM_MODEL.search(body)
            assert found is not None, "an alias came from this field"
            body = body[: found.start(1)] + engine_model.encode() + body[found.end(1) :]
        else:
            body = set_member(body, "model", orjson.dumps(engine_model))
    if view.usage_options is not None and kind in (Kind.CHAT, Kind.COMPLETION):
        return set_member(body, "stream_options", orjson.dumps(view.usage_options)), True
    return body, False
