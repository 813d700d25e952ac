"""From an engine's answer to the client: bytes as they are, and what was noticed on their way.

A stream's head is passed on at once, a plain answer's with its first bytes; until the first byte of a body has left, a failed attempt may
be repeated on another backend and go on under the same head. An answer that an engine cuts, or ends without saying that it is whole,
reaches the client as an error event (in a stream) and a broken end, never as a normal finish.

`run` returns the attempt's verdict. Raises `UpstreamFailure` where the engine failed, `Refused` where an answer must be broken off.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.errors import Refused
from gateway.events import EventReader, Usage
from gateway.headers import answer_headers
from gateway.paths import Kind
from gateway.record import Record
from gateway.upstream.connection import Connection
from gateway.upstream.failures import ResponseBroken
from policies.terms import Refusal, Verdict
from routing.decision import Lease

Send = Callable[[Any], Awaitable[None]]

_BACKPRESSURE = (429, 503)
_FAULTS = (500, 502, 504)
_PLAIN_USAGE = re.compile(
    rb'"usage"\s*:\s*\{[^{}]*?"prompt_tokens"\s*:\s*(\d+)'
    rb'(?:[^{}]*?"completion_tokens"\s*:\s*(\d+))?(?:[^{}]*?\{[^{}]*?"cached_tokens"\s*:\s*(\d+))?'
)
_USAGE_TAIL_BYTES = 4096


class EngineErrorEvent(ResponseBroken):
    """A stream's first event was the engine's own failure: nothing has reached the client yet."""


def verdict_of(status: int) -> Verdict:
    if status < 400:
        return Verdict.GOOD
    if status in _BACKPRESSURE:
        return Verdict.BACKPRESSURE
    return Verdict.FAULT if status in _FAULTS else Verdict.IGNORED


class Relay:
    """The client's side of one request over all its attempts."""

    __slots__ = ("_keep_usage_back", "_kind", "_record", "_send", "body_started", "head_sent", "is_stream")

    def __init__(self, send: Send, kind: Kind, keep_usage_back: bool, record: Record) -> None:
        self._send = send
        self._kind = kind
        self._keep_usage_back = keep_usage_back
        self._record = record
        self.head_sent = False
        self.body_started = False
        self.is_stream = False

    async def run(self, answer: Connection, lease: Lease) -> Verdict:
        media_type = b""
        is_encoded = False
        for name, value in answer.headers:
            if name == b"content-type":
                media_type = value.partition(b";")[0].strip().lower()
            elif name == b"content-encoding":
                is_encoded = value.lower() != b"identity"
        if media_type == b"text/event-stream" and answer.status == 200:
            if not is_encoded:
                return await self._stream(answer, lease)
            self.is_stream = True
        if self.head_sent:
            raise Refused(
                Refusal.BACKEND_BROKE, f"The engine failed, and the next one answered {answer.status}"
            )
        return await self._plain(answer, lease, media_type == b"application/json" and not is_encoded)

    async def _stream(self, answer: Connection, lease: Lease) -> Verdict:
        record = self._record
        reader = EventReader(self._keep_usage_back)
        self.is_stream = record.streamed = True
        if not self.head_sent:
            await self._send_head(answer, lease, drop_length=self._keep_usage_back)
        send = self._send
        try:
            while data := await answer.read():
                passed = reader.feed(data)
                if not self.body_started:
                    if reader.error is not None and _is_engines_fault(reader.error):
                        raise EngineErrorEvent(
                            f"the engine answered with an error: {reader.error.get('message')}"
                        )
                    record.first_byte_at = time.perf_counter()
                    self.body_started = True
                if passed:
                    await send({"type": "http.response.body", "body": passed, "more_body": True})
            rest = reader.flush()
            must_finish = self._kind in (Kind.CHAT, Kind.COMPLETION) and reader.error is None
            if must_finish and not reader.finished:
                if rest:
                    await send({"type": "http.response.body", "body": rest, "more_body": True})
                raise ResponseBroken("the engine ended its stream without finishing the answer")
            await send({"type": "http.response.body", "body": rest, "more_body": False})
        finally:
            record.usage = reader.usage
            if reader.done and reader.error is None:
                # Whole, even if the client closes before the last byte of the framing.
                record.whole = True
                lease.verdict = Verdict.GOOD
        if reader.error is None:
            return Verdict.GOOD
        return Verdict.FAULT if _is_engines_fault(reader.error) else Verdict.IGNORED

    async def _plain(self, answer: Connection, lease: Lease, is_json: bool) -> Verdict:
        data = await answer.read()
        record = self._record
        record.first_byte_at = time.perf_counter()
        await self._send_head(answer, lease, drop_length=False)
        self.body_started = True
        send = self._send
        last = data
        while not answer.is_drained:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            data = await answer.read()
            last = data or last
        await send({"type": "http.response.body", "body": data, "more_body": False})
        if is_json and answer.status == 200:
            record.usage = _usage_of(last)
        return verdict_of(answer.status)

    async def _send_head(self, answer: Connection, lease: Lease, drop_length: bool) -> None:
        record = self._record
        headers = answer_headers(answer.headers, drop_length)
        headers.append((b"x-request-id", record.request_id.encode("latin-1")))
        headers.append((b"x-headrace-route", _route(lease)))
        record.status = answer.status
        self.head_sent = True
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})


def _route(lease: Lease) -> bytes:
    tag = lease.tag
    backend = lease.backend
    return (
        f"business={tag.business};length={tag.length};lane={tag.lane.value};path={tag.path};pool={backend.pool};"
        f"backend={backend.id};queue_ms={lease.queue_seconds * 1000:.0f};attempts={lease.attempts}"
    ).encode()


def _is_engines_fault(error: dict[str, Any]) -> bool:
    """An error event's `code` is a status as a number; a client's own mistake (4xx) is nobody's fault."""
    code = error.get("code")
    return not isinstance(code, int) or code >= 500


def _usage_of(data: bytes) -> Usage | None:
    """From the end of a plain answer, where engines put it; the last part is enough."""
    start = data.rfind(b'"usage"', max(0, len(data) - _USAGE_TAIL_BYTES))
    found = _PLAIN_USAGE.match(data, start) if start >= 0 else None
    return Usage(int(found[1]), int(found[2] or 0), int(found[3] or 0)) if found else None
