"""HTTP/1.1 messages as RFC 9112 has them and no other way: what this refuses, no server on the way may be made to believe.

A message is read only where it is the one thing that its bytes can mean; the rest of the bytes, from the first that is odd, is left unread.
Taken beyond the RFC's wording, since it changes no framing: empty lines (CR, LF) before a request, several blanks between the parts of a
request line, RTSP and ICE for HTTP, framing fields in a trailer (which are no framing there), no Host, and whatever an answer's reason is made of, which nobody reads.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"([A-Z-]+) +([!-\x7e\x80-\xff]+) +(?:HTTP|RTSP|ICE)/(1\.[01])")
_STATUS_LINE = re.compile(rb"(?:HTTP|RTSP|ICE)/(1\.[01]) ([0-9]{3})(?: [^\r\n]*)?")
_FIELD = re.compile(rb"(%b):[ \t]*([\t \x21-\x7e\x80-\xff]*)" % _TOKEN)
_CHUNK = re.compile(
    rb"([0-9A-Fa-f]+)((?:;%b(?:=(?:%b|\"(?:[^\"\\\x00-\x08\x0a-\x1f\x7f]|\\[\t -~])*\"))?)*);?\r\n"
    % (_TOKEN, _TOKEN)
)
_LENGTH = re.compile(rb"[0-9]+")


class Message(NamedTuple):
    method: bytes
    """Empty for an answer."""
    target: bytes
    """An answer's status."""
    headers: Headers
    body: bytes


def requests(raw: bytes) -> list[Message]:
    """All that stand at the beginning of `raw`, in full."""
    found: list[Message] = []
    while True:
        raw = raw.lstrip(b"\r\n")
        read = _message(raw, _REQUEST_LINE, None)
        if read is None:
            return found
        message, raw = read
        found.append(message)


def answer(raw: bytes, has_ended: bool) -> tuple[Message, bytes] | None:
    """The first final answer in `raw` if all of it is there, and what stands behind it. `has_ended`: nothing more will come."""
    while True:
        read = _message(raw, _STATUS_LINE, has_ended)
        if read is None or not read[0].target.startswith(b"1"):
            return read
        raw = read[1]


def _message(raw: bytes, line: re.Pattern[bytes], has_ended: bool | None) -> tuple[Message, bytes] | None:
    head, mark, rest = raw.partition(b"\r\n\r\n")
    start, *lines = head.split(b"\r\n")
    began = line.fullmatch(start)
    if not mark or began is None:
        return None
    headers = _fields(lines)
    if headers is None:
        return None
    is_answer = has_ended is not None
    version = began[1] if is_answer else began[3]
    method, target = (b"", began[2]) if is_answer else (began[1], began[2])
    body = _body(version, headers, rest, target if is_answer else b"", bool(has_ended))
    return None if body is None else (Message(method, target, headers, body[0]), body[1])


def _fields(lines: list[bytes]) -> Headers | None:
    headers: Headers = []
    for one in lines:
        field = _FIELD.fullmatch(one)
        if field is None:
            return None
        headers.append((field[1].lower(), field[2].strip(b" \t")))
    return headers


def _body(
    version: bytes, headers: Headers, rest: bytes, status: bytes, has_ended: bool
) -> tuple[bytes, bytes] | None:
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1 or [name for name, _ in headers].count(b"host") > 1:
        return None
    if codings and (codings != [b"chunked"] or version == b"1.0"):
        return None
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        return None
    if status.startswith(b"1") or status in (b"204", b"304"):
        return b"", rest
    if codings:
        return _chunks(rest)
    if lengths:
        length = int(lengths[0])
        return (rest[:length], rest[length:]) if len(rest) >= length else None
    if status:
        return (rest, b"") if has_ended else None
    return b"", rest


def _chunks(rest: bytes) -> tuple[bytes, bytes] | None:
    body = []
    while True:
        line = _CHUNK.match(rest)
        if line is None:
            return None
        size = int(line[1], 16)
        rest = rest[line.end() :]
        if size == 0:
            break
        if rest[size : size + 2] != b"\r\n":
            return None
        body.append(rest[:size])
        rest = rest[size + 2 :]
    while not rest.startswith(b"\r\n"):
        field, mark, rest = rest.partition(b"\r\n")
        read = _fields([field])
        if not mark or read is None:
            return None
    return b"".join(body), rest[2:]
