"""The composition root: what the gateway is made of, and how one configuration replaces another.

`Gateway` is an ASGI application. `configure` takes over a whole new `Settings` in one synchronous step: a request sees the old
configuration or the new one, never a mixture, and a running one keeps its backend.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import Gauge
from starlette.middleware.cors import CORSMiddleware

from gateway.admin import Gate, is_admin
from gateway.alert_forms import summary
from gateway.alert_metrics import AlertsNow
from gateway.alerts import Alerts
from gateway.body import Receive
from gateway.body_room import BodyRoom
from gateway.canary import Canaries
from gateway.configuration import backend_name
from gateway.core_rules import backend_plans, core_rules, lane_wait_seconds, pool_plans
from gateway.errors import Refused
from gateway.gpu_metrics import GpusNow
from gateway.gpu_rounds import GpuRounds
from gateway.heartbeat import Heartbeat
from gateway.intent_accuracy import IntentAccuracy
from gateway.models import Card, ModelCatalogue
from gateway.monitoring_metrics import Monitoring
from gateway.pages import is_own, own_pages, refusal_page
from gateway.probes import Probes
from gateway.proxy import Proxy, Snapshot
from gateway.realtime import Realtime
from gateway.relay import Send
from gateway.request_log import RequestLog, Write
from gateway.rule_log import RuleLog
from gateway.rule_metrics import RulesNow
from gateway.sessions.backing import Backing
from gateway.sessions.history import Histories
from gateway.sessions.responses import Responses
from gateway.sessions.store_metrics import StoreNow
from gateway.sessions.turn_metrics import TurnMetrics
from gateway.settings import Settings
from gateway.tagging import Tagging
from gateway.telemetry import Telemetry
from gateway.turnstile import Turnstile
from gateway.upstream.client import Upstream
from policies.gpu_report import GpuReport
from policies.rule_events import RuleEvent, Severity
from policies.terms import BackendId, Refusal
from routing.router import Router

_logger = logging.getLogger("headrace")
App = Callable[[Any, Receive, Send], Awaitable[None]]
_OF_BOTH_LISTENERS = ("/healthz", "/readyz")


class Gateway:
    def __init__(self, settings: Settings, write_log: Write) -> None:
        """Needs a running event loop. `write_log` gets whole lines, from a thread."""
        self.router = Router(core_rules(settings))
        self.upstream = Upstream()
        clock = asyncio.get_running_loop().time
        self.telemetry = Telemetry(lambda: (self.router, self.upstream, self.requests_in_flight, clock()))
        self._accuracy = IntentAccuracy()
        self.telemetry.registry.register(self._accuracy)
        self.turnstile = Turnstile(self.router, settings.queue.max_wait_seconds)
        turns = TurnMetrics(self.telemetry.registry, clock)
        self.sessions = Backing(self.router, turns, clock)
        self.telemetry.registry.register(StoreNow(lambda: self.sessions.shared))
        self.sessions.configure(settings.sessions)
        self.is_leaving = False
        self.bodies = BodyRoom(_bytes_of(settings.server.max_bodies_mb))
        held = Gauge(
            "headrace_request_body_bytes", "Of bodies above 64 KB, held now", registry=self.telemetry.registry
        )
        held.set_function(lambda: float(self.bodies.held_bytes))
        self.proxy = Proxy(
            self._snapshot(settings, self._tagging(settings)),
            self.turnstile,
            self.upstream,
            self.telemetry,
            None,
            Responses(self.router.fleet, clock, self.sessions.response, self.sessions.put_response),
            self.bodies,
        )
        self.realtime = Realtime(
            self.turnstile,
            self.upstream,
            self.telemetry,
            self.proxy.live,
            lambda: self.settings,
            lambda: self.proxy.draining,
            lambda: self.proxy.log,
            lambda: self.proxy.snapshot.tagging,
        )
        self._catalogue = ModelCatalogue()
        self._probes = Probes(self.router.engines, self._catalogue, self.turnstile.pump, self.router.engines)
        self._canaries = Canaries(self.router.circuits, self.turnstile.pump)
        self._gpus = GpuRounds(self._gpu_told)
        self._rule_log = RuleLog(lambda: self.router)
        self.alerts = Alerts()
        monitoring = self._monitoring = Monitoring(self.router, self._accuracy, turns, clock)
        registry = self.telemetry.registry
        registry.register(monitoring)
        registry.register(AlertsNow(self.alerts))
        registry.register(RulesNow(lambda: self.router.degradation))
        registry.register(GpusNow(lambda: (self.router, self._gpus.asked_since, clock())))
        self._heartbeat = Heartbeat(
            [
                lambda now: self.telemetry.count(),
                self.router.samples.take,
                monitoring.beat,
                self._canaries.beat,
                lambda now: self.tell(self.router.degradation.beat(now)),
                self._rule_log.beat,
                lambda now: self.turnstile.pump(),
            ]
        )
        self._pages = own_pages(self)
        self._gate = Gate(settings)
        self._write_log = write_log
        self._log: RequestLog | None = None
        self._entry: App = self._dispatch
        self.settings = settings
        self.configure(settings)

    @property
    def is_draining(self) -> bool:
        """No more work is wanted; what still comes is served until `proxy.draining`."""
        return self.is_leaving or self.proxy.draining

    @property
    def requests_in_flight(self) -> int:
        return len(self.proxy.live)

    @property
    def snapshot(self) -> Snapshot:
        return self.proxy.snapshot

    def model_cards(self) -> list[Card] | None:
        return self._catalogue.cards(self.router.fleet, self.settings.aliases)

    def configure(self, settings: Settings) -> None:
        """`OSError` or `UnusableModel` where a backend's `ca_file` or the classifier cannot be read any more: then nothing has changed."""
        tagging = self._tagging(settings)
        backends = [
            (BackendId(backend_name(backend)), backend)
            for pool in settings.pools
            for backend in pool.backends
        ]
        self.upstream.configure(backends, settings.upstream, settings.timeouts)
        self.sessions.configure(settings.sessions)
        self.settings = settings
        self._gate = Gate(settings)
        self.router.configure(backend_plans(settings), core_rules(settings), pool_plans(settings))
        self._catalogue.keep_only({id for id, _ in backends})
        self._canaries.configure([backend for _, backend in backends], settings.breaker)
        self._gpus.configure([(id, backend.gpu) for id, backend in backends if backend.gpu is not None])
        self._monitoring.configure(settings)
        self.alerts.configure(settings.alerts, settings.degradation.standby_webhook)
        self._heartbeat.set_interval(settings.degradation.interval_seconds)
        self._probes.configure([backend for _, backend in backends], settings.probes)
        self.turnstile.max_wait_seconds = settings.queue.max_wait_seconds
        self.turnstile.lane_wait_seconds = lane_wait_seconds(settings)
        self.proxy.snapshot = self._snapshot(settings, tagging)
        self.bodies.limit_bytes = _bytes_of(settings.server.max_bodies_mb)
        self._configure_log(settings.log.requests)
        origins = settings.server.cors_origins
        self._entry = _with_cors(self._dispatch, origins) if origins else self._dispatch
        self.turnstile.pump()

    def tell(self, events: list[RuleEvent]) -> None:
        """Of degradation rules that have changed their state or were forced: the log, and whoever wants to know outside."""
        self._rule_log.audit()
        for event in events:
            level = logging.INFO if event.severity is Severity.INFO else logging.WARNING
            _logger.log(level, "%s", summary(event))
            self.alerts.tell(event, self.router.degradation.rules.get(event.rule), time.time())
        if events:
            self.turnstile.pump()

    def _gpu_told(self, backend_id: BackendId, report: GpuReport, at: float, until: float) -> None:
        self.router.samples.gpu(backend_id, report, at, until)
        self.tell(self.router.degradation.told(backend_id, asyncio.get_running_loop().time()))

    def interrupt_all(self) -> None:
        """End what is still running: a stream gets an error event, the rest a 503."""
        for departure in list(self.proxy.live):
            departure.interrupt(Refused(Refusal.SHUTTING_DOWN, "The gateway is shutting down"))

    async def close(self) -> None:
        self._heartbeat.close()
        await self._canaries.close()
        await self._gpus.close()
        await self.alerts.close()
        await self._probes.close()
        await self.sessions.close()
        self.upstream.close()
        self._configure_log(False)

    def __call__(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        return self._entry(scope, receive, send)

    def _dispatch(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        # Not coroutines of their own: each would cost every request another frame.
        if scope["type"] == "websocket":
            return self.realtime(scope, receive, send)
        path = scope["path"]
        if is_own(path):
            if not is_admin(path):
                return self._pages(scope, receive, send)
            if self.settings.admin.port is None:
                return self._guarded(scope, receive, send)
        return self.proxy(scope, receive, send)

    def admin(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        """The ASGI application of `admin.port`: those pages, and whether this process lives and can serve."""
        path = scope["path"]
        if is_admin(path):
            return self._guarded(scope, receive, send)
        if path in _OF_BOTH_LISTENERS:
            return self._pages(scope, receive, send)
        unknown = Refused(Refusal.UNKNOWN_PATH, f"Nothing is served at {path[:200]!r} of this listener")
        return refusal_page(unknown)(scope, receive, send)

    def _guarded(self, scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        refused = self._gate.refusal(scope["method"], scope["headers"], scope["path"])
        if refused is None:
            return self._pages(scope, receive, send)
        self.telemetry.refused(refused.reason)
        return refusal_page(refused)(scope, receive, send)

    def _tagging(self, settings: Settings) -> Tagging:
        return Tagging(settings, self._accuracy, lambda: self.router.degradation.effects.has_no_optional_work)

    def _snapshot(self, settings: Settings, tagging: Tagging) -> Snapshot:
        return Snapshot(
            max_body_bytes=_bytes_of(settings.server.max_body_mb),
            aliases=settings.aliases,
            tagging=tagging,
            histories=Histories(settings.sessions, self.sessions.current),
            homes=self.sessions.homes,
        )

    def _configure_log(self, wanted: bool) -> None:
        if wanted and self._log is None:
            self._log = RequestLog(self._write_log)
            self.proxy.log = self._log.ended
        elif not wanted and self._log is not None:
            self._log.close()
            self._log = None
            self.proxy.log = None


def _bytes_of(megabytes: float) -> int:
    return int(megabytes * 1024 * 1024)


def idle_router(settings: Settings) -> Router:
    """The core of a gateway that has just started, without its engines."""
    router = Router(core_rules(settings))
    router.configure(backend_plans(settings), core_rules(settings), pool_plans(settings))
    return router


def _with_cors(app: App, origins: tuple[str, ...]) -> App:
    """For all but the pages of `gateway.admin`, which are no business of a client's."""
    shared = CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[
            "x-request-id",
            "x-headrace-route",
            "x-headrace-session",
            "x-headrace-reason",
            "retry-after",
        ],
    )

    def entry(scope: Any, receive: Receive, send: Send) -> Awaitable[None]:
        is_apart = scope["type"] == "http" and is_admin(scope["path"])
        return app(scope, receive, send) if is_apart else shared(scope, receive, send)

    return entry
