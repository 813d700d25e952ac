"""What the gateway notices in a stream of server-sent events, and the one event it may keep to itself.

Notices: `[DONE]`, token usage, an error event (an engine that dies says so under status 200), a finish reason. Keeps back: the event
that carries usage and no choices, where the gateway asked for it and the client did not.

Bytes pass as they are, a whole event at a time: the incomplete end of what came is held until the rest is there, so that a first event
that is an error, or a usage event, can be kept back wherever TCP cut it. No more than `HELD_LIMIT_BYTES` are held: neither is
large. Lines end with LF, CR LF or CR and nothing else, so U+2028 inside JSON is no line end.
Cost: three substring searches for an event without anything to notice.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

HELD_LIMIT_BYTES = 16 * 1024
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_DATA_LINE = re.compile(rb"^data: ?(.*)$", re.MULTILINE)
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
_LINE_END = re.compile(rb"\r\n|\r")
_COMMENT = 0x3A


class Usage(NamedTuple):
    """Tokens, as the engine counted them."""

    prompt: int
    completion: int
    cached: int


def usage_from(found: Any) -> Usage | None:
    """A `usage` object, chat or embeddings shaped; None if it is not one."""
    if not isinstance(found, dict) or not isinstance(found.get("prompt_tokens"), int):
        return None
    completion = found.get("completion_tokens")
    details = found.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(
        found["prompt_tokens"],
        completion if isinstance(completion, int) else 0,
        cached if isinstance(cached, int) else 0,
    )


class EventReader:
    """Feed it what the engine sent; it returns what the client gets."""

    __slots__ = ("_keep_usage_back", "_last", "_pending", "_skipping", "_tail", "done", "error", "usage")

    def __init__(self, keep_usage_back: bool) -> None:
        self._keep_usage_back = keep_usage_back
        self._pending = b""
        """The incomplete event at the end of what came; the client does not have it yet."""
        self._skipping = False
        """Inside an event too long to matter, until its end."""
        self._tail = b""
        """While skipping: the last bytes passed, since an event's end may be cut over two reads."""
        self._last = b""
        self.done = False
        self.error: dict[str, Any] | None = None
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        if data[0] != _COMMENT:
            self._last = data
        if (
            not self._pending
            and not self._skipping
            and b'"prompt_tokens"' not in data
            and b'"error"' not in data
            and b"[DONE]" not in data
            and data.endswith(b"\n\n")
        ):
            return data
        return self._read(data)

    def flush(self) -> bytes:
        """The stream has ended: what is still held, noticed like a whole event."""
        pending, self._pending = self._pending, b""
        return b"" if not pending or self._notice(pending) else pending

    @property
    def finished(self) -> bool:
        """Whether the engine said that the answer is whole."""
        return self.done or self.usage is not None or _FINISHED.search(self._last) is not None

    def _read(self, data: bytes) -> bytes:
        """Notice every whole event; returns all but those kept back and what is still incomplete."""
        passed: list[bytes] = []
        start = 0
        if self._skipping:
            tail = self._tail
            end = _EVENT_END.search(tail + data)
            if end is None:
                self._tail = (tail + data)[-3:]
                return data
            self._skipping = False
            start = end.end() - len(tail)
            passed.append(data[:start])
        else:
            data = self._pending + data
        for end in _EVENT_END.finditer(data, start):
            event = data[start : end.end()]
            start = end.end()
            if not self._notice(event):
                passed.append(event)
        rest = data[start:]
        while rest.startswith(b":") and b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            passed.append(line + b"\n")  # a keep-alive is wanted now, not with the next event
        self._skipping = len(rest) > HELD_LIMIT_BYTES
        if self._skipping:
            passed.append(rest)
            self._tail = rest[-3:]
            rest = b""
        self._pending = rest
        return b"".join(passed)

    def _notice(self, event: bytes) -> bool:
        """Whether this event is to be kept from the client."""
        text = _LINE_END.sub(b"\n", event) if b"\r" in event else event
        data = b"\n".join(_DATA_LINE.findall(text))
        if data == b"[DONE]":
            self.done = True
            return False
        if b'"prompt_tokens"' not in data and b'"error"' not in data:
            return False
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(fields, dict):
            return False
        error = fields.get("error")
        if isinstance(error, dict):
            self.error = error
        usage = usage_from(fields.get("usage"))
        if usage is None:
            return False
        self.usage = usage
        return self._keep_usage_back and fields.get("choices") == []
