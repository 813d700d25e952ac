"""What a request's target says, in the words of ASGI: path, its bytes, query."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httptools

from gateway.paths import EXACT_PATHS

_USUAL_PATHS = {path.encode(): path for path in EXACT_PATHS}
"""What most targets are, byte for byte: nothing is left to parse."""


def set_target(scope: Any, target: bytes) -> None:
    """`httptools.HttpParserError` where it is no target."""
    usual_path = _USUAL_PATHS.get(target)
    if usual_path is not None:
        scope["path"] = usual_path
        scope["raw_path"] = target
        scope["query_string"] = b""
        return
    url = httptools.parse_url(target)
    raw_path = url.path
    path = raw_path.decode("ascii")
    scope["path"] = unquote(path) if "%" in path else path
    scope["raw_path"] = raw_path
    scope["query_string"] = url.query or b""
