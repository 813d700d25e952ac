"""A request's head that is the one before it on its connection, byte for byte but for the digits of its body's length.

A client that keeps its connection sends the same head again and again. llhttp has parsed those very bytes before, so nothing is left to find
out: a fourth of what a request costs before its body is looked at.
Recognised is a read that holds one whole request: that head, and as many bytes behind it as its `Content-Length` says. Everything else goes to
the parser. Remembered is no head with another framing, with `Expect` or an upgrade, or after which the connection ends.
"""

from __future__ import annotations

import re
from typing import Any

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})\r\n", re.IGNORECASE)
_LENGTH_DIGITS = 9
_NOT_REMEMBERED = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"trailer"})


class RepeatedHead:
    __slots__ = ("_headers", "_length_at", "_prefix", "_scope", "_suffix")

    def __init__(self, prefix: bytes, suffix: bytes, scope: dict[str, Any], length_at: int) -> None:
        """`prefix` and `suffix` are the head before and after the digits; `length_at` is the length's place in the scope's headers."""
        self._prefix = prefix
        self._suffix = suffix
        self._scope = scope
        self._headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._length_at = length_at

    def match(self, data: bytes) -> tuple[dict[str, Any], bytes] | None:
        """A new scope and the body where `data` is such a request."""
        prefix, suffix = self._prefix, self._suffix
        if not data.startswith(prefix):
            return None
        start = len(prefix)
        end = data.find(b"\r", start, start + _LENGTH_DIGITS + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(suffix, end):
            return None
        body_at = end + len(suffix)
        if len(data) - body_at != int(digits):
            return None
        headers = self._headers.copy()
        headers[self._length_at] = (b"content-length", digits)
        scope = self._scope.copy()
        scope["headers"] = headers
        return scope, data[body_at:]


def repeated_head(data: bytes, scope: dict[str, Any]) -> RepeatedHead | None:
    """From one whole request and what the parser made of its head; None where it is not one to be remembered."""
    end = data.find(b"\r\n\r\n") + 4
    found = _LENGTH.findall(data, 0, end)
    names = [name for name, _ in scope["headers"]]
    if len(found) != 1 or names.count(b"content-length") != 1 or not _NOT_REMEMBERED.isdisjoint(names):
        return None
    if len(data) - end != int(found[0]):
        return None
    match = _LENGTH.search(data, 0, end)
    assert match is not None
    return RepeatedHead(
        data[: match.start(1)], data[match.end(1) : end], dict(scope), names.index(b"content-length")
    )
