"""Framings that llhttp takes and another server on the way may read in another way: no message with one of them passes, in either direction.

Refused: any Transfer-Encoding but one `chunked` (a coding before it would be lost here), chunks under HTTP/1.0, more than one Host, none under HTTP/1.1, one that names no host.
llhttp in its strict mode refuses the rest: a length beside chunks, a second length, one that is not digits alone, folded lines, line ends other than
CR LF, control characters, blanks before a colon, and chunk sizes and extensions that are anything but what RFC 9112 says. `tests/fuzz` holds both to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HOST = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]*|\[[\w:.%]+\])(?::\d*)?", re.ASCII)
_CHUNKED = [b"chunked"]


def host_fault(version: str, host: bytes | None) -> str | None:
    """What is wrong with the Host of a request, which may be empty but not absent under HTTP/1.1 (RFC 9112 3.2)."""
    if host is None:
        return "there is no Host" if version == "1.1" else None
    return None if _HOST.fullmatch(host) else "Host is neither a name nor an address, with or without a port"


def framing_fault(version: str, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """What is wrong with a message of HTTP/`version` and these headers (lower-case names), or None."""
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and codings != _CHUNKED:
        return "of Transfer-Encoding only `chunked` is taken"
    if codings and version == "1.0":
        return "HTTP/1.0 has no Transfer-Encoding"
    if sum(name == b"host" for name, _ in headers) > 1:
        return "there is more than one Host"
    return None
