"""From an engine's answer to the client: bytes as they are, and what was noticed on their way.

A stream's head is passed on at once. A plain answer of known length and at most `HELD_BYTES` is passed on when it is whole, which is at once, since engines send it in one piece; any other with its first bytes.
Until the first byte of a body has left, a failed attempt may be repeated on another backend and go on under the same head. An answer that an engine cuts, or ends without saying that it is whole,
reaches the client as an error event (in a stream) and a broken end, never as a normal finish.

`run` returns the attempt's verdict. Raises `UpstreamFailure` where the engine failed, `Refused` where an answer must be broken off.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.answer import Answer
from gateway.errors import Refused
from gateway.events import EventReader
from gateway.headers import answer_headers
from gateway.paths import StreamForm
from gateway.record import Record
from gateway.sessions.history import History
from gateway.sessions.response_sight import ResponseSight
from gateway.upstream.connection import Connection
from gateway.upstream.failures import ResponseBroken, UpstreamFailure
from gateway.usage import usage_of
from policies.terms import Refusal, Verdict
from routing.backend import Backend
from routing.decision import Lease

Send = Callable[[Any], Awaitable[None]]
Move = Callable[[Verdict], bool]

_USUAL_TYPES = (b"application/json", b"text/event-stream")
_BACKPRESSURE = (429, 503)
_FAULTS = (500, 502, 504)
PARTS_PER_CHARGE = 32
HELD_BYTES = 64 * 1024
"""Less than a stream may hold, see `upstream.incoming`."""
_LENGTH_DIGITS = len(str(HELD_BYTES))


class Moved(Exception):
    """A stream's first event was the engine's own failure, and the lease has moved: nothing of it has reached the client."""


def verdict_of(status: int) -> Verdict:
    if status < 400:
        return Verdict.GOOD
    if status in _BACKPRESSURE:
        return Verdict.BACKPRESSURE
    return Verdict.FAULT if status in _FAULTS else Verdict.IGNORED


def verdict_of_error(error: dict[str, Any]) -> Verdict:
    """Of an error event: its `code` is a status as a number; without one the engine is at fault."""
    code = error.get("code")
    return verdict_of(code) if isinstance(code, int) and code >= 400 else Verdict.FAULT


class Relay:
    """The client's side of one request over all its attempts."""

    __slots__ = (
        "_charge",
        "_keep_usage_back",
        "_own",
        "_record",
        "_send",
        "_uncharged",
        "body_started",
        "form",
        "head_sent",
        "history",
        "is_stream",
        "on_response",
    )

    def __init__(
        self,
        send: Send,
        own: Answer | None,
        form: StreamForm,
        keep_usage_back: bool,
        record: Record,
        charge: Callable[[Lease, int], None],
    ) -> None:
        """`own` is the server's side of the answer where that is ours. `charge` is told of a stream's parts while they come: about a token each."""
        self._charge = charge
        self._uncharged = 0
        """Parts that passed since `charge` was last told."""
        self._send = send
        self._own = own
        self.form = form
        self._keep_usage_back = keep_usage_back
        self._record = record
        self.head_sent = False
        self.body_started = False
        self.is_stream = False
        self.history: History | None = None
        """Where the answer is to be kept."""
        self.on_response: Callable[[str, Backend], None] | None = None
        """Told the id of the Responses API's response that passes, before any of it leaves; None where it is of no interest."""

    async def run(self, answer: Connection, lease: Lease, move: Move) -> Verdict:
        """`move` tries to take the lease to another backend; it is asked for a stream that begins with a failure."""
        named = dict(answer.headers)
        media_type = named.get(b"content-type", b"")
        if media_type not in _USUAL_TYPES:
            media_type = media_type.partition(b";")[0].strip().lower()
        is_encoded = b"content-encoding" in named and named[b"content-encoding"].lower() != b"identity"
        if media_type == b"text/event-stream" and answer.status == 200 and not is_encoded:
            return await self._stream(answer, lease, move)
        if self.head_sent:
            lease.verdict = verdict_of(answer.status)
            raise Refused(
                Refusal.BACKEND_BROKE, f"The engine failed, and the next one answered {answer.status}"
            )
        length = named.get(b"content-length", b"")
        return await self._plain(answer, lease, media_type == b"application/json" and not is_encoded, length)

    async def _stream(self, answer: Connection, lease: Lease, move: Move) -> Verdict:
        record = self._record
        backend = lease.backend
        known = backend.fingerprint
        reader = EventReader(self._keep_usage_back, known)
        self.is_stream = record.streamed = True
        history = self.history
        if history is not None:
            history.begin()
        if not self.head_sent:
            headers = self._head(
                answer, lease, drop_length=True
            )  # parts leave as chunks, and one may be kept back
            await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        send = self._send
        sink = self._sink(reader, lease)
        sight = None if self.on_response is None else ResponseSight(is_stream=True)
        try:
            while data := await answer.read():
                if sight is not None and not sight.done:
                    self._look(sight, data, lease)
                passed = reader.feed(data)
                if history is not None:
                    passed = history.take(data, passed)
                if not passed:
                    continue
                self._uncharged += 1
                if not self.body_started:
                    if reader.error is not None and move(verdict_of_error(reader.error)):
                        raise Moved
                    record.first_byte_at = time.perf_counter()
                    self.body_started = True
                    if lease.prefill_held or lease.prefilling:
                        self._tell(lease)
                await send({"type": "http.response.body", "body": passed, "more_body": True})
                if sink is not None and (sight is None or sight.done):
                    await answer.pipe(sink)
            rest = reader.flush()
            must_finish = self.form is not StreamForm.UNKNOWN and reader.error is None
            if must_finish and not reader.finished:
                self.body_started = True
                if rest:
                    await send({"type": "http.response.body", "body": rest, "more_body": True})
                raise ResponseBroken("the engine ended its stream without finishing the answer")
            if history is not None and reader.error is None:
                rest = await history.stream_ended(rest, reader.usage)
                if not self.body_started:  # all of it was held back
                    record.first_byte_at = time.perf_counter()
                    self.body_started = True
            await send({"type": "http.response.body", "body": rest, "more_body": False})
        except UpstreamFailure:
            if held := reader.take_finish():
                self.body_started = True
                await send({"type": "http.response.body", "body": held, "more_body": True})
            raise
        finally:
            record.usage = reader.usage
            if self._uncharged and reader.usage is None:
                self._tell(lease)
            if reader.fingerprint != known:
                # Else it said nothing of it, and what it began with may be old by now.
                backend.fingerprint = reader.fingerprint
            if reader.done and reader.error is None:
                # Whole, even if the client closes before the last byte of the framing.
                record.whole = True
                lease.verdict = Verdict.GOOD
        return Verdict.GOOD if reader.error is None else verdict_of_error(reader.error)

    def _sink(self, reader: EventReader, lease: Lease) -> Callable[[bytes], bool] | None:
        """From the second part on a stream goes from socket to socket within one callback, while the client keeps up."""
        if self._own is None:
            return None
        write_part = self._own.write_part
        feed = reader.feed
        history = self.history

        def sink(data: bytes) -> bool:
            self._uncharged += 1
            if self._uncharged >= PARTS_PER_CHARGE:
                self._tell(lease)
            passed = feed(data)
            if history is not None:
                passed = history.take(data, passed)
            return write_part(passed) if passed else True

        return sink

    def _tell(self, lease: Lease) -> None:
        parts, self._uncharged = self._uncharged, 0
        self._charge(lease, parts)

    async def _plain(self, answer: Connection, lease: Lease, is_json: bool, length: bytes) -> Verdict:
        data = last = answer.read_nowait() or await answer.read()
        if not answer.is_drained and _is_short(length):
            data = last = await _whole(data, answer)
        record = self._record
        record.first_byte_at = time.perf_counter()
        self.body_started = True
        if self.history is not None and answer.status == 200:
            data = last = await _whole(data, answer, self.history.most_plain_bytes)
            if answer.is_drained:
                record.usage = usage_of(data) if is_json else None
                lease.verdict = Verdict.GOOD  # also where its turn is not taken
                await self.history.plain_ended(data, is_json, record.usage)
            else:
                self.history.plain_is_too_large()
        sight = None
        if self.on_response is not None and is_json and answer.status == 200:
            sight = ResponseSight(is_stream=False)
            self._look(sight, data, lease)
        own = self._own
        headers = self._head(answer, lease, drop_length=False)
        is_sent = (
            own is not None
            and answer.is_drained
            # Nothing in between that would want to see the messages:
            and self._send == own.send
            and own.write_answer(answer.status, headers, data)
        )
        if not is_sent:
            send = self._send
            status = answer.status
            await send(
                {"type": "http.response.start", "status": status, "headers": headers, "body_follows": True}
            )
            while not answer.is_drained:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                data = await answer.read()
                last = data or last
                if sight is not None and not sight.done:
                    self._look(sight, data, lease)
            await send({"type": "http.response.body", "body": data, "more_body": False})
        if is_json and answer.status == 200:
            record.usage = usage_of(last)
        return verdict_of(answer.status)

    def _look(self, sight: ResponseSight, data: bytes, lease: Lease) -> None:
        response_id = sight.feed(data)
        if response_id and self.on_response is not None:
            self.on_response(response_id, lease.backend)

    def _head(self, answer: Connection, lease: Lease, drop_length: bool) -> list[tuple[bytes, bytes]]:
        """The headers that the client gets; from here on the answer has begun."""
        record = self._record
        headers = answer_headers(answer.headers, drop_length)
        headers.append((b"x-request-id", record.request_id.encode("latin-1")))
        headers.append((b"x-headrace-route", route_label(lease, record.level)))
        if self.history is not None:
            headers += self.history.headers
        record.status = answer.status
        self.head_sent = True
        return headers


def route_label(lease: Lease, level: int) -> bytes:
    """The value of `x-headrace-route`: what was decided of the request. `level=N` ends it while the ladder of overload is above 0.

    A refusal has no route; there the header is that alone (`gateway.errors`).
    """
    tag = lease.tag
    degraded = f";level={level}" if level else ""
    backend = lease.backend
    queue_ms = f"{lease.queue_seconds * 1000:.0f}" if lease.queue_seconds else "0"
    return (
        f"business={tag.business};length={tag.length};lane={tag.lane};path={tag.path};pool={backend.pool};"
        f"backend={backend.id};queue_ms={queue_ms};attempts={lease.attempts};"
        f"prefix_chars={lease.known_depth};cached_tokens={lease.cached_tokens:.0f}{degraded}"
    ).encode()


def _is_short(length: bytes) -> bool:
    """Whether an answer of this `content-length` is to be passed on in one piece."""
    return len(length) <= _LENGTH_DIGITS and length.isdigit() and int(length) <= HELD_BYTES


async def _whole(data: bytes, answer: Connection, most_bytes: int = HELD_BYTES) -> bytes:
    """All of a plain answer that has begun with `data`, or of a longer one so much and no more than one read."""
    parts = [data]
    size = len(data)
    while not answer.is_drained and size <= most_bytes:
        parts.append(await answer.read())
        size += len(parts[-1])
    return b"".join(parts)
