"""The id of a response in an engine's answer, seen while the answer passes.

A plain answer is an object with an `id`; of a stream the first events (`response.created`, `response.in_progress`) carry it as `response.id`. Both
vLLM and SGLang write it near the beginning; where exactly, and in how many reads it comes, does not matter here. Nothing is decoded: strings and
brackets are walked as far as the id and no further, and at most through the first `LOOK_BYTES` of the answer.
Limits: an id that stands behind more than that is not seen, nor is one in a compressed answer, nor one of other than 1 to 128 printable ASCII characters.
"""

from __future__ import annotations

import re

LOOK_BYTES = 16 * 1024
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*+)"|["{}\[\]:,]', re.DOTALL)
_DATA = re.compile(rb"[\r\n]data:")
_ID = re.compile(rb"[!#-\[\]-~]{1,128}")
"""Neither a quote nor a backslash."""
_ARRAY = b"["
_PLAIN = [b""]
_STREAM = [b"", b"response"]


class ResponseSight:
    """Feed it what came, until it is `done`."""

    __slots__ = (
        "_at",
        "_awaits_value",
        "_buffer",
        "_is_inside",
        "_is_stream",
        "_key",
        "_path",
        "_seen",
        "done",
    )

    def __init__(self, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._is_inside = not is_stream
        """What may be an object is being walked."""
        self._buffer = b"\n"
        """Where a stream's event begins, a line does."""
        self._at = self._seen = 0
        self._path: list[bytes] = []
        """The keys of the containers around what comes next, outermost first; empty outside of any."""
        self._key = b""
        self._awaits_value = False
        self.done = False

    def feed(self, data: bytes) -> str:
        """The id, once; "" as long as it has not come."""
        data = data[: LOOK_BYTES - self._seen]
        self._seen += len(data)
        self._buffer = self._buffer[self._at :] + data
        self._at = 0
        found = self._walk()
        self.done = self.done or bool(found) or self._seen >= LOOK_BYTES
        return found

    def _walk(self) -> str:
        while not self.done and (self._is_inside or self._enter()):
            found = self._walk_object()
            if found or self._is_inside:
                return found
            self.done = not self._is_stream  # what follows an event is the next event
        return ""

    def _enter(self) -> bool:
        """Into the data of the next event, if it has come."""
        start = _DATA.search(self._buffer, self._at)
        self._is_inside = start is not None
        self._at = max(self._at, len(self._buffer) - 5) if start is None else start.end()
        return self._is_inside

    def _walk_object(self) -> str:
        path, wanted = self._path, _STREAM if self._is_stream else _PLAIN
        for token in _TOKEN.finditer(self._buffer, self._at):
            mark = token[0]
            if mark == b'"':  # a string whose end has not come
                self._at = token.start()
                return ""
            self._at = token.end()
            if mark == b":":
                self._awaits_value = True
            elif mark == b",":
                self._awaits_value = False
            elif mark in (b"{", b"["):
                path.append(_ARRAY if mark == b"[" else self._key if path and self._awaits_value else b"")
                self._awaits_value = False
            elif mark in (b"}", b"]"):
                if path:
                    path.pop()
                self._awaits_value = False
                if not path:
                    self._is_inside = False
                    return ""
            elif not self._awaits_value:
                self._key = token[1]
            elif self._key == b"id" and path == wanted:
                self.done = True
                return token[1].decode() if _ID.fullmatch(token[1]) else ""
        self._at = len(self._buffer)
        return ""
