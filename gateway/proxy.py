"""A request's way through the gateway, as one plain ASGI callable.

    body -> view -> turnstile.lease -> attempt (again on another backend) -> relay -> record

Every ending is one of: an engine's answer, a refusal (`gateway.errors`), an answer broken off, a client gone. Each goes through
`__call__`, which turns `Refused`, `ClientGone` and unexpected exceptions into what the client gets.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.body import (
    ClientLeft,
    Receive,
    read_body,
    too_large,
)
from gateway.body_room import BodyRoom
from gateway.clamp import clamped
from gateway.client_cause import Cause
from gateway.client_head import ClientHead
from gateway.departure import ClientGone, Departure
from gateway.errors import Refused, error_event, refusal_answer
from gateway.front import FrontProtocol
from gateway.headers import request_head
from gateway.load_header import ASKING_LINE, asks_load, take_load
from gateway.paths import Kind, route_of
from gateway.preemption import Preemptor
from gateway.priority import for_priority
from gateway.record import Outcome, Record
from gateway.relay import Moved, Relay, Send, verdict_of
from gateway.request import Request
from gateway.sessions.history import Histories, History
from gateway.sessions.responses import Hold, Responses
from gateway.sessions.shared_homes import SharedHomes
from gateway.sessions.store import session_key
from gateway.tagging import Tagging
from gateway.telemetry import Telemetry
from gateway.turnstile import Turnstile
from gateway.upstream.client import Exchange, Upstream
from gateway.upstream.failures import ConnectFailed, ConnectTimeout, UpstreamFailure
from policies.dialects import engine_priority
from policies.refusals import STATUS_OF
from policies.terms import UNTAGGED, Refusal, Verdict
from routing.decision import NO_INTENT, Lease

_logger = logging.getLogger("headrace")
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 64 * 1024 * 1024
_id_prefix = os.urandom(8).hex()
_id_count = itertools.count()


def _new_request_id() -> str:
    return f"{_id_prefix}{next(_id_count):012x}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The part of the configuration that a request reads; it keeps the one it began with."""

    max_body_bytes: int
    aliases: Mapping[str, str]
    tagging: Tagging
    histories: Histories
    homes: SharedHomes | None
    """Where gateways share a store."""


class Proxy:
    def __init__(
        self,
        snapshot: Snapshot,
        turnstile: Turnstile,
        upstream: Upstream,
        telemetry: Telemetry,
        log: Callable[[Record], None] | None,
        responses: Responses,
        bodies: BodyRoom,
    ) -> None:
        self.snapshot = snapshot
        self.live: set[Departure] = set()
        """Requests inside; at shutdown what remains of them is interrupted."""
        self.draining = False
        self.log = log
        self.responses = responses
        self._turnstile = turnstile
        self._degradation = turnstile.router.degradation
        self._upstream = upstream
        self._bodies = bodies
        self._telemetry = telemetry
        self._loop = asyncio.get_running_loop()
        turnstile.on_emergency_waiting = Preemptor(turnstile.router, self.live).look

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        record = Record(scope["method"], scope["path"], time.perf_counter())
        if level := self._degradation.level:
            record.level = level
        relay: Relay | None = None
        history: History | None = None
        intent = NO_INTENT
        hold: Hold | None = None
        departure = Departure(scope)
        front = departure.front
        self.live.add(departure)
        try:
            with departure, self._bodies.place() as place:
                request = self._request(scope, front, record)
                if request.client.ignored:
                    self._telemetry.ignored(request.client.ignored)
                max_body_bytes = self.snapshot.max_body_bytes
                answer = departure.answer
                body = answer.whole_body() if answer is not None else None
                if body is None:
                    body = await read_body(receive, request.content_length, max_body_bytes, place)
                elif len(body) > max_body_bytes:
                    raise too_large(max_body_bytes)
                else:
                    place.grows(len(body))
                record.ready_at = time.perf_counter()
                # Not before the body was there: a reload meanwhile has changed the backends, and aliases go with them.
                snapshot = self.snapshot
                if request.client.tagging is not snapshot.tagging:
                    request.client = request.head.client(scope["headers"], snapshot.tagging)
                request.take(body, snapshot.aliases)
                record.model = request.view.model
                record.request_id = request.named_id() or record.request_id
                departure.watch(receive)
                relay = Relay(
                    send,
                    answer,
                    request.stream_form,
                    request.keep_usage_back,
                    record,
                    self._turnstile.produced,
                )
                if request.client.hints.history:
                    history = relay.history = await snapshot.histories.open(request)
                tagging = snapshot.tagging
                if "priority" in request.view.fields and not tagging.may_set_priority(request.client):
                    request.body = for_priority(request.body, True, None)
                intent = tagging.intent(
                    request.client, request.kind, record.path, record.model, request.view.fields
                )
                home_key = ""
                homes = snapshot.homes
                if homes is not None and intent.key is not None and intent.key.session:
                    home_key = session_key(
                        intent.tenant, tagging.session_of(request.client, request.view.fields)
                    )
                    if homes.must_ask(intent.key.session):
                        await homes.ask(intent.key.session, home_key)
                if request.is_responses:
                    hold = await self.responses.look(request, record.path, relay, tagging.tells_tenants_apart)
                    if hold is not None:
                        intent = self.responses.held(intent, hold)
                async with self._turnstile.lease(request.model, intent) as lease:
                    try:
                        await self._attempt(request, lease, relay, record, departure)
                    finally:
                        if record.first_byte_at:
                            lease.service_seconds = record.first_byte_at - record.attempt_at
                            lease.usage = record.usage
                        if homes is not None and home_key and lease.verdict is Verdict.GOOD:
                            homes.went(home_key, lease)
        except Refused as refused:
            if hold is not None:
                refused = self.responses.explained(refused, hold)
            if not record.backend and intent is not NO_INTENT:
                record.tag = UNTAGGED._replace(
                    business=intent.business, lane=intent.lane, tenant=intent.tenant
                )
            await self._refuse(refused, relay, record, departure, receive, send)
        except (ClientGone, ClientLeft) as gone:
            record.cause = gone.cause if isinstance(gone, ClientGone) else Cause.CLIENT_LEFT
            record.outcome = Outcome.OK if record.whole else Outcome.ABORTED
        except (
            Exception
        ):  # the outermost handler: a fault of ours is one request's 500, with its slot given back
            _logger.exception("a request failed inside the gateway: %r", record.request_id)
            failed = Refused(Refusal.INTERNAL, "The gateway failed to handle this request")
            await self._refuse(failed, relay, record, departure, receive, send)
        finally:
            self.live.discard(departure)
            record.ended_at = time.perf_counter()
            self._telemetry.ended(record)
            if self.log is not None:
                self.log(record)
            if history is not None:
                history.close(record.usage)

    def _request(self, scope: Any, front: FrontProtocol | None, record: Record) -> Request:
        if self.draining:
            raise Refused(Refusal.SHUTTING_DOWN, "The gateway is shutting down")
        path, method = scope["path"], scope["method"]
        route = route_of(path, scope.get("raw_path") or path.encode(), method)
        if route is None:
            raise Refused(Refusal.UNKNOWN_PATH, f"Nothing is served at {path[:200]!r}")
        headers = scope["headers"]
        head = front.client_head if front is not None else None
        if head is None or not head.is_of(headers):
            head = ClientHead(headers)
            if front is not None:
                front.client_head = head
        record.request_id = head.request_id or _new_request_id()
        request = Request(scope, route, head, head.client(headers, self.snapshot.tagging))
        record.route = route.kind
        if method not in route.methods:
            raise Refused(
                Refusal.METHOD_NOT_ALLOWED,
                f"{method} is not allowed here; {', '.join(sorted(route.methods))} are",
            )
        return request

    async def _attempt(
        self, request: Request, lease: Lease, relay: Relay, record: Record, departure: Departure
    ) -> None:
        """Attempts until one answers, or no backend is left to try."""
        record.tag = lease.tag
        record.queue_seconds = lease.queue_seconds
        record.sent_at = time.perf_counter()
        router = self._turnstile.router

        def move(verdict: Verdict) -> bool:
            return self._move(lease, verdict, relay, request)

        attempt = None if request.view.stores else (lease, relay, record)
        while True:
            if lease.has_moved:
                departure.attempt = None
                await self._turnstile.resume(lease)
                record.queue_seconds = lease.queue_seconds
            backend = lease.backend
            departure.attempt = attempt
            record.attempt_at = time.perf_counter()
            record.backend, record.pool, record.attempts = backend.id, backend.pool, lease.attempts
            pool = self._upstream.pool(backend.id)
            endpoint = pool.endpoint
            body = request.body
            if router.clamps.is_on and request.limits and request.view.fields:
                limit = router.clamps.limit(lease.tag.lane, request.model, lease.tag.business)
                if limit is not None:
                    body = clamped(body, request.view.fields, limit, request.limits)
            if router.fleet.wants_priority(backend) and request.kind in (Kind.CHAT, Kind.COMPLETION):
                urgency = engine_priority(lease.tag.lane, backend.dialect, backend.flags)
                body = for_priority(body, "priority" in request.view.fields, urgency)
            is_keyless = endpoint.authorization or request.client.tagging.tells_tenants_apart
            lines = request.head.keyless_lines if is_keyless else request.head.lines
            asked = backend.adaptive is not None and asks_load(
                backend, request.kind, request.view.fields, lines, self._loop.time()
            )
            head = request_head(
                request.method,
                endpoint.prefix + request.target,
                endpoint.host_header,
                lines + ASKING_LINE if asked else lines,
                len(body) if request.has_body() else None,
                record.request_id,
                endpoint.authorization,
            )

            try:
                async with Exchange(
                    pool, head, body, request.method != "HEAD", not request.view.stores
                ) as answer:
                    if asked:
                        take_load(answer.headers, backend, router.fleet, self._loop.time())
                    verdict = verdict_of(answer.status)
                    if verdict in (Verdict.FAULT, Verdict.BACKPRESSURE) and move(verdict):
                        continue
                    lease.verdict = await relay.run(answer, lease, move)
                    if (
                        relay.is_stream and lease.verdict is not Verdict.GOOD
                    ):  # an error event, whoever's fault
                        record.outcome = Outcome.CUT
                    return
            except Moved:
                continue
            except asyncio.CancelledError:
                if not (lease.gives_way and departure.goes_on()):
                    raise
                self._turnstile.put_back(lease)
            except UpstreamFailure as failure:
                lease.verdict = failure.verdict
                if isinstance(failure, ConnectFailed):
                    lease.found_nobody = not isinstance(failure, ConnectTimeout)
                    router.unreachable(backend, self._loop.time())
                if not move(failure.verdict):
                    what = _WHAT_FAILED.get(failure.reason, "The engine failed")
                    raise Refused(failure.reason, f"{what}: {failure}") from failure

    def _move(self, lease: Lease, verdict: Verdict, relay: Relay, request: Request) -> bool:
        failed = lease.backend.id
        moved = self._turnstile.move(lease, verdict, relay.body_started, not request.view.stores)
        if moved:
            self._telemetry.retried(failed)
        return moved

    async def _refuse(
        self,
        refused: Refused,
        relay: Relay | None,
        record: Record,
        departure: Departure,
        receive: Receive,
        send: Send,
    ) -> None:
        record.reason = refused.reason
        if relay is not None and relay.head_sent:
            record.outcome = Outcome.CUT
            if relay.is_stream:
                event = error_event(refused.reason, refused.message, relay.form)
                await send({"type": "http.response.body", "body": event, "more_body": True})
            departure.break_off()
            return
        record.outcome = Outcome.REFUSED
        record.status = STATUS_OF[refused.reason]
        status, headers, body = refusal_answer(refused, record.level)
        record.request_id = record.request_id or _new_request_id()
        headers.append((b"x-request-id", record.request_id.encode()))
        lingers = refused.reason is Refusal.BODY_TOO_LARGE
        start = {
            "type": "http.response.start",
            "status": status,
            "headers": headers,
            "body_follows": not lingers,
        }
        await send(start)
        if lingers:
            # The client still writes; closing now would reset the connection and lose it the answer.
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await _linger(receive)
            body = b""
        await send({"type": "http.response.body", "body": body, "more_body": False})


_WHAT_FAILED = {
    Refusal.BACKEND_UNREACHABLE: "The backend cannot be reached",
    Refusal.UPSTREAM_FULL: "The backend takes no more connections",
    Refusal.FIRST_BYTE_TIMEOUT: "The engine did not answer in time",
    Refusal.GAP_TIMEOUT: "The engine went silent",
    Refusal.TOTAL_TIMEOUT: "The answer took too long",
}


async def _linger(receive: Receive) -> None:
    """Read and drop what a client still sends, for a while and up to a bound."""
    size = 0
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while size < _LINGER_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
    except TimeoutError:
        return
