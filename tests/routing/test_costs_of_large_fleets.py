"""What one beat, or one refusal, looks at, counted and not timed: a large fleet must not stall the event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from policies.circuit import Calls, CanaryOutcome, CircuitRules
from policies.metric_catalogue import Metric, Scope
from policies.terms import UNTAGGED, PoolName
from routing.backend import Backend, Hold
from routing.calls_window import CallsWindow
from routing.circuit import Circuit, Watch
from routing.circuit_effects import CircuitEffects
from routing.circuits import Circuits
from routing.pool import Pool
from tests.routing import circuit_stage
from tests.routing.rule_stage import Stage, Told, pool, rule

BACKENDS = 40


class Counting(Told):
    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[tuple[Metric, str]] = Counter()

    def value(self, metric: Metric, scope: Scope, subject: str, now: float) -> float | None:
        self.reads[metric, subject] += 1
        return super().value(metric, scope, subject, now)


def test_a_metric_of_a_backend_is_read_once_however_many_rules_are_about_it() -> None:
    rules = [rule("hold", name=f"r{number}", scope=Scope.BACKEND) for number in range(5)]
    stage = Stage(pool("p", backends=3), rules=rules)
    stage.router.degradation.values = counting = Counting()
    stage.beat()
    assert counting.reads == {(rules[0].metric, f"p{number}"): 1 for number in range(3)}


def test_what_all_backends_of_a_pool_are_held_for_at_once_is_measured_and_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(pool("p", backends=BACKENDS), rules=[rule("hold", "window_share 0.5", scope=Scope.BACKEND)])
    fleet = stage.router.fleet
    measured: list[Pool] = []
    told: list[str] = []
    measure = fleet._measure

    def counted(pool: Pool) -> None:
        measured.append(pool)
        measure(pool)

    monkeypatch.setattr(fleet, "_measure", counted)
    monkeypatch.setattr(fleet, "on_fate", told.append)
    for number in range(BACKENDS):
        stage.told(Metric.GPU_UTILISATION_RATIO, 0.9, Scope.BACKEND, f"p{number}")
    stage.beat()
    assert all(Hold.RULE in backend.holds for backend in fleet)
    assert fleet.pools[stage.backend("p0").pool].usable == 0
    assert len(measured) == len(told) == 1


def test_the_others_of_a_slow_backend_are_added_up_once_for_all_that_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = circuit_stage.Stage(backends=BACKENDS)
    for backend in range(BACKENDS):
        stage.calls(backend, circuit_stage.GOOD)
    for circuit in stage.circuits()[: BACKENDS // 2]:
        for _ in range(30):
            circuit.window.note(stage.now, slow=True)
        circuit.has_slow = True
    looks: list[CallsWindow] = []
    last = CallsWindow.last

    def counted(window: CallsWindow, seconds: int, now: float) -> Calls:
        looks.append(window)
        return last(window, seconds, now)

    monkeypatch.setattr(CallsWindow, "last", counted)
    stage.router.circuits.beat(stage.now)
    assert BACKENDS <= len(looks) <= 3 * BACKENDS


def test_of_a_refusal_it_is_known_whether_it_is_a_loss_without_a_look_at_all_circuits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = circuit_stage.Stage(backends=2, models=["m", "n"])
    stage.breaks(0, model="m")

    def nobody_looks(circuits: Circuits) -> Iterator[Circuit]:
        raise AssertionError("all circuits are looked at")

    monkeypatch.setattr(Circuits, "__iter__", nobody_looks)
    for model, lost in (("n", 0), ("m", 1), ("", 2)):
        stage.router.circuits.refused(model, UNTAGGED)
        assert stage.router.circuits.lost_requests == lost


def test_a_canary_that_changes_nothing_for_its_pool_makes_nobody_look_at_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = circuit_stage.Stage(backends=4)
    circuit = stage.breaks(0)
    circuits = stage.router.circuits
    applied: list[PoolName] = []
    apply = CircuitEffects.apply

    def counted(
        effects: CircuitEffects, name: PoolName, watches: Mapping[Backend, Watch], rules: CircuitRules
    ) -> None:
        applied.append(name)
        apply(effects, name, watches, rules)

    monkeypatch.setattr(CircuitEffects, "apply", counted)
    for outcome, looks in ((CanaryOutcome.BAD, 0), (CanaryOutcome.GOOD, 0), (CanaryOutcome.GOOD, 0)):
        stage.now = max(stage.now, circuit.probe_at)
        assert circuits.canary_begins(circuit, stage.now)
        circuits.canary_ended(circuit, outcome, stage.now, 0.5)
        assert len(applied) == looks
    assert circuits.canary_begins(circuit, stage.now)
    circuits.canary_ended(circuit, CanaryOutcome.GOOD, stage.now, 0.5)
    assert circuit.is_closed and applied
