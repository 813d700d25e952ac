"""Every rule of the decision core, as one frozen record: a configuration replaces it whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.absence import AbsenceRules
from policies.circuit import CircuitRules
from policies.emergency import ReserveRules
from policies.fairness import FairnessRules
from policies.outlier import OutlierRules
from policies.overload import OverloadRules
from policies.preemption import PreemptionRules
from policies.retries import RetryRules
from policies.retry_budget import RetryBudgetRules
from policies.shedding import SheddingRules
from routing.degradation import DegradationRules
from routing.placement import AffinityRules
from routing.tagger import TaggerRules


@dataclass(frozen=True, slots=True)
class Rules:
    probe_failures: int = 3
    fairness: FairnessRules = field(default_factory=FairnessRules)
    tagger: TaggerRules = field(default_factory=TaggerRules)
    reserve: ReserveRules = field(default_factory=lambda: ReserveRules(reserved_per_pool=0))
    """None where nobody may use the emergency lane."""
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
    shedding: SheddingRules = field(default_factory=SheddingRules)
    overload: OverloadRules = field(default_factory=OverloadRules)
    retries: RetryRules = field(default_factory=RetryRules)
    retry_budget: RetryBudgetRules = field(default_factory=RetryBudgetRules)
    absence: AbsenceRules = field(default_factory=AbsenceRules)
    affinity: AffinityRules = field(default_factory=AffinityRules)
    primary_seconds: float = 60.0
    business_seconds: float = 300.0
    """Spans of the metrics in `routing.samples`."""
    circuit: CircuitRules = field(default_factory=CircuitRules)
    outlier: OutlierRules = field(default_factory=OutlierRules)
    degradation: DegradationRules = field(default_factory=DegradationRules)
