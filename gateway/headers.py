"""Which headers pass, which stop here, and which are made.

To the engine: all of the client's but hop-by-hop ones (RFC 9110 7.6.1, those named in `Connection` included), `Host`, framing, the gateway's own
(`x-headrace-*` and their short names), and the overrides by which a client could reorder or address the engine's work.
To the client: all of the engine's but hop-by-hop ones.
`Authorization` passes as it came unless the backend has a key of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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

ENGINE_OVERRIDES = frozenset(
    {
        b"x-vllm-priority",
        b"x-data-parallel-rank",
        b"x-smg-routing-key",
        b"x-smg-priority",
    }
)

_MADE_HERE = frozenset({b"host", b"content-length", b"expect", b"x-request-id"})
_DROPPED_FROM_REQUEST = HOP_BY_HOP | GATEWAY_ALIASES | ENGINE_OVERRIDES | _MADE_HERE
_DROPPED_FROM_ANSWER = HOP_BY_HOP | {b"x-request-id"}
_DROPPED_PREFIXES = (b"x-headrace-", b"x-override-")

_REQUEST_ID = re.compile(rb"[!-~]{1,128}")


def usable_request_id(value: bytes) -> bool:
    """A client's id is kept if it is printable ASCII without spaces, at most 128 bytes: it is logged and echoed."""
    return _REQUEST_ID.fullmatch(value) is not None


def request_head(
    method: bytes,
    target: bytes,
    host: bytes,
    client_headers: Sequence[tuple[bytes, bytes]],
    content_length: int | None,
    request_id: bytes,
    authorization: bytes,
) -> bytes:
    """The head that goes to the engine. `client_headers` have lower-case names."""
    dropped: frozenset[bytes] | set[bytes] = _DROPPED_FROM_REQUEST
    lines = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method, target, host)]
    for name, value in client_headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            dropped = dropped | {token.strip().lower() for token in value.split(b",")}
    if authorization:
        dropped = dropped | {b"authorization"}
        lines.append(b"authorization: %b\r\n" % authorization)
    for name, value in client_headers:
        if name not in dropped and not name.startswith(_DROPPED_PREFIXES):
            lines.append(b"%b: %b\r\n" % (name, value))
    if content_length is not None:
        lines.append(b"content-length: %d\r\n" % content_length)
    lines.append(b"x-request-id: %b\r\n\r\n" % request_id)
    return b"".join(lines)


def answer_headers(
    engine_headers: Iterable[tuple[bytes, bytes]], drop_length: bool
) -> list[tuple[bytes, bytes]]:
    """What the client gets of the engine's headers. `drop_length` where the body will be shortened on its way."""
    headers = [pair for pair in engine_headers if pair[0] not in _DROPPED_FROM_ANSWER]
    if drop_length:
        headers = [pair for pair in headers if pair[0] != b"content-length"]
    for name, value in engine_headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            named = {token.strip().lower() for token in value.split(b",")}
            headers = [pair for pair in headers if pair[0] not in named]
    return headers
