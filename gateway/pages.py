"""What the gateway answers itself: its health, its metrics, the model list, and the engine's health paths in the engine's shape.

| path | answer |
|---|---|
| `/healthz` | 200 while the process is alive |
| `/readyz` | 200 if a backend can be used, 503 if none can, the circuits of all are open, or the process is leaving |
| `/health`, `/ping` | as `/readyz`, with an engine's empty body |
| `/load` | `{"server_load": n}`: requests in this gateway now |
| `/metrics` | Prometheus text |
| `/v1/models`, `/v1/models/{id}` | the union over the healthy backends (`gateway.models`) |
| `/v1/sessions/{id}` | what is kept of a session, for its tenant (`gateway.sessions.pages`) |
| `/admin/affinity` | JSON: the affinity table, its guesses and its most used prefixes, as hashes |
| `/admin/rules` | JSON: degradation rules, their state and effects; a POST to `/admin/rules/{name}` forces one (`gateway.rules_page`) |
| `/admin/state` | JSON snapshot of the fleet, its windows, circuits and pools, the lanes and the flows with the most waiting |

`/metrics` and `/admin/...` may be on a listener of their own or need a key (`gateway.admin`); nothing here knows of that.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin import ADMIN, METRICS
from gateway.affinity_page import affinity_state
from gateway.breaker_page import breaker_state
from gateway.decision_metrics import lent
from gateway.errors import Refused, refusal_answer
from gateway.metrics_page import page
from gateway.models import Card
from gateway.proxy import Snapshot
from gateway.rules_page import PATH as RULES
from gateway.rules_page import rule_routes
from gateway.sessions.pages import METHODS, PREFIX, session_routes
from gateway.telemetry import Telemetry
from gateway.turnstile import refused
from policies.rule_events import RuleEvent
from policies.terms import Refusal
from routing.router import Router

OWN_PATHS = frozenset(
    {
        "/healthz",
        "/readyz",
        "/health",
        "/ping",
        "/load",
        METRICS,
        "/v1/models",
    }
)


class Served(Protocol):
    """What the pages show: the running gateway."""

    router: Router
    telemetry: Telemetry

    @property
    def is_draining(self) -> bool: ...

    @property
    def requests_in_flight(self) -> int: ...

    @property
    def snapshot(self) -> Snapshot: ...

    def model_cards(self) -> list[Card] | None: ...

    def tell(self, events: list[RuleEvent]) -> None: ...


def is_own(path: str) -> bool:
    return path in OWN_PATHS or path.startswith(("/v1/models/", PREFIX, ADMIN))


def own_pages(gateway: Served) -> Starlette:
    async def alive(request: Request) -> Response:
        return _json({"status": "ok"})

    def not_ready() -> str:
        if gateway.is_draining:
            return "draining"
        present = [backend for backend in gateway.router.fleet if backend.is_present()]
        if not present:
            return "no backend"
        # Probes may be well where every call fails, and nobody would notice for hours; a balancer sends elsewhere what could only be tried here.
        return "every backend fails" if all(map(gateway.router.circuits.fails, present)) else ""

    async def ready(request: Request) -> Response:
        problem = not_ready()
        return _json({"status": problem or "ok"}, 503 if problem else 200)

    async def health(request: Request) -> Response:
        return Response(status_code=503 if not_ready() else 200)

    async def load(request: Request) -> Response:
        return _json({"server_load": gateway.requests_in_flight})

    async def metrics(request: Request) -> Response:
        return Response(await page(gateway.telemetry.registry), media_type=CONTENT_TYPE_LATEST)

    async def models(request: Request) -> Response:
        cards = gateway.model_cards()
        if cards is None:
            return refusal_page(refused(Refusal.NO_BACKEND, ""))
        return _json({"object": "list", "data": cards})

    async def model(request: Request) -> Response:
        cards = gateway.model_cards()
        if cards is None:
            return refusal_page(refused(Refusal.NO_BACKEND, ""))
        wanted = request.path_params["model"]
        card = next((card for card in cards if card["id"] == wanted), None)
        return _json(card) if card is not None else refusal_page(refused(Refusal.UNKNOWN_MODEL, wanted))

    async def state(request: Request) -> Response:
        backends = [
            {
                "id": backend.id,
                "pool": backend.pool,
                "present": backend.is_present(),
                "in_flight": backend.in_flight,
                "window": backend.window,
                "tokens": backend.room.state() if backend.room is not None else None,
                "absences": backend.absences,
                "dialect": backend.dialect,
                "report": backend.report._asdict() if backend.report is not None else None,
                "models": None if backend.models is None else sorted(backend.models),
            }
            for backend in gateway.router.fleet
        ]
        router = gateway.router
        now = asyncio.get_running_loop().time()
        queue = router.queue.snapshot(now)
        drain = router.forecast.drain_rate(queue.waiting > 0, now)
        timed_queues, timed_flows = router.admission.overload.remembered()
        return _json(
            {
                "backends": backends,
                "pools": [
                    {
                        "name": pool.name,
                        "in_flight": pool.in_flight,
                        "emergencies": pool.in_flight_emergency,
                        "reserve_lent": lent(router, pool),
                    }
                    for pool in router.fleet.pools.values()
                ],
                "breaker": breaker_state(router, now),
                "waiting": router.waiting,
                "in_flight": gateway.requests_in_flight,
                "lanes": [lane._asdict() for lane in queue.lanes],
                "flows": [flow._asdict() for flow in queue.flows],
                "flows_waiting": queue.flows_waiting,
                "timed_queues": timed_queues,
                "timed_flows": timed_flows,
                "shed_share": {
                    lane.value: share for lane, share in router.admission.overload.shares().items()
                },
                "drain_weighted_tokens_per_second": drain if drain is None else round(drain, 1),
                "served_per_second": round(router.forecast.served_per_second, 1),
            }
        )

    async def affinity(request: Request) -> Response:
        return _json(affinity_state(gateway.router, asyncio.get_running_loop().time()))

    async def wrong_method(request: Request, error: Exception) -> Response:
        allowed = METHODS if request.url.path.startswith(PREFIX) else "GET is"
        if request.url.path.startswith(RULES + "/"):
            allowed = "POST is"
        return refusal_page(
            Refused(Refusal.METHOD_NOT_ALLOWED, f"{request.method} is not allowed here; {allowed}")
        )

    async def unknown(request: Request, error: Exception) -> Response:
        return refusal_page(Refused(Refusal.UNKNOWN_PATH, f"Nothing is served at {request.url.path[:200]!r}"))

    pages = Starlette(
        routes=[
            Route("/healthz", alive),
            Route("/readyz", ready),
            Route("/health", health),
            Route("/ping", health, methods=["GET", "POST"]),
            Route("/load", load),
            Route(METRICS, metrics),
            Route("/v1/models", models),
            Route("/v1/models/{model:path}", model),
            *session_routes(lambda: gateway.snapshot),
            Route("/admin/affinity", affinity),
            *rule_routes(lambda: gateway.router, gateway.tell),
            Route("/admin/state", state),
        ],
        exception_handlers={404: unknown, 405: wrong_method},
    )
    pages.router.redirect_slashes = False  # the Location would be of whatever Host the client names
    return pages


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def refusal_page(refused: Refused) -> Response:
    status, headers, body = refusal_answer(refused)
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})
