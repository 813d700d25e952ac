"""The metrics page over a real router and real upstream pools, in virtual time, and what stands on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.paths import Kind
from gateway.record import Record
from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from gateway.telemetry import Telemetry
from gateway.upstream.client import Upstream
from policies.terms import BackendId, PoolName
from routing.backend import BackendPlan
from routing.decision import NO_INTENT, Intent, Lease, Ticket
from routing.fleet import PoolPlan
from routing.router import Router
from routing.rules import Rules

Labels = frozenset[tuple[str, str]]
TWO_BACKENDS = (
    BackendPlan(BackendId("a"), PoolName("p"), 1),
    BackendPlan(BackendId("b"), PoolName("q")),
)
"""One of them with a window of one, the other without."""


class Stage:
    def __init__(
        self,
        plans: Sequence[BackendPlan] = TWO_BACKENDS,
        rules: Rules | None = None,
        pools: Sequence[PoolPlan] = (),
    ) -> None:
        rules = rules or Rules()
        self.router = Router(rules)
        self.router.configure(plans, rules, pools)
        self.upstream = Upstream()
        backends = [
            (plan.id, BackendSettings(url=f"http://127.0.0.1:{port}")) for port, plan in enumerate(plans, 1)
        ]
        self.upstream.configure(backends, UpstreamSettings(), TimeoutSettings())
        self.in_flight = 0
        self.now = 0.0
        self.telemetry = Telemetry(lambda: (self.router, self.upstream, self.in_flight, self.now))

    # --- the page -------------------------------------------------------------------------------------------------------------

    def families(self) -> list[Metric]:
        return list(text_string_to_metric_families(self.telemetry.page().decode()))

    def samples(self) -> dict[tuple[str, Labels], float]:
        """Every sample of the page; a series that occurs twice fails the test."""
        found: dict[tuple[str, Labels], float] = {}
        for family in self.families():
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in found, f"twice: {key}"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float:
        """Of one series, 0 where there is none."""
        return self.samples().get((f"headrace_{name}", frozenset(labels.items())), 0.0)

    def series(self, name: str, label: str) -> dict[str, float]:
        """All values of a name, by one of its labels; the others must not tell them apart."""
        found: dict[str, float] = {}
        for (sample, labels), value in self.samples().items():
            if sample == f"headrace_{name}":
                key = dict(labels)[label]
                assert key not in found
                found[key] = value
        return found

    # --- the core -------------------------------------------------------------------------------------------------------------

    def runs(self, intent: Intent = NO_INTENT, model: str = "") -> Lease:
        decision = self.router.arrive(model, self.now, intent)
        assert isinstance(decision, Lease), decision
        return decision

    def waits(self, intent: Intent = NO_INTENT, model: str = "") -> Ticket:
        decision = self.router.arrive(model, self.now, intent)
        assert isinstance(decision, Ticket), decision
        return decision

    def granted(self) -> list[Lease]:
        return [grant for _, grant in self.router.pump(self.now) if isinstance(grant, Lease)]


def served(backend: str = "a", pool: str = "p", status: int = 200, **more: Any) -> Record:
    record = Record("POST", "/v1/chat/completions", 100.0)
    record.route, record.backend, record.pool, record.status = Kind.CHAT, backend, pool, status
    record.ready_at, record.sent_at, record.first_byte_at, record.ended_at = 100.0, 100.002, 100.3, 102.0
    for name, value in more.items():
        setattr(record, name, value)
    return record
