"""The request body: read up to its bound, looked at for the few fields that routing needs, forwarded as it came.

Settings: `server.max_body_mb` (413 beyond it), `server.body_gap_seconds` (enforced by the front).
JSON is read leniently: what this gateway does not use may be anything, and forms that only some parsers take (NaN, lone surrogates)
get a second reading by the standard library before the body counts as malformed. It has to be UTF-8, since changes are made in its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from gateway.body_room import BodyPlace
from gateway.errors import Refused
from gateway.form import field_span
from gateway.paths import Kind
from gateway.splice import add_member, member, set_member
from policies.terms import Refusal

Receive = Callable[[], Awaitable[Any]]


class ClientLeft(Exception):
    """The client's connection ended while its request was still coming."""


async def read_body(
    receive: Receive, declared_length: int | None, limit_bytes: int, place: BodyPlace
) -> bytes:
    """The whole body; `Refused` beyond the limit, before reading it where its length was declared, and where there is no room for it."""
    if declared_length is not None and declared_length > limit_bytes:
        raise too_large(limit_bytes)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
        place.grows(len(body))
        return body
    parts = [body]
    size = len(body)
    while message.get("more_body", False):
        if size > limit_bytes:
            raise too_large(limit_bytes)
        place.grows(size)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
    if size > limit_bytes:
        raise too_large(limit_bytes)
    place.grows(size)
    return b"".join(parts)


def too_large(limit_bytes: int) -> Refused:
    return Refused(Refusal.BODY_TOO_LARGE, f"The request body exceeds {limit_bytes} bytes")


NO_FIELDS: dict[str, Any] = {}


class View(NamedTuple):
    """What routing and relaying need of a body. `model` "" = none named; `stores`: the client asked the engine to keep something of it.

    `/v1/responses` stores where nothing is said too; such a request may be repeated before the first byte of its answer like any other: what
    its first attempt may have left in an engine is a response whose id nobody was told.

    `lacks_usage`: a stream whose usage the client did not ask for, so that the gateway may ask for itself; False where the client
    asked, does not stream, or sent options that may not be touched. `has_options`: the body names `stream_options`. `fields`: the
    decoded JSON object, which nobody changes. `model_span`: where the model stands in a form.
    """

    model: str = ""
    stores: bool = False
    lacks_usage: bool = False
    has_options: bool = False
    fields: dict[str, Any] = NO_FIELDS
    model_span: tuple[int, int] | None = None


NOTHING_SEEN = View()


def view_json(body: bytes) -> View:
    """`Refused` with a 400 where the body is not a JSON object: every engine refuses that too."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        try:
            fields = json.loads(body.decode("utf-8-sig", "surrogatepass"))
        except (ValueError, RecursionError):
            raise Refused(Refusal.BAD_REQUEST, f"The request body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Refused(Refusal.BAD_REQUEST, "The request body must be a JSON object")
    model = fields.get("model")
    return View(
        model if isinstance(model, str) else "",
        fields.get("store") is True or fields.get("background") is True,
        fields.get("stream") is True and _may_ask_for_usage(fields.get("stream_options")),
        "stream_options" in fields,
        fields,
    )


def _may_ask_for_usage(options: Any) -> bool:
    if options is None:
        return True
    if not isinstance(options, dict):
        return False  # the engine will refuse it; so it must see it
    # With usage asked for, `continuous_usage_stats` would put a usage into every event; alone it does nothing.
    return options.get("include_usage") is not True and not options.get("continuous_usage_stats")


def view_form(body: bytes, content_type: bytes) -> View:
    """Of a multipart form: its `model` field, wherever it stands."""
    span = field_span(body, content_type, "model")
    return View(model=body[span[0] : span[1]].decode("utf-8", "replace"), model_span=span) if span else View()


def for_engine(body: bytes, view: View, kind: Kind, engine_model: str) -> tuple[bytes, bool]:
    """The bytes to send, and whether usage was added that the client must not see.

    `engine_model` differs from `view.model` where the client used an alias.
    """
    if engine_model != view.model:
        if kind is Kind.FORM:
            span = view.model_span
            assert span is not None, "an alias came from this field"
            body = body[: span[0]] + engine_model.encode() + body[span[1] :]
        else:
            body = set_member(body, "model", orjson.dumps(engine_model), is_known=True)
    if view.lacks_usage and kind in (Kind.CHAT, Kind.COMPLETION):
        if not view.has_options:
            return add_member(body, "stream_options", b'{"include_usage":true}'), True
        options = member(body, "stream_options", is_known=True) or b"null"
        wanted = set_member(b"{}" if options == b"null" else options, "include_usage", b"true")
        return set_member(body, "stream_options", wanted, is_known=True), True
    return body, False
