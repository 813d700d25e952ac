"""What the gateway notices in a stream of server-sent events, and the one event it may keep to itself.

Notices: `[DONE]`, token usage, an error event (an engine that dies says so under status 200), a finish reason. Keeps back: the event
that carries usage and no choices, where the gateway asked for it and the client did not. vLLM puts `system_fingerprint` into the last
event of a stream, whichever that is, and of several choices into the last of each; so there the event with a finish reason waits for the one
after it, and gets the field of an event that is kept back, or where others follow first what the stream before had.

Bytes pass as they are, a whole event at a time: the incomplete end of what came is held until the rest is there, so that a first event
that is an error, or a usage event, can be kept back wherever TCP cut it. No more than `HELD_LIMIT_BYTES` are held: neither is
large. Lines end with LF, CR LF or CR and nothing else, so U+2028 inside JSON is no line end. Comments and blank lines before an event are
no part of it: they pass at once.
Cost: three or four substring searches for an event without anything to notice.
Limits: an event that is longer is noticed only if it comes in one piece. With several choices (`n`) the finish reason of one counts for all
where the engine says neither usage nor `[DONE]`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from gateway.usage import MARK, Usage, usage_in

HELD_LIMIT_BYTES = 16 * 1024
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_DATA_LINE = re.compile(rb"^data: ?(.*)$", re.MULTILINE)
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')
_SAID_SO = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|message_stop|error)"')
"""Of `/v1/responses` and `/v1/messages`. vLLM writes the type last in an event that may be long, SGLang first."""
_FINISH = b'"finish_reason":"'
_LINE_END = re.compile(rb"\r\n|\r")
_DATA = re.compile(rb"(?:^|[\r\n])data")
_LEAD = re.compile(rb"(?::[^\r\n]*+[\r\n]|[\r\n])*+")
"""Comment and blank lines; a CR LF counts as two line ends, which makes no difference between events."""
_LEAD_BYTES = b":\r\n"
_D = 0x64


class EventReader:
    """Feed it what the engine sent; it returns what the client gets."""

    __slots__ = (
        "_counted",
        "_finish",
        "_holds",
        "_keep_usage_back",
        "_last",
        "_pending",
        "_pending_has_data",
        "_said_so",
        "_skipping",
        "_tail",
        "done",
        "error",
        "fingerprint",
        "usage",
    )

    def __init__(self, keep_usage_back: bool, fingerprint: str = "") -> None:
        """`fingerprint`: the `system_fingerprint` with which this engine's last stream ended, as far as is known."""
        self._keep_usage_back = keep_usage_back
        self._pending = b""
        """The incomplete event at the end of what came; the client does not have it yet."""
        self._pending_has_data = False
        self._finish = b""
        """The event with a finish reason, until the next one shows whether it was the last that the client gets."""
        self.fingerprint = fingerprint
        """What the event kept back says; until it comes, what was known before."""
        self._holds = False
        """Something of what came is kept, or its end awaited."""
        self._skipping = False
        """Inside an event too long to matter, until its end."""
        self._tail = b""
        """While skipping: the last bytes passed, since an event's end may be cut over two reads."""
        self._last = b""
        """What came last, from the start of an event on; it has the last event with data."""
        self._counted = False
        """The event with the usage of the whole answer came; with `continuous_usage_stats` each event has a usage."""
        self._said_so = False
        """A long event began by saying that it is the last one."""
        self.done = False
        self.error: dict[str, Any] | None = None
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        if (
            not self._holds
            and MARK not in data
            and b'"error"' not in data
            and b"[DONE]" not in data
            and (not self._keep_usage_back or _FINISH not in data)
            and data.endswith(b"\n\n")
        ):
            if data[0] == _D or _DATA.search(data) is not None:
                self._last = data
            return data
        return self._read(data)

    def flush(self) -> bytes:
        """The stream has ended: what is still held, noticed like a whole event."""
        pending, self._pending = self._pending, b""
        passed: list[bytes] = []
        if pending:
            self._pass(pending, passed)
        passed.append(self.take_finish())
        return b"".join(passed)

    def take_finish(self) -> bytes:
        """The event held for the one after it, which will not come."""
        finish, self._finish = self._finish, b""
        return finish

    @property
    def finished(self) -> bool:
        """Whether the engine said that the answer is whole."""
        if self.done or self._counted or self._said_so:
            return True
        events = [event for event in _EVENT_END.split(self._last) if _DATA.search(event)]
        return bool(events) and (_FINISHED.search(events[-1]) or _SAID_SO.search(events[-1])) is not None

    def _read(self, data: bytes) -> bytes:
        """Notice every whole event; returns all but those kept back and what is still incomplete."""
        passed: list[bytes] = []
        start = searched = 0
        has_line_end = b"\n" in data or b"\r" in data
        if self._skipping:
            tail = self._tail
            # Only the end of the long event is kept, and has to look like one.
            self._last = b"data:" + (self._last + data)[-HELD_LIMIT_BYTES:]
            end = _EVENT_END.search(tail + data)
            if end is None:
                self._tail = (tail + data)[-3:]
                return data
            self._skipping = False
            start = end.end() - len(tail)
            passed.append(data[:start])
        else:
            # What was held is not searched again: an event that comes in single bytes would cost the square of its length.
            held = len(self._pending)
            data = self._pending + data
            if self._pending_has_data or _DATA.search(data, max(0, held - 5)) is not None:
                self._last = data
                self._pending_has_data = True
            searched = max(0, held - 3)
        for end in _EVENT_END.finditer(data, max(start, searched)):
            event = data[start : end.end()]
            start = end.end()
            self._pass(event, passed)
        rest = data[start:]
        if has_line_end and rest and rest[0] in _LEAD_BYTES and not self._finish:
            lead = _lead_of(rest)  # a keep-alive is wanted now, not with the next event
            passed.append(lead)
            start += len(lead)
            rest = rest[len(lead) :]
        self._skipping = len(rest) > HELD_LIMIT_BYTES
        if self._skipping:
            self._said_so = _SAID_SO.search(rest) is not None
            passed.append(self.take_finish())
            passed.append(rest)
            self._tail = rest[-3:]
            rest = b""
        if start:
            self._pending_has_data = _DATA.search(rest) is not None
        self._pending = rest
        self._holds = bool(rest or self._finish or self._skipping)
        return b"".join(passed)

    def _pass(self, event: bytes, passed: list[bytes]) -> None:
        """Notice one event and add to `passed` what the client gets now."""
        is_kept_back = self._notice(event)
        if self._finish:
            passed.append(_with_fingerprint(self.take_finish(), self.fingerprint))
        if is_kept_back:
            passed.append(_lead_of(event))
        elif self._keep_usage_back and _FINISH in event:
            self._finish = event
        else:
            passed.append(event)

    def _notice(self, event: bytes) -> bool:
        """Whether this event is to be kept from the client."""
        text = _LINE_END.sub(b"\n", event) if b"\r" in event else event
        data = b"\n".join(_DATA_LINE.findall(text))
        if data == b"[DONE]":
            self.done = True
            return False
        if MARK not in data and b'"error"' not in data:
            return False
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError:
            try:  # NaN beside the usage, in log probabilities
                fields = json.loads(data)
            except (ValueError, RecursionError):
                return False
        if not isinstance(fields, dict):
            return False
        error = fields.get("error")
        if isinstance(error, dict):
            self.error = error
        usage = usage_in(fields, self.usage)
        if usage is None:
            return False
        self.usage = usage
        if fields.get("choices") != []:
            return False
        self._counted = True
        fingerprint = fields.get("system_fingerprint")
        self.fingerprint = fingerprint if isinstance(fingerprint, str) else ""
        return self._keep_usage_back


def _with_fingerprint(event: bytes, fingerprint: str) -> bytes:
    end = event.rfind(b"}")
    if not fingerprint or end < 0 or b'"system_fingerprint"' in event:
        return event
    return b'%b,"system_fingerprint":%b%b' % (event[:end], orjson.dumps(fingerprint), event[end:])


def _lead_of(text: bytes) -> bytes:
    lead = _LEAD.match(text)
    return lead[0] if lead is not None else b""
