"""Where a field of a multipart form stands (RFC 7578), without decoding the rest of it.

The boundary is the one of `Content-Type`, which is what the engines go by; a form that does not begin with it (line ends apart), or whose head names no or more than one, is
not looked into: their parser refuses it. A part's headers say what it is and its content never does, so a file cannot pass for a field. Of
several fields of one name the last counts, as it does in that parser; a part with a file name is a file, whatever its name.
Cost: one search for the boundary over the body.
"""

from __future__ import annotations

import re

_BOUNDARY = re.compile(rb';[ \t]*boundary=("[^"\\\r\n]{1,200}"|[^;",\s]{1,200})[ \t]*(?=;|\Z)', re.IGNORECASE)
_DISPOSITION = re.compile(rb"^content-disposition[ \t]*:[ \t]*form-data(.*)$", re.IGNORECASE | re.MULTILINE)
_PARAMETER = re.compile(rb';[ \t]*([^=;\s]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^;\s]*)')


def field_span(body: bytes, content_type: bytes, name: str) -> tuple[int, int] | None:
    """Start and end of the value of the field called `name`, None where there is none."""
    named = _BOUNDARY.findall(content_type)
    if len(named) != 1:
        return None
    text = re.escape(b"--" + named[0].strip(b'"'))
    first = re.match(rb"[\r\n]*%b[ \t]*(?=\r\n)" % text, body)
    if first is None:
        return None
    found: tuple[int, int] | None = None
    part_start = first.end()
    # The pattern begins with the boundary itself, so that the search is one for a plain string; the line end before it comes second.
    line = re.compile(rb"%b(?<=\r\n%b)(?:--)?[ \t]*(?=\r\n|\Z)" % (text, text))
    for next_line in line.finditer(body, part_start):
        part_end = next_line.start() - 2
        # The line end after the boundary is the part's, so that one without headers begins with a blank line.
        blank = body.find(b"\r\n\r\n", part_start, part_end)
        if blank >= 0 and _names(body[part_start:blank], name):
            found = blank + 4, part_end
        part_start = next_line.end()
    return found


def _names(headers: bytes, name: str) -> bool:
    """Whether a part with these headers is the field called `name`."""
    disposition = _DISPOSITION.search(headers.replace(b"\r\n", b"\n"))
    if disposition is None:
        return False
    parameters = {key.lower(): value for key, value in _PARAMETER.findall(disposition[1])}
    value = parameters.get(b"name", b"")
    if value.startswith(b'"'):
        value = re.sub(rb"\\(.)", rb"\1", value[1:-1])
    return bool(value == name.encode()) and b"filename" not in parameters and b"filename*" not in parameters
