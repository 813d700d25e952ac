"""`/v1/sessions/{id}`: what is kept of a session, for the tenant that it belongs to.

GET gives the messages of its window, the system message first, as they are stored; also those of answers that broke off. DELETE forgets it, and where its
KV cache is. The id of another tenant's session is not found, as one that never was. A turn that is being generated is appended after a DELETE too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import Refused, refusal_answer
from gateway.sessions.history import Histories, session_id, unavailable
from gateway.sessions.store import NO_WINDOW, SessionKey, StoreUnavailable, Window, session_key
from gateway.tagging import Tagging
from policies.terms import Refusal

PREFIX = "/v1/sessions/"
METHODS = "GET and DELETE are"


class Configured(Protocol):
    """The part of the configuration that a request reads."""

    @property
    def tagging(self) -> Tagging: ...

    @property
    def histories(self) -> Histories: ...


def session_routes(configured: Callable[[], Configured]) -> list[Route]:
    def answered(
        handle: Callable[[str, SessionKey, Histories], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            now = configured()
            try:
                tenant = now.tagging.client(request.headers.raw).tenant
                name = session_id(request.path_params["id"])
                try:
                    return await handle(name, session_key(tenant.name, name), now.histories)
                except StoreUnavailable as error:
                    raise unavailable(error) from error
            except Refused as refused:
                status, headers, body = refusal_answer(refused)
                return Response(body, status, {name.decode(): value.decode() for name, value in headers})

        return answer

    async def show(name: str, key: SessionKey, histories: Histories) -> Response:
        window = await histories.sessions.window(key, histories.timeout_seconds)
        if window == NO_WINDOW:
            raise _unknown(name)
        return _json(export(name, window))

    async def delete(name: str, key: SessionKey, histories: Histories) -> Response:
        if not await histories.sessions.delete(key, histories.timeout_seconds):
            raise _unknown(name)
        return _json(orjson.dumps({"id": name, "object": "session.deleted", "deleted": True}))

    path = PREFIX + "{id}"
    return [
        Route(
            path, _by_method({"GET": answered(show), "DELETE": answered(delete)}), methods=["GET", "DELETE"]
        )
    ]


def export(name: str, window: Window) -> bytes:
    """The messages are put in as the bytes that they are."""
    known: dict[str, Any] = {
        "object": "session",
        "id": name,
        "seq": window.seq,
        "turns": len(window.turns),
        "tokens": sum(turn.tokens for turn in window.turns),
        "dropped_turns": window.dropped_turns,
    }
    messages = [window.system] if window.system else []
    messages += [turn.messages for turn in window.turns]
    return b'%b,"messages":[%b]}' % (orjson.dumps(known)[:-1], b",".join(messages))


def _by_method(
    handlers: dict[str, Callable[[Request], Awaitable[Response]]],
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _unknown(name: str) -> Refused:
    return Refused(Refusal.UNKNOWN_SESSION, f"There is no session {name!r}")
