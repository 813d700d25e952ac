"""`/v1/realtime` over WebSocket: one socket to the client, one to an engine, message by message both ways.

    handshake -> turnstile.lease -> dial (again on another backend) -> accept -> messages -> goodbye -> record

Until the engine has taken the handshake the client is not accepted, so a refusal reaches it as an HTTP answer (ASGI extension
`websocket.http.response`). From then on each side's close code and reason are passed to the other; a
side that vanished is 1001 to the engine and 1011 to the client; at shutdown the client gets 1012 and the engine 1001.
The slot lives as long as the engine's socket.

Settings: `server.max_body_mb` bounds a message, `server.stall_seconds` how long a client may leave one unread, `timeouts.gap_seconds` how
long an engine may; `upstream.max_connections` bounds requests and sockets on a backend together.
Limits: the model is read from the query alone: one named inside a message chooses no backend, and an alias there reaches the engine as
it is. Tokens are not counted. While an engine takes no messages the client's socket is not read, so its leaving is seen only after
`gap_seconds` at the latest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from gateway.body import Receive
from gateway.client_socket import ClientClosed, ClientSocket, sendable
from gateway.departure import Departure
from gateway.errors import Headers, Refused, refusal_answer
from gateway.headers import answer_headers, forwarded, usable_request_id
from gateway.paths import Kind
from gateway.record import Outcome, Record
from gateway.relay import Send, route_label, verdict_of
from gateway.settings import Settings
from gateway.tagging import Tagging
from gateway.telemetry import Telemetry
from gateway.tenants import key_in, without_credentials, without_keys
from gateway.turnstile import Turnstile
from gateway.upstream.client import Upstream
from gateway.upstream.failures import ConnectFailed, ConnectTimeout, PoolFull, UpstreamFailure
from gateway.upstream.websocket import HandshakeRefused, dial, hang_up, raw_headers
from policies.terms import UNTAGGED, Refusal, Verdict
from routing.decision import Intent, Lease

PATH = "/v1/realtime"
ROUTE = "realtime"
INTERNAL_ERROR, SERVICE_RESTART, TRY_AGAIN_LATER = 1011, 1012, 1013
_OWN_HANDSHAKE = b"sec-websocket-"
_KEY_PROTOCOL = "openai-insecure-api-key."
"""How a browser sends a key, which can set no header of a WebSocket."""

_logger = logging.getLogger("headrace")


class _EngineClosed(Exception):
    def __init__(self, code: int, reason: str, broken: bool) -> None:
        super().__init__(code)
        self.code = code
        self.reason = reason
        self.broken = broken


class Realtime:
    def __init__(
        self,
        turnstile: Turnstile,
        upstream: Upstream,
        telemetry: Telemetry,
        live: set[Departure],
        settings: Callable[[], Settings],
        is_draining: Callable[[], bool],
        log: Callable[[], Callable[[Record], None] | None],
        tagging: Callable[[], Tagging],
    ) -> None:
        """`settings`, `is_draining`, `log` and `tagging` are asked per socket, since a reload may change them; `live` is the proxy's."""
        self._turnstile = turnstile
        self._upstream = upstream
        self._telemetry = telemetry
        self._live = live
        self._settings = settings
        self._is_draining = is_draining
        self._log = log
        self._tagging = tagging
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        record = Record("GET", scope["path"], time.perf_counter())
        record.streamed = True
        record.level = self._turnstile.router.degradation.level
        client = ClientSocket(scope, receive, send, self._settings())
        try:
            await self._serve(scope, client, record)
        except Refused as refused:
            await _refuse(refused, client, record)
        except HandshakeRefused as refused:
            record.status = refused.status
            headers = _told(refused.headers, record)
            await client.answer(refused.status, headers, refused.body)
        except _EngineClosed as closed:
            record.outcome = Outcome.CUT if closed.broken else Outcome.OK
            await client.close(closed.code, closed.reason)
        except ClientClosed as closed:
            record.cause = closed.cause or ""
            record.outcome = Outcome.ABORTED if closed.cause else Outcome.OK
        except Exception:  # the outermost handler: a fault of ours ends one socket, with its slot given back
            _logger.exception("a socket failed inside the gateway: %r", record.request_id)
            failed = Refused(Refusal.INTERNAL, "The gateway failed to handle this socket")
            await _refuse(failed, client, record)
        finally:
            record.ended_at = time.perf_counter()
            self._telemetry.ended(record)
            log = self._log()
            if log is not None:
                log(record)

    async def _serve(self, scope: Any, client: ClientSocket, record: Record) -> None:
        """Ends by raising what the socket's end was."""
        departure = Departure(scope)
        self._live.add(departure)
        try:
            with departure:
                query, model = self._admit(scope, client, record)
                tagging = self._tagging()
                keeps_keys = tagging.tells_tenants_apart
                known = tagging.client(client.headers)
                intent = tagging.intent(known, Kind.OTHER, PATH, record.model)
                record.tag = UNTAGGED._replace(
                    business=intent.business, lane=intent.lane, tenant=intent.tenant
                )
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._listen(client))
                    both.create_task(self._run(client, query, model, intent, keeps_keys, record))
        except ExceptionGroup as group:  # the first to end cancels the other, so there is one reason
            raise group.exceptions[0] from None
        finally:
            # What is left is a bounded goodbye, which an interruption would only spoil.
            self._live.discard(departure)

    def _admit(self, scope: Any, client: ClientSocket, record: Record) -> tuple[str, str]:
        """The query for the engine and the model that it asks for."""
        record.request_id = _request_id(client.headers)
        path = scope["path"]
        if path != PATH or (scope.get("raw_path") or PATH.encode()) != PATH.encode():
            raise Refused(Refusal.UNKNOWN_PATH, f"No WebSocket is served at {path[:200]!r}")
        record.route = ROUTE
        record.ready_at = time.perf_counter()
        if self._is_draining():
            raise Refused(Refusal.SHUTTING_DOWN, "The gateway is shutting down")
        query, record.model, model = for_engine(
            scope["query_string"].decode("latin-1"), client.settings.aliases
        )
        return query, model

    async def _listen(self, client: ClientSocket) -> None:
        """From the client to the engine, from the handshake on: who leaves while waiting for a slot is noticed too."""
        while True:
            message = await client.next()
            if client.engine is None:
                raise Refused(Refusal.BAD_REQUEST, "A message came before the handshake was answered")
            try:
                async with asyncio.timeout(client.settings.timeouts.gap_seconds):
                    await client.engine.send(message)
            except (TimeoutError, ConnectionClosed):
                client.engine.transport.abort()
                await self._loop.create_future()  # the reading side learns of it and ends both

    async def _run(
        self,
        client: ClientSocket,
        query: str,
        model: str,
        intent: Intent,
        keeps_keys: bool,
        record: Record,
    ) -> None:
        """The slot, the engine's socket, and all that comes from it."""
        async with self._turnstile.lease(model, intent) as lease:
            record.tag = lease.tag
            record.queue_seconds = lease.queue_seconds
            record.sent_at = time.perf_counter()
            engine = await self._dial(lease, client, query, keeps_keys, record)
            try:
                assert engine.response is not None
                record.status = 101
                client.engine = engine
                headers = _told(raw_headers(engine.response), record)
                headers.append((b"x-headrace-route", route_label(lease, record.level)))
                await client.accept(engine.subprotocol, headers)
                while True:
                    message = await engine.recv()
                    kind = "text" if isinstance(message, str) else "bytes"
                    await client.say({"type": "websocket.send", kind: message})
            except ConnectionClosed as closed:
                lease.verdict, ending = _ending_of(closed)
                raise ending from None
            finally:
                await hang_up(engine, *client.goodbye)

    async def _dial(
        self, lease: Lease, client: ClientSocket, query: str, keeps_keys: bool, record: Record
    ) -> ClientConnection:
        """Attempts until one engine takes the handshake, or no backend is left to try."""
        while True:
            if lease.tried:
                await self._turnstile.resume(lease)
                record.queue_seconds = lease.queue_seconds
            backend = lease.backend
            record.backend, record.pool, record.attempts = backend.id, backend.pool, lease.attempts
            pool = self._upstream.pool(backend.id)
            endpoint = pool.endpoint
            asked = without_keys(query, key_in(client.headers)) if keeps_keys else query
            target = endpoint.prefix.decode() + PATH + (f"?{asked}" if asked else "")
            headers = _engine_headers(client.headers, record.request_id, endpoint.authorization, keeps_keys)
            try:
                # Each request and each socket on a backend holds one lease and at most one connection.
                if backend.in_flight > pool.settings.max_connections:
                    raise PoolFull(f"{endpoint.name} has {pool.settings.max_connections} connections in use")
                engine = await dial(
                    endpoint,
                    target,
                    headers,
                    [
                        one
                        for one in client.subprotocols
                        if not (keeps_keys and one.startswith(_KEY_PROTOCOL))
                    ],
                    int(client.settings.server.max_body_mb * 1024 * 1024),
                    pool.timeouts,
                )
            except HandshakeRefused as refused:
                lease.verdict = verdict_of(refused.status)
                if not self._move(lease):
                    raise
            except UpstreamFailure as failure:
                lease.verdict = failure.verdict
                if isinstance(failure, ConnectFailed):
                    lease.found_nobody = not isinstance(failure, ConnectTimeout)
                    self._turnstile.router.unreachable(backend, self._loop.time())
                if not self._move(lease):
                    raise Refused(failure.reason, f"No socket to the engine: {failure}") from failure
            else:
                lease.verdict = Verdict.GOOD
                return engine

    def _move(self, lease: Lease) -> bool:
        if lease.verdict not in (Verdict.FAULT, Verdict.BACKPRESSURE):
            return False
        failed = lease.backend.id
        moved = self._turnstile.move(lease, lease.verdict, False, True)
        if moved:
            self._telemetry.retried(failed)
        return moved


def for_engine(query: str, aliases: Mapping[str, str]) -> tuple[str, str, str]:
    """The query with an alias replaced, the model as the client named it, and as the engine knows it."""
    parts = query.split("&")
    named = [index for index, part in enumerate(parts) if unquote_plus(part.partition("=")[0]) == "model"]
    if not named:
        return query, "", ""
    if len(named) > 1:
        raise Refused(Refusal.BAD_REQUEST, "The query names more than one model", "model")
    asked = unquote_plus(parts[named[0]].partition("=")[2])
    model = aliases.get(asked, asked)
    if model != asked:
        parts[named[0]] = f"model={quote(model, safe='')}"
    return "&".join(parts), asked, model


async def _refuse(refused: Refused, client: ClientSocket, record: Record) -> None:
    record.reason = refused.reason
    if client.accepted:
        record.outcome = Outcome.CUT
        code = SERVICE_RESTART if refused.reason is Refusal.SHUTTING_DOWN else INTERNAL_ERROR
        await client.close(code, refused.message[:100])
        return
    record.outcome = Outcome.REFUSED
    record.status, headers, body = refusal_answer(refused, record.level)
    headers.append((b"x-request-id", record.request_id.encode("latin-1")))
    await client.answer(record.status, headers, body)


def _ending_of(closed: ConnectionClosed) -> tuple[Verdict, _EngineClosed]:
    frame = closed.rcvd
    if frame is None:
        return Verdict.FAULT, _EngineClosed(INTERNAL_ERROR, "The engine's connection broke", broken=True)
    verdict = Verdict.GOOD
    if frame.code == INTERNAL_ERROR:
        verdict = Verdict.FAULT
    elif frame.code == TRY_AGAIN_LATER:
        verdict = Verdict.BACKPRESSURE
    return verdict, _EngineClosed(sendable(frame.code), frame.reason, broken=verdict is Verdict.FAULT)


def _request_id(headers: Headers) -> str:
    for name, value in headers:
        if name == b"x-request-id" and usable_request_id(value):
            return value.decode("ascii")
    return os.urandom(14).hex()


def _engine_headers(
    client_headers: Headers, request_id: str, authorization: bytes, keeps_keys: bool
) -> list[tuple[str, str]]:
    """What any request would bring to the engine, but for `Host` and the handshake, which the library writes.

    The client's key stays here where the backend has one of its own, or where it was meant for this gateway (`keeps_keys`).
    """
    passed = forwarded(client_headers)
    if authorization or keeps_keys:
        passed = without_credentials(passed, key_in(client_headers))
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in passed
        if not name.startswith(_OWN_HANDSHAKE)
    ]
    if authorization:
        headers.append(("authorization", authorization.decode()))
    headers.append(("x-request-id", request_id))
    return headers


def _told(engine_headers: Headers, record: Record) -> Headers:
    """Of the engine's answer to the handshake, refused or taken: its headers without those of the handshake."""
    headers = [
        pair
        for pair in answer_headers(engine_headers, drop_length=True)
        if not pair[0].startswith(_OWN_HANDSHAKE)
    ]
    headers.append((b"x-request-id", record.request_id.encode("latin-1")))
    return headers
