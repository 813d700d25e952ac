"""One backend: its window, models, health and requests in flight. `routing.fleet` changes it, and tells whoever ranks it.

State only. It is *blocked* while nothing new may be sent there: while it rests after a failure to reach it, and while anything holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from policies.absence import PRESENT, Absence
from policies.automatic_window import AutomaticWindow
from policies.capacity_tokens import TokenRules
from policies.dialects import Dialect, EngineFlags
from policies.terms import BackendId, PoolName
from policies.windows import WindowRules
from routing.capacity import Capacity
from routing.idle_order import IdleOrder

if TYPE_CHECKING:
    from routing.pool import Pool


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """What the configuration says of one backend; for all but its name and its pool see `routing.capacity`."""

    id: BackendId
    pool: PoolName
    window: int | None = None
    adaptive: WindowRules | None = None
    automatic: AutomaticWindow | None = None
    tokens: TokenRules | None = None


class Hold(StrEnum):
    """Why nothing new may be sent to a backend that can be reached."""

    CIRCUIT = "circuit"
    """Its own faults, see `policies.circuit`."""
    RULE = "rule"
    """A degradation rule."""
    OPERATOR = "operator"
    STANDBY = "standby"
    """Its pool is only used once a rule has activated it."""


class Limiter(StrEnum):
    """What leaves less than the whole of a backend's window; several multiply."""

    SLOW_START = "slow_start"
    OUTLIER = "outlier"
    PANIC = "panic"
    RULE = "rule"


class Backend(Capacity):
    __slots__ = (
        "absence",
        "absences",
        "circuit_changes",
        "dialect",
        "fingerprint",
        "flags",
        "holds",
        "home",
        "id",
        "in_flight_batch",
        "in_flight_emergency",
        "in_flight_hot",
        "is_blocked",
        "is_resting",
        "models",
        "open_models",
        "orders",
        "pool",
        "prefilling",
        "probe_failures",
        "shares",
    )

    def __init__(self, plan: BackendPlan) -> None:
        super().__init__(plan.window)
        self.id = plan.id
        self.pool = plan.pool
        self.models: frozenset[str] | None = None
        """Names this engine serves; None until it has told."""
        self.open_models: frozenset[str] = frozenset()
        """Those of them that it gets no requests for at present, see `routing.circuits`."""
        self.circuit_changes = 0
        """How often one of its circuits has changed its state: a lease that was given before a circuit's last change says nothing of it."""
        self.in_flight_batch = 0
        self.in_flight_emergency = 0
        self.in_flight_hot = 0
        self.prefilling = 0
        """Prompt tokens that it has yet to compute, as expected of what was sent there."""
        self.absence: Absence = PRESENT
        self.absences = 0
        """How often it went absent."""
        self.is_resting = False
        """Absent, and its time is not over."""
        self.holds: set[Hold] = set()
        self.shares: dict[Limiter, float] = {}
        """Those below 1; `share` is their product."""
        self.is_blocked = False
        self.probe_failures = 0
        self.orders: list[IdleOrder[Backend]] = []
        """Of the groups it is in, to be told when its load changes."""
        self.home: Pool | None = None
        """Its pool; None once it is retired, for its slots are nobody's any more."""
        self.dialect = Dialect.UNKNOWN
        self.flags = EngineFlags()
        self.fingerprint = ""
        """The `system_fingerprint` of its streams, of how it was built and started; "" until one ended with it."""

    def is_present(self) -> bool:
        return self.absence is PRESENT

    def is_out(self) -> bool:
        """Whether nothing new may be sent there, or only for want of others."""
        return self.is_blocked or Limiter.PANIC in self.shares

    def __repr__(self) -> str:
        return f"<Backend {self.id} in_flight={self.in_flight} window={self.window} absent={self.absence.failures}>"


def open_ratio(backends: Iterable[Backend]) -> float | None:
    """The share of those that are out; those on standby apart, of which nobody expects anything."""
    active = [backend for backend in backends if Hold.STANDBY not in backend.holds]
    return sum(backend.is_out() for backend in active) / len(active) if active else None
