"""The little of `multipart/form-data` that an upload of one sound needs: names, and each part's bytes."""

from __future__ import annotations

import re

from gateway.emulator.errors import malformed

_BOUNDARY = re.compile(rb'boundary="?([^";]+)"?', re.IGNORECASE)
_NAME = re.compile(rb'[; ]name="([^"]*)"', re.IGNORECASE)


def form_fields(content_type: bytes, body: bytes) -> dict[str, bytes]:
    """Each field's bytes by its name, the last of equal ones."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None or not content_type.lower().startswith(b"multipart/form-data"):
        raise malformed("missing", "body.file", "Field required", "None")
    form: dict[str, bytes] = {}
    # Each part begins with a line end and ends before the one that introduces the next boundary.
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary[1])[1:]:
        head, blank, content = part.partition(b"\r\n\r\n")
        if blank and (name := _NAME.search(head)):
            form[name[1].decode("utf-8", "replace")] = content
    return form


def file_bytes(form: dict[str, bytes]) -> int | None:
    return len(form["file"]) if "file" in form else None
