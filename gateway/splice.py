"""Changes to a JSON request body that leave every other byte as the client sent it.

The body is known to be a JSON object. A member that exists is replaced where it stands (the last one of that name, the one that
parsers keep); a new one is put before the closing brace; one that is taken out goes with its comma, all of that name do. Nothing else is
decoded or written anew: numbers, key order, duplicate keys and escapes stay.
"""

from __future__ import annotations

import json
import re

# A string, or one structural character; everything between them (numbers, literals, white space) is skipped. A string is taken in
# runs, 4 to 9 times as fast as byte by byte, and possessively: JSON leaves nothing to go back for.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_SPACE = b" \t\r\n"

Span = tuple[int, int]


def member(body: bytes, key: str) -> bytes | None:
    """The JSON text of the value that parsers keep for `key`, None where there is no such member."""
    span = member_span(body, key)
    return None if span is None else body[span[0] : span[1]]


def set_member(body: bytes, key: str, value: bytes) -> bytes:
    """`value` is JSON text."""
    span = member_span(body, key)
    if span is not None:
        return body[: span[0]] + value + body[span[1] :]
    return add_member(body, key, value)


def add_member(body: bytes, key: str, value: bytes) -> bytes:
    """For a `key` that the body is known not to have: no look inside, however long it is."""
    end = body.rindex(b"}")
    comma = b"" if body[:end].rstrip(_SPACE).endswith(b"{") else b","
    return b'%b%b"%b":%b%b' % (body[:end], comma, key.encode(), value, body[end:])


def without_member(body: bytes, key: str) -> bytes:
    """Every top-level member called `key` is taken out: without the last one parsers would keep the one before."""
    wanted = key.encode()
    if b'"%b"' % wanted not in body and b"\\" not in body:
        return body
    kept: list[bytes] = []
    depth = 0
    expects_key = False
    is_wanted = False
    start = 0  # of the member that is looked at
    opening = closing = 0
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first == 0x22:  # a string
            if depth == 1 and expects_key:
                is_wanted = _is_name(token.group(), wanted)
                expects_key = False
        elif first in b"{[":
            depth += 1
            if depth == 1:
                expects_key = True
                opening = start = token.end()
        elif first in b"}]":
            depth -= 1
        if (depth == 0 and first == 0x7D) or (depth == 1 and first == 0x2C):
            if not is_wanted:
                kept.append(body[start : token.start()])
            is_wanted = False
            expects_key = True
            start = token.end()
            closing = token.start()
    return body[:opening] + b",".join(kept) + body[closing:]


def element_spans(body: bytes, span: Span) -> list[Span]:
    """Start and end of each element of the array that stands at `span`, without the white space around them."""
    found: list[Span] = []
    depth = 0
    start = -1
    for token in _TOKEN.finditer(body, *span):
        first = body[token.start()]
        if first == 0x22:  # a string
            continue
        if first in b"{[":
            depth += 1
            if depth == 1:
                start = token.end()
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                last = _trimmed(body, start, token.start())
                return [*found, last] if last[0] < last[1] else found
        elif first == 0x2C and depth == 1:
            found.append(_trimmed(body, start, token.start()))
            start = token.end()
    return found


def member_span(body: bytes, key: str) -> Span | None:
    """Start and end of the value of the last top-level member called `key`, without the white space around it."""
    wanted = key.encode()
    if b'"%b"' % wanted not in body and b"\\" not in body:
        return None
    depth = 0
    expects_key = False
    name_matches = False
    value_start = -1
    found: Span | None = None
    for token in _TOKEN.finditer(body):
        first = body[token.start()]
        if first == 0x22:  # a string
            if depth == 1 and expects_key:
                name_matches = _is_name(token.group(), wanted)
                expects_key = False
        elif first in b"{[":
            depth += 1
            expects_key = depth == 1
        elif first in b"}]":
            depth -= 1
            if depth == 0 and value_start >= 0:
                found = _trimmed(body, value_start, token.start())
                value_start = -1
        elif depth == 1:
            if first == 0x3A:
                if name_matches:
                    value_start = token.end()
            else:
                if value_start >= 0:
                    found = _trimmed(body, value_start, token.start())
                    value_start = -1
                name_matches = False
                expects_key = True
    return found


def _is_name(token: bytes, wanted: bytes) -> bool:
    if b"\\" not in token:
        return token[1:-1] == wanted
    return bool(json.loads(token) == wanted.decode())


def _trimmed(body: bytes, start: int, end: int) -> Span:
    while start < end and body[start : start + 1] in (b" ", b"\t", b"\r", b"\n"):
        start += 1
    while start < end and body[end - 1 : end] in (b" ", b"\t", b"\r", b"\n"):
        end -= 1
    return start, end
