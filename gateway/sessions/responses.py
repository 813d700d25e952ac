"""Which engine holds a response of the Responses API, and whose it is.

An engine that stores responses keeps them in its own memory: `previous_response_id`, `GET`, `DELETE` and `cancel` make sense there and nowhere else.
So the gateway remembers of each response that passes who made it and on which backend (`made`), and pins what names the response to that backend
(`hold`), whether or not the client may choose backends itself. Of the response nothing is kept but its id.

    known, the same tenant     that backend and no other; its pool takes it whatever the length of its prompt
    known, another tenant      404 `unknown_response`
    not known                  404 `unknown_response` where the configuration tells tenants apart, since an engine hands any id to anybody; else it goes to
                               any backend, and the engine says that it does not know it
    its engine is gone         404 `response_gone`: the backend left the configuration, is absent, or restarted since (`Backend.generation`)

A response is remembered unless its request said `store: false`: that the engine's own store may be off is not seen, and costs an entry.
Where tenants are told apart an id that the client chose itself (`request_id` in the body) is not remembered: it could be another's.

`read` is asked for an id that is not known here, once (what it said is remembered); a store that cannot be read knows nothing, and is counted. `put` must
not wait: it may write behind, so for a moment only this node knows.
Bounds: `capacity` responses here, the oldest go first; each for `ttl_seconds` since this node first heard of it, and as long in the store.
Limits: across nodes a backend's name alone travels. That an engine restarted before this node first heard of a response is not seen here, and the engine
itself says that it is not found. A backend that was named, left out and named again may count as restarted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from gateway.errors import Refused
from gateway.relay import Relay
from gateway.request import Request
from gateway.sessions.expiring import Expiring
from gateway.sessions.store import ResponseOwner, StoreUnavailable
from policies.terms import BackendId, Refusal
from routing.backend import Backend
from routing.decision import Intent
from routing.fleet import Fleet

CAPACITY = 100_000
TTL_SECONDS = 86_400.0
MAX_ID_CHARS = 128
_BELOW = "/v1/responses/"
_OPERATIONS = frozenset({"compact", "input_tokens"})
"""What stands where an id does, and is none; the body names a response, if anything does."""

Read = Callable[[str], Awaitable[ResponseOwner | None]]
Put = Callable[[str, ResponseOwner, float], None]


class _Known(NamedTuple):
    tenant: str
    backend: BackendId
    generation: int
    """Of the backend, when this node first heard of the response."""


class Hold(NamedTuple):
    """A request that one backend alone can serve."""

    response_id: str
    backend: BackendId
    generation: int


class Responses:
    def __init__(
        self,
        fleet: Fleet,
        clock: Callable[[], float],
        read: Read | None = None,
        put: Put | None = None,
        capacity: int = CAPACITY,
        ttl_seconds: float = TTL_SECONDS,
    ) -> None:
        """Without `read` and `put` this process alone knows."""
        self._fleet = fleet
        self._clock = clock
        self._read = read
        self._put = put
        self._ttl_seconds = ttl_seconds
        self._known: Expiring[_Known] = Expiring(capacity)
        self.store_failures = 0

    def __len__(self) -> int:
        return len(self._known)

    def made(self, response_id: str, tenant: str, backend: Backend) -> None:
        """An engine said so."""
        self._known.set(
            response_id,
            _Known(tenant, backend.id, backend.generation),
            self._clock() + self._ttl_seconds,
        )
        if self._put is not None:
            self._put(response_id, ResponseOwner(tenant, backend.id), self._ttl_seconds)

    async def look(self, request: Request, path: str, relay: Relay, tells_tenants_apart: bool) -> Hold | None:
        """What binds a request to a backend; and `relay` is to tell of the response that it makes, if it does."""
        tenant, fields = request.client.tenant.name, request.view.fields
        if is_remembered(path, fields, tells_tenants_apart):
            relay.on_response = lambda response_id, backend: self.made(response_id, tenant, backend)
        named = named_response(path, fields)
        return await self.hold(named, tenant, tells_tenants_apart) if named else None

    async def hold(self, response_id: str, tenant: str, tells_tenants_apart: bool) -> Hold | None:
        """None where any backend may be asked. `Refused` where none may, or the one that had it has it no more."""
        try:
            known = await self._owner_of(response_id)
        except StoreUnavailable as error:
            self.store_failures += 1
            if tells_tenants_apart:
                raise Refused(
                    Refusal.SESSION_STORE_UNAVAILABLE,
                    f"The store that knows whose responses are whose is away ({error.reason})",
                ) from error
            return None
        if known is None or known.tenant != tenant:
            if known is not None or tells_tenants_apart:
                raise Refused(
                    Refusal.UNKNOWN_RESPONSE,
                    f"There is no response with the id {response_id[:MAX_ID_CHARS]!r}",
                )
            return None
        hold = Hold(response_id, known.backend, known.generation)
        if not self._is_there(hold):
            raise _gone(hold)
        return hold

    def held(self, intent: Intent, hold: Hold) -> Intent:
        """What the router is to be asked."""
        backend = self._fleet.get(hold.backend)
        assert backend is not None, "it was there a moment ago"
        return intent._replace(backend=backend.id, pools=(backend.pool,), is_held=True)

    def explained(self, refused: Refused, hold: Hold) -> Refused:
        """Why a held request failed: for want of its backend, if that went while it waited or as it was sent there."""
        is_lost = refused.reason in (Refusal.NO_BACKEND, Refusal.BACKEND_UNREACHABLE)
        return _gone(hold) if is_lost and not self._is_there(hold) else refused

    def _is_there(self, hold: Hold) -> bool:
        backend = self._fleet.get(hold.backend)
        return backend is not None and backend.is_present() and backend.generation == hold.generation

    async def _owner_of(self, response_id: str) -> _Known | None:
        if len(response_id) > MAX_ID_CHARS or not (response_id.isascii() and response_id.isprintable()):
            return None
        known = self._known.get(response_id, self._clock())
        if known is not None or self._read is None:
            return known
        owner = await self._read(response_id)
        if owner is None:
            return None
        backend = self._fleet.get(BackendId(owner.backend))
        if backend is None:  # another configuration may name it
            return _Known(owner.tenant, BackendId(owner.backend), 0)
        known = _Known(owner.tenant, backend.id, backend.generation)
        self._known.set(response_id, known, self._clock() + self._ttl_seconds)
        return known


def named_response(path: str, fields: dict[str, Any]) -> str:
    """The id that a request names, "" for none: in its path below `/v1/responses`, else in its body."""
    named = path[len(_BELOW) :].partition("/")[0]
    if named and named not in _OPERATIONS:
        return named
    earlier = fields.get("previous_response_id")
    return earlier if isinstance(earlier, str) else ""


def is_remembered(path: str, fields: dict[str, Any], tells_tenants_apart: bool) -> bool:
    """Whether the response that this request makes is to be remembered."""
    return (
        len(path) < len(_BELOW)
        and fields.get("store") is not False
        and not (tells_tenants_apart and "request_id" in fields)
    )


def _gone(hold: Hold) -> Refused:
    return Refused(
        Refusal.RESPONSE_GONE,
        f"The engine that held the response {hold.response_id!r} is gone, and the response with it. "
        "Send the conversation again without `previous_response_id`",
    )
