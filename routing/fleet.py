"""Every backend the gateway knows: its pool, window, models, health and requests in flight.

State only; the rules are `policies.absence` (how long an unreachable backend is left alone) and `policies.placement` (who is next).
A backend that a new configuration no longer names is *retired*: it gets nothing new, and lives on in its leases alone until the last
one ends. One that is named again later starts anew.
Bounds: one record per configured backend; one candidate list per model that a backend reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policies.absence import PRESENT, Absence, AbsenceRules, after_failure
from policies.terms import BackendId, PoolName


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """What the configuration says of one backend. `window` is in requests, None for unbounded."""

    id: BackendId
    pool: PoolName
    window: int | None = None


class Backend:
    __slots__ = ("absence", "id", "in_flight", "models", "pool", "probe_failures", "window")

    def __init__(self, plan: BackendPlan) -> None:
        self.id = plan.id
        self.pool = plan.pool
        self.window = plan.window
        self.models: frozenset[str] | None = None
        """Names this engine serves; None until it has told."""
        self.in_flight = 0
        self.absence: Absence = PRESENT
        self.probe_failures = 0

    def is_present(self) -> bool:
        return self.absence is PRESENT

    def __repr__(self) -> str:
        return f"<Backend {self.id} in_flight={self.in_flight} window={self.window} absent={self.absence.failures}>"


class Fleet:
    def __init__(self, absence_rules: AbsenceRules) -> None:
        self.absence_rules = absence_rules
        self._backends: dict[BackendId, Backend] = {}
        self._serving: dict[str, tuple[Backend, ...]] = {}

    def __iter__(self) -> Iterator[Backend]:
        return iter(self._backends.values())

    def get(self, backend_id: BackendId) -> Backend | None:
        return self._backends.get(backend_id)

    def configure(self, plans: Iterable[BackendPlan]) -> list[Backend]:
        """Make the fleet what `plans` say; a backend that stays keeps its state. Returns the retired ones."""
        wanted = {plan.id: plan for plan in plans}
        retired = [backend for id, backend in self._backends.items() if id not in wanted]
        kept = self._backends
        self._backends = {}
        for id, plan in wanted.items():
            backend = kept.get(id) or Backend(plan)
            backend.pool, backend.window = plan.pool, plan.window
            self._backends[id] = backend
        self._serving.clear()
        return retired

    def learn_models(self, backend: Backend, models: frozenset[str]) -> None:
        if models != backend.models:
            backend.models = models
            self._serving.clear()

    def mark_unreachable(self, backend: Backend, now: float) -> None:
        backend.absence = after_failure(backend.absence, now, self.absence_rules)

    def mark_reachable(self, backend: Backend) -> None:
        backend.absence = PRESENT
        backend.probe_failures = 0

    def serving(self, model: str) -> tuple[Backend, ...]:
        """Backends that serve `model` ("" = any), healthy or not. One that has not told its models may serve it."""
        found = self._serving.get(model)
        if found is None:
            found = tuple(
                backend
                for backend in self._backends.values()
                if not model or backend.models is None or model in backend.models
            )
            # A name that no engine has told is a client's string: keeping it would let clients grow the table.
            if not model or any(backend.models is not None and model in backend.models for backend in found):
                self._serving[model] = found
        return found

    def usable(self, model: str, now: float) -> list[Backend]:
        return [
            backend
            for backend in self.serving(model)
            if backend.absence is PRESENT or not backend.absence.blocks(now)
        ]

    def claim_trial(self, backend: Backend, now: float) -> None:
        """An absent backend whose time is over gets one request; the next comes after its verdict or another pause."""
        backend.absence = after_failure(Absence(backend.absence.failures - 1), now, self.absence_rules)
