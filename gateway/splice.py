"""Changes to a JSON request body that leave every other byte as the client sent it.

The body is known to be a JSON object. A member that exists is replaced where it stands (the last one of that name, the one that
parsers keep); a new one is put before the closing brace; one that is taken out goes with its comma, all of that name do. Nothing else is
decoded or written anew: numbers, key order, duplicate keys and escapes stay.
Cost: of a member that the body is known to have, whose name stands nowhere else in it, one search for a plain string. Else one look over the body, in which each value is one
step of the regular expression engine, however much is in it: 2 to 27 ms a MB, about what decoding costs. Values nested deeper than `NESTING`
are looked at token by token, five times as slow, and above `SLOW_BYTES` not at all (`TooDeep`): a body of 32 MB would hold everybody for seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gateway.errors import Refused
from policies.terms import Refusal

NESTING = 64
SLOW_BYTES = 262_144
# A string is taken in runs, 4 to 9 times as fast as byte by byte, and possessively: JSON leaves nothing to go back for.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def _nested(levels: int) -> bytes:
    """An array or object with all that is in it; since the text is JSON, whichever bracket closes is the right one."""
    pattern = rb'[\[{](?:[^\[\]{}"]++|%b)*+[\]}]' % _STRING
    for _ in range(levels - 1):
        pattern = rb'[\[{](?:[^\[\]{}"]++|%b|%b)*+[\]}]' % (_STRING, pattern)
    return pattern


# Everything between tokens (numbers, literals, white space) is skipped.
_TOKEN = re.compile(rb"%b|[,:]|%b|[{}\[\]]" % (_STRING, _nested(NESTING)), re.DOTALL)
_SPACE = b" \t\r\n"
_VALUE = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*(%b|%b|[^\[{"\s,}\]]++)' % (_STRING, _nested(NESTING)), re.DOTALL)

Span = tuple[int, int]


class TooDeep(Refused):
    """Of a large body that is nested too deeply to be looked over."""

    def __init__(self) -> None:
        super().__init__(Refusal.BAD_REQUEST, f"A body of this size may be nested {NESTING} levels deep")


def member(body: bytes, key: str, *, is_known: bool = False) -> bytes | None:
    """The JSON text of the value that parsers keep for `key`, None where there is no such member. `is_known`: there is one."""
    span = member_span(body, key, is_known=is_known)
    return None if span is None else body[span[0] : span[1]]


def set_member(body: bytes, key: str, value: bytes, *, is_known: bool = False) -> bytes:
    """`value` is JSON text. `is_known`: the body has such a member."""
    span = member_span(body, key, is_known=is_known)
    if span is not None:
        return body[: span[0]] + value + body[span[1] :]
    return add_member(body, key, value)


def add_member(body: bytes, key: str, value: bytes) -> bytes:
    """For a `key` that the body is known not to have: no look inside, however long it is."""
    end = body.rindex(b"}")
    comma = b"" if body[:end].rstrip(_SPACE).endswith(b"{") else b","
    return b'%b%b"%b":%b%b' % (body[:end], comma, key.encode(), value, body[end:])


def without_member(body: bytes, key: str, *, is_known: bool = False) -> bytes:
    """Every top-level member called `key` is taken out: without the last one parsers would keep the one before."""
    wanted = key.encode()
    if b'"%b"' % wanted not in body and b"\\" not in body:
        return body
    if is_known and (only := _only(body, wanted)) is not None:
        return _cut(body, *only)
    kept: list[bytes] = []
    depth = 1
    expects_key = True
    is_wanted = False
    opening = start = body.index(b"{") + 1  # of the member that is looked at
    closing = opening
    for first, begin, end in _tokens(body, opening):
        if first == 0x22:  # a string
            if depth == 1 and expects_key:
                is_wanted = _is_name(body[begin:end], wanted)
                expects_key = False
        elif first in b"{[":
            depth += end - begin == 1
        elif first in b"}]":
            depth -= 1
        if (depth == 0 and first == 0x7D) or (depth == 1 and first == 0x2C):
            if not is_wanted:
                kept.append(body[start:begin])
            is_wanted = False
            expects_key = True
            start = end
            closing = begin
    return body[:opening] + b",".join(kept) + body[closing:]


def _cut(body: bytes, start: int, end: int) -> bytes:
    """Without the member that stands there."""
    before, after = body[:start].rstrip(_SPACE), body[end:].lstrip(_SPACE)
    if after.startswith(b","):
        return before + after[1:]
    return before.removesuffix(b",") + after


def element_spans(body: bytes, span: Span) -> list[Span]:
    """Start and end of each element of the array that stands at `span`, without the white space around them."""
    found: list[Span] = []
    depth = 1
    start = span[0] + 1
    for first, begin, end in _tokens(body, start, span[1]):
        if first in b"{[":
            depth += end - begin == 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                last = _trimmed(body, start, begin)
                return [*found, last] if last[0] < last[1] else found
        elif first == 0x2C and depth == 1:
            found.append(_trimmed(body, start, begin))
            start = end
    return found


def member_span(body: bytes, key: str, *, is_known: bool = False) -> Span | None:
    """Start and end of the value of the last top-level member called `key`, without the white space around it. `is_known`: there is one."""
    wanted = key.encode()
    if b'"%b"' % wanted not in body and b"\\" not in body:
        return None
    if is_known and (only := _only(body, wanted)) is not None:
        value = _VALUE.match(body, only[0] + len(wanted) + 2)
        assert value is not None, "it was found so"
        return value.span(1)
    depth = 1
    expects_key = True
    name_matches = False
    value_start = -1
    found: Span | None = None
    for first, begin, end in _tokens(body, body.index(b"{") + 1):
        if first == 0x22:  # a string
            if depth == 1 and expects_key:
                name_matches = _is_name(body[begin:end], wanted)
                expects_key = False
        elif first in b"{[":
            depth += end - begin == 1
        elif first in b"}]":
            depth -= 1
            if depth == 0 and value_start >= 0:
                found = _trimmed(body, value_start, begin)
                value_start = -1
        elif depth == 1:
            if first == 0x3A:
                if name_matches:
                    value_start = end
            else:
                if value_start >= 0:
                    found = _trimmed(body, value_start, begin)
                    value_start = -1
                name_matches = False
                expects_key = True
    return found


def _only(body: bytes, wanted: bytes) -> Span | None:
    """Where the top-level member of that name stands, which the body is known to have; None where its name might stand somewhere else too.

    Inside of a string no quotation mark stands by itself, so that what is found is a name or a string of its own; if there is one only, it is that name.
    """
    name = b'"%b"' % wanted
    start = body.find(name)
    if start < 0 or body.find(name, start + 1) >= 0 or b"\\u" in body:
        return None
    value = _VALUE.match(body, start + len(name))
    return None if value is None else (start, value.end())


def _tokens(body: bytes, start: int, stop: int | None = None) -> Iterator[tuple[int, int, int]]:
    """First byte, start and end of each; a bracket of one byte is one whose inside follows, a longer one is whole."""
    stop = len(body) if stop is None else stop
    for token in _TOKEN.finditer(body, start, stop):
        begin, end = token.span()
        first = body[begin]
        if end - begin == 1 and first in b"{[" and stop - begin > SLOW_BYTES:
            raise TooDeep
        yield first, begin, end


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
