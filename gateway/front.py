"""The client's connection: uvicorn's httptools protocol with the bounds it lacks.

Adds to uvicorn: a bound on the bytes of a request's head, and of trailers and chunk extensions (431), on its target (414), a time limit for slow heads and silent bodies (408),
OpenAI-shaped answers to malformed HTTP, a limit on how long a client may leave an answer unread (stall), and word of a client's leaving
without a task per request: `scope["extensions"][DEPARTURE].on_departure` is called with the cause.

Settings: `ServerSettings` `max_header_kb`, `header_seconds`, `body_gap_seconds`, `stall_seconds`, `keep_alive_seconds`.
Time: one `LazyTimer` per connection.
Limit: a client that pipelines requests is noticed leaving only when the earlier ones are answered, since its socket is not read meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.answer import Answer
from gateway.client_cause import Cause
from gateway.client_head import ClientHead
from gateway.errors import Refused, refusal_answer
from gateway.framing import framing_fault, host_fault
from gateway.lazy_timer import LazyTimer
from gateway.repeated_head import RepeatedHead, repeated_head
from gateway.request_target import set_target
from gateway.settings import ServerSettings
from gateway.upgrade_offer import head_without_offer
from policies.terms import Refusal

DEPARTURE = "headrace.departure"
MAX_TARGET_BYTES = 16 * 1024
MAX_HEADERS = 1000
_TOO_MUCH_FRAMING = "The trailer of the body, or extensions of its chunks, are longer than a head may be"
_HEADS_TO_LEARN = 3
"""A client whose heads differ gets no more of them remembered."""
_VERSIONS = ("1.1", "1.0")
_USUAL_METHODS = {b"POST": "POST", b"GET": "GET"}
_TRAILERS: Any = deque(maxlen=0)
"""Where header fields go that come after the head: trailers must not join the headers of a request that is running."""


class _Overdue(Exception):
    """A bound was passed inside a parser callback."""


class FrontProtocol(HttpToolsProtocol):
    settings: ServerSettings
    draining: Callable[[], bool]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        settings: ServerSettings,
        draining: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
        count_refusal: Callable[[Refusal], None] = lambda reason: None,
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self.settings = settings
        self.draining = draining
        self._count_refusal = count_refusal
        self.on_departure: Callable[[Cause], None] | None = None
        self._extensions: dict[str, Any] = {DEPARTURE: self}
        self._head_limit = int(settings.max_header_kb * 1024)
        self._head_bytes = 0
        self._head_open = True
        self._body_open = False
        self._barren_bytes = 0  # since the body's latest byte: what chunks and trailers say beside it
        self._since = loop.time()
        self._timer = LazyTimer(loop, self._look_at_time)
        self._stall_timer: asyncio.TimerHandle | None = None
        self._cause = Cause.CLIENT_LEFT
        self._refusal: tuple[Refusal, str] | None = None
        self._awaits_first = True
        self._offers_upgrade = False
        self._closing_since = 0.0
        self._message_event = asyncio.Event()
        self._repeated: RepeatedHead | None = None
        self._heads_to_learn = _HEADS_TO_LEARN
        self.client_head: ClientHead | None = None  # of the latest request
        self.running: Answer | None = None
        """Of pipelined requests the one that is being answered; `cycle` is the latest that came."""

    # --- connection -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        super().connection_made(transport)
        self._timer.arm(self._since + self.settings.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timers()
        super().connection_lost(exc)
        if self.on_departure is not None:
            self.on_departure(self._cause)
        # Whatever points back here would keep a closed connection until the collector looks for cycles.
        self._timer.close()
        self._extensions.clear()
        self.parser = None  # type: ignore[assignment]  # as `data_received` knows

    def _cancel_timers(self) -> None:
        self._timer.cancel()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def data_received(self, data: bytes) -> None:
        rest: bytes | None = data
        while rest is not None:
            rest = self._read(rest)

    def _read(self, data: bytes) -> bytes | None:
        """What is to be read anew."""
        if self.parser is None:
            return None  # refused already; what still comes is not read
        is_fresh = self._head_open and not self._head_bytes and not self._is_answering
        if is_fresh and self._repeated is not None:
            same = self._repeated.match(data)
            if same is not None:
                self._begin_whole(*same)
                return None
        if self._head_open:
            self._head_bytes += len(data)
        elif self._body_open:
            self._since = self.loop.time()
            self._barren_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._is_answering and self._should_upgrade():
                self.transport.abort()  # pipelined behind a request whose answer it would cut into
            elif self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                return self._without_upgrade() + data[upgrade.args[0] :]
            return None
        except httptools.HttpParserError as error:
            malformed = (Refusal.MALFORMED_HTTP, f"This is not a valid HTTP request: {error}")
            self._refuse(*(self._refusal or malformed))
            return None
        if self._head_open:
            if self._head_bytes:
                self._head_unfinished(len(data))
            elif is_fresh and self._heads_to_learn and self.cycle.keep_alive and not self.pipeline:
                self._heads_to_learn -= 1
                self._repeated = repeated_head(data, self.scope)  # type: ignore[arg-type]  # a TypedDict is a dict
        elif self._body_open:
            if self._barren_bytes > self._head_limit:
                self._refuse(Refusal.HEAD_TOO_LARGE, _TOO_MUCH_FRAMING)
            else:
                self._timer.arm(self._since + self.settings.body_gap_seconds)
        return None

    def _begin_whole(self, scope: Any, body: bytes) -> None:
        """A request that came in one read, with the head of the one before."""
        self._since = self.loop.time()
        self.scope = scope
        self._message_event.set()
        self.cycle = cycle = Answer(self, self._message_event, not self.draining())
        cycle.body += body
        cycle.more_body = False
        self._start_asgi_task(cycle, self.app)

    def _without_upgrade(self) -> bytes:
        """A new parser gets the same head without the offer of an upgrade, and what followed it."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._offers_upgrade = False
        self._head_bytes = 0
        return head_without_offer(self.scope, self.url)

    def _head_unfinished(self, latest_bytes: int) -> None:
        """A head came in part: its time begins with its first byte, and its size is bounded whether it ends or not."""
        if self._head_bytes > self._head_limit:
            self._refuse(Refusal.HEAD_TOO_LARGE, self._too_many_header_bytes())
        elif self._head_bytes == latest_bytes and not self._awaits_first:
            self._since = self.loop.time()
            self._timer.arm(self._since + self.settings.header_seconds)

    def _too_many_header_bytes(self) -> str:
        return f"The request's headers exceed {self._head_limit} bytes or {MAX_HEADERS} fields"

    def _refuse(self, reason: Refusal, message: str) -> None:
        """Answer what never became a whole request; where that would cut into an answer, close only."""
        if self.transport.is_closing():
            return
        self._count_refusal(reason)
        has_answered = self._body_open and self.cycle.response_complete
        if has_answered or (
            self._is_answering and (self._head_open or self.pipeline or self.cycle.response_started)
        ):
            self.transport.abort()
            return
        status, headers, body = refusal_answer(Refused(reason, message))
        fields = b"".join(b"%b: %b\r\n" % pair for pair in headers)
        self.transport.write(STATUS_LINE[status] + fields + b"\r\n" + body)
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        if self.cycle is None:  # none yet, whatever uvicorn declares
            return False
        return not self.cycle.response_complete

    # --- parser callbacks -----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.scope = {  # type: ignore[typeddict-item]  # the rest comes with the headers
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "root_path": "",
            "headers": self.headers,
            "extensions": self._extensions,
        }

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_TARGET_BYTES:
            self._exceed(Refusal.TARGET_TOO_LONG, f"The request's target exceeds {MAX_TARGET_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))
        if len(self.headers) > MAX_HEADERS:  # not at the end: one read may hold 20 times as many
            self._exceed(Refusal.HEAD_TOO_LARGE, self._too_many_header_bytes())

    def _check_head_size(self) -> None:
        """To the byte: what was read with the end of the head may be body."""
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > self._head_limit:
            self._exceed(Refusal.HEAD_TOO_LARGE, self._too_many_header_bytes())

    def _exceed(self, reason: Refusal, message: str) -> None:
        self._refusal = (reason, message)
        raise _Overdue(message)

    def on_headers_complete(self) -> None:
        # A head that began in the middle of a read has not been counted.
        if not 0 < self._head_bytes <= self._head_limit:
            self._check_head_size()
        parser, scope = self.parser, self.scope
        method = parser.get_method()
        scope["method"] = _USUAL_METHODS.get(method) or method.decode("ascii")
        version = scope["http_version"] = parser.get_http_version()
        if version not in _VERSIONS or method == b"CONNECT":  # to llhttp an upgrade, whatever its head says
            self._exceed(Refusal.MALFORMED_HTTP, f"{scope['method']} of HTTP/{version} is not spoken here")
        fields = dict(self.headers)
        fault = host_fault(version, fields.get(b"host"))
        if fault is None and (b"transfer-encoding" in fields or len(fields) < len(self.headers)):
            fault = framing_fault(version, self.headers)
        if fault is not None:
            self._exceed(Refusal.MALFORMED_HTTP, f"This is not a valid HTTP request: {fault}")
        offers_upgrade = parser.should_upgrade()
        if offers_upgrade and not self._should_upgrade():
            self._offers_upgrade = True
            return
        if b"expect" in fields:
            self.expect_100_continue = fields[b"expect"].lower() == b"100-continue"
        self._head_open = False
        self._body_open = True
        self._barren_bytes = 0
        self._awaits_first = False
        self._since = self.loop.time()
        self.headers = _TRAILERS
        if offers_upgrade:
            return
        set_target(scope, self.url)
        may_start = not self._is_answering
        if may_start:
            self._message_event.clear()
        else:
            self._message_event = asyncio.Event()  # the one before is still the running request's
        keep_alive = version != "1.0" and parser.should_keep_alive() and not self.draining()
        self.cycle = cycle = Answer(self, self._message_event, keep_alive)
        if may_start:
            self._start_asgi_task(cycle, self.app)
        else:
            # A pipelined request waits for its turn, and the rest of the line unread.
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        self._barren_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers_upgrade:
            return
        self._head_open = True
        self._head_bytes = 0
        self._body_open = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self.on_departure = None
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._since = self.loop.time()
            self._timer.arm(self._since + self.settings.keep_alive_seconds)

    def _should_upgrade(self) -> bool:
        """Asked where llhttp found `Connection: upgrade`. uvicorn looks into `headers`, which hold only trailers by then."""
        return self.ws_protocol_class is not None and any(
            name == b"upgrade" and value.lower() == b"websocket" for name, value in self.scope["headers"]
        )

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over for good: from here on its times and its end are `WebSocketFront`'s."""
        self._cancel_timers()
        super().handle_websocket_upgrade()
        self.parser = None  # type: ignore[assignment]  # as uvicorn does at a connection's end

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        tasks = self.tasks
        cycle.task = task = self.loop.create_task(cycle.run(app, tasks))
        tasks.add(task)

    # --- time -----------------------------------------------------------------------------------------------------------

    def _look_at_time(self) -> None:
        now = self.loop.time()
        settings = self.settings
        if self.transport.is_closing():
            # It closes when the client has read the rest, if it ever does.
            if self._closing_since and now >= self._closing_since + settings.stall_seconds:
                self.transport.abort()
                return
            self._closing_since = self._closing_since or now
            due = self._closing_since + settings.stall_seconds
        elif self._body_open and not self.pipeline:
            due = self._since + settings.body_gap_seconds
            if now >= due:
                self._body_open = False
                if self.on_departure is not None and not self.cycle.response_started:
                    self.on_departure(Cause.BODY_TIMEOUT)  # the proxy answers 408
                else:
                    self.transport.abort()
                return
        elif self._is_answering:
            due = now + min(settings.header_seconds, settings.body_gap_seconds)
        elif self._head_bytes or self._awaits_first:
            due = self._since + settings.header_seconds
            if now >= due:
                if self._head_bytes:
                    limit = f"{settings.header_seconds:g} s"
                    self._refuse(Refusal.HEAD_TIMEOUT, f"The request's head did not arrive within {limit}")
                else:
                    self.transport.close()
                return
        else:
            due = self._since + settings.keep_alive_seconds
            if now >= due:
                # Not close(): it would wait for ever for a client that left its last answer unread.
                self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()
                return
        self._timer.arm(due)

    def body_taken(self) -> None:
        """The running request's body has been read: without reading on, its client's leaving would not be seen."""
        if not self.pipeline:
            self.flow.resume_reading()

    def break_off(self) -> None:
        """Close without the answer's proper end; what was written still leaves."""
        assert self.running is not None
        self.transport.close()
        # Told at once: uvicorn would log the missing end as the application's fault.
        self.running.disconnected = True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.settings.stall_seconds, self._stalled)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _stalled(self) -> None:
        self._cause = Cause.CLIENT_STALLED
        self.transport.abort()
