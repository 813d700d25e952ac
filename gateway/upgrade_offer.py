"""A client that offers HTTP/2 (`Upgrade: h2c`) is answered in HTTP/1.1: its head again, without the offer."""

from __future__ import annotations

from typing import Any

_OFFER = frozenset({b"upgrade", b"http2-settings"})


def head_without_offer(scope: Any, url: bytes) -> bytes:
    """The parser takes such a request for one without a body, so a new one gets this."""
    head = [b"%b %b HTTP/%b\r\n" % (scope["method"].encode(), url, scope["http_version"].encode())]
    for name, value in scope["headers"]:
        if name == b"connection":
            value = b", ".join(token for token in value.split(b",") if token.strip().lower() not in _OFFER)
        if name not in _OFFER and (value or name != b"connection"):
            head.append(b"%b: %b\r\n" % (name, value))
    head.append(b"\r\n")
    return b"".join(head)
