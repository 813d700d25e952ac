"""A router whose backends are made to fail, to be slow and to come back, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

from policies.circuit import CanaryOutcome, CircuitRules
from policies.outlier import OutlierRules
from policies.terms import BackendId, Lane, PoolName, Verdict
from routing.backend import Backend, BackendPlan
from routing.circuit import Circuit
from routing.decision import Decision, Intent, Lease
from routing.router import Router
from routing.rules import Rules

POOL = PoolName("p")
TENANTS = ("one", "another")
GOOD, FAULT = Verdict.GOOD, Verdict.FAULT


class Stage:
    """Time is `now`; a beat each second of `pass_time`."""

    def __init__(
        self,
        backends: int = 2,
        window: int | None = 10,
        models: Sequence[str] = (),
        circuit: CircuitRules | None = None,
        outlier: OutlierRules | None = None,
    ) -> None:
        self.now = 1000.0
        self.changes: list[Circuit] = []
        self.rules = Rules(circuit=circuit or CircuitRules(), outlier=outlier or OutlierRules())
        self.router = Router(self.rules)
        self.window = window
        self.configure(backends)
        self.router.circuits.on_change = self.changes.append
        if models:
            for backend in self.fleet:
                self.router.engines.learn_models(backend.id, frozenset(models))

    @property
    def fleet(self) -> list[Backend]:
        return list(self.router.fleet)

    def configure(self, backends: int) -> None:
        plans = [BackendPlan(BackendId(f"b{number}"), POOL, self.window) for number in range(backends)]
        self.router.configure(plans, self.rules)

    def arrive(
        self,
        backend: int | None = None,
        model: str = "",
        lane: Lane = Lane.STANDARD,
        tenant: str = TENANTS[0],
    ) -> Decision:
        id = None if backend is None else BackendId(f"b{backend}")
        return self.router.arrive(
            model, self.now, Intent(lane=lane, tenant=tenant, streamed=True, backend=id)
        )

    def lease(
        self,
        backend: int | None = None,
        model: str = "",
        lane: Lane = Lane.STANDARD,
        tenant: str = TENANTS[0],
    ) -> Lease:
        decision = self.arrive(backend, model, lane, tenant)
        assert isinstance(decision, Lease), decision
        return decision

    def end(self, lease: Lease, verdict: Verdict, seconds: float = 0.0) -> None:
        lease.verdict, lease.service_seconds = verdict, seconds
        self.router.finish(lease, self.now)

    def calls(
        self,
        backend: int,
        verdict: Verdict,
        count: int = 1,
        seconds: float = 0.0,
        model: str = "",
        tenants: Sequence[str] = TENANTS,
    ) -> None:
        """One after the other, the tenants in turn."""
        for number in range(count):
            self.end(self.lease(backend, model, tenant=tenants[number % len(tenants)]), verdict, seconds)

    def breaks(self, backend: int, model: str = "") -> Circuit:
        """Five failures in a row open its circuit."""
        self.calls(backend, FAULT, 5, model=model)
        circuit = self.circuit(backend, model)
        assert not circuit.is_closed
        return circuit

    def circuit(self, backend: int, model: str = "") -> Circuit:
        [found] = [
            one for one in self.circuits() if one.backend is self.fleet[backend] and one.model == model
        ]
        return found

    def circuits(self) -> list[Circuit]:
        return list(self.router.circuits)

    def is_open(self, backend: int) -> bool:
        return any(one.backend is self.fleet[backend] and not one.is_closed for one in self.circuits())

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 1.0, end)
            self.router.circuits.beat(self.now)

    def canary(self, circuit: Circuit, outcome: CanaryOutcome, jitter: float = 0.0) -> None:
        """At its time."""
        self.now = max(self.now, circuit.probe_at)
        assert self.router.circuits.canary_begins(circuit, self.now)
        self.router.circuits.canary_ended(circuit, outcome, self.now, jitter)

    def comes_back(self, circuit: Circuit) -> None:
        for _ in range(self.rules.circuit.good_canaries):
            self.canary(circuit, CanaryOutcome.GOOD)
        assert circuit.is_closed

    def used(self, count: int, model: str = "") -> set[str]:
        """Which backends get so many requests that come now."""
        leases = [one for one in [self.arrive(model=model) for _ in range(count)] if isinstance(one, Lease)]
        found = {str(lease.backend.id) for lease in leases}
        for lease in leases:
            self.end(lease, Verdict.IGNORED)
        for ticket in list(self.router.queue.tickets()):
            self.router.cancel(ticket)
        return found
