"""Which headers pass, which stop here, and which are made.

To the engine: all of the client's but hop-by-hop ones (RFC 9110 7.6.1, those named in `Connection` included), `Host`, framing, the gateway's own
(`x-headrace-*` and their short names), and the overrides by which a client could reorder or address the engine's work.
To the client: all of the engine's but hop-by-hop ones, those that only this gateway may say (`x-headrace-*`), and but the load that the gateway itself asked for (`gateway.load_header`).
`Authorization` passes as it came unless the backend has a key of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

GATEWAY_ALIASES = frozenset({b"x-business-type", b"x-priority", b"x-session-id"})
"""The short names of gateway headers; the long ones are known by their prefix."""

ENGINE_OVERRIDES = frozenset({b"x-vllm-priority", b"x-data-parallel-rank"})
"""Of vLLM (both) and SGLang (the rank); `X-Session-ID` of vLLM is among the gateway's short names."""

OVERRIDE_PREFIXES = (b"x-override-", b"x-smg-")
"""Of SGLang: `x-override-{rid,priority,routed-dp-rank,bootstrap-*,...}`, and `x-smg-*`, which its router and its engine route by."""

_MADE_HERE = frozenset({b"host", b"content-length", b"expect", b"x-request-id"})
_DROPPED_FROM_REQUEST = HOP_BY_HOP | GATEWAY_ALIASES | ENGINE_OVERRIDES | _MADE_HERE
_DROPPED_FROM_ANSWER = HOP_BY_HOP | {b"x-request-id"}
_DROPPED_WITH_LENGTH = _DROPPED_FROM_ANSWER | {b"content-length"}
_USUAL_CONNECTION = (b"keep-alive", b"close", b"Keep-Alive", b"Close")
_OWN_PREFIX = b"x-headrace-"
_DROPPED_PREFIXES = (_OWN_PREFIX, *OVERRIDE_PREFIXES)

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")


def usable_request_id(value: bytes) -> bool:
    """A client's id is kept if it is printable ASCII without spaces, at most 128 bytes: it is logged and echoed."""
    return _REQUEST_ID.fullmatch(value) is not None


def forwarded(client_headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The client's headers that go to an engine. Names are lower-case."""
    dropped: frozenset[bytes] = _DROPPED_FROM_REQUEST
    for name, value in client_headers:
        if name == b"connection" and value not in _USUAL_CONNECTION:
            dropped = dropped | _tokens(value)
    return [
        pair
        for pair in client_headers
        if pair[0] not in dropped and not pair[0].startswith(_DROPPED_PREFIXES)
    ]


def header_lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """As they stand in a head."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def request_head(
    method: str,
    target: bytes,
    host: bytes,
    lines: bytes,
    content_length: int | None,
    request_id: str,
    authorization: bytes,
) -> bytes:
    """The head of one attempt. `lines` are the `header_lines` that pass; `authorization` is the backend's own key or empty."""
    length = b"" if content_length is None else b"content-length: %d\r\n" % content_length
    key = b"authorization: %b\r\n" % authorization if authorization else b""
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b%bx-request-id: %b\r\n\r\n" % (
        method.encode(),
        target,
        host,
        lines,
        key,
        length,
        request_id.encode(),
    )


def answer_headers(
    engine_headers: Sequence[tuple[bytes, bytes]], drop_length: bool
) -> list[tuple[bytes, bytes]]:
    """What the client gets of the engine's headers. `drop_length` where the body will be shortened on its way."""
    dropped: frozenset[bytes] = _DROPPED_WITH_LENGTH if drop_length else _DROPPED_FROM_ANSWER
    if b"connection" in dict(engine_headers):
        for name, value in engine_headers:
            if name == b"connection" and value not in _USUAL_CONNECTION:
                dropped = dropped | _tokens(value)
    return [pair for pair in engine_headers if pair[0] not in dropped and not pair[0].startswith(_OWN_PREFIX)]


def _tokens(value: bytes) -> frozenset[bytes]:
    return frozenset(token.strip().lower() for token in value.split(b","))
