"""The arithmetic of the frozen Redis: who counts in which phase, and what is measured from when."""

from __future__ import annotations

import pytest

from tests.bench.sessions.frozen import AFTER, BEFORE, FROZEN, Call, Sample, figures, schedule
from tests.bench.slo.load_generator import Outcome

EDGES = [0.0, 1.0, 2.0, 3.0, 4.0]


def outcome(status: list[int], latency_ms: list[float]) -> Outcome:
    count = len(status)
    return Outcome(
        status=status,
        latency_ms=latency_ms,
        first_byte_ms=[-1.0] * count,
        sent_late_ms=[0.0] * count,
        queue_ms=[-1.0] * count,
        business=[""] * count,
        reason=[""] * count,
    )


def test_a_schedule_is_the_same_for_a_seed_and_knows_its_phases() -> None:
    calls = schedule(EDGES, seed=1)
    assert calls == schedule(EDGES, seed=1) != schedule(EDGES, seed=2)
    assert all(EDGES[call.phase] <= call.due < EDGES[call.phase + 1] for call in calls)
    assert {call.phase for call in calls} == {0, BEFORE, FROZEN, AFTER}
    new = [call.session for call in calls if call.session.startswith("new")]
    assert len(new) == len(set(new))


def test_figures_are_of_the_phases_and_the_time_back_from_the_thaw_on() -> None:
    calls = [Call(0.5, 0, "a"), Call(1.5, BEFORE, "a"), Call(2.5, FROZEN, "a"), Call(3.5, AFTER, "a")]
    samples = [Sample(10.0, False, 1), Sample(11.0, True, 80), Sample(12.0, True, 60), Sample(12.5, False, 0)]
    found = figures(calls, outcome([200, 200, 200, 503], [99.0, 10.0, 10.5, 30.0]), samples, 11.9, 30.0)
    values = {figure.name: figure.value for figure in found}
    assert values == {
        "failed requests": 1,
        "P99 before": 10.0,
        "P99 while frozen": 10.5,
        "P99 after": 30.0,
        "P99 added": 0.5,
        "writes queued at most": 80,
        "until in use again": pytest.approx(0.6),
    }
    assert [figure.name for figure in found if figure.missed] == ["failed requests"]


def test_a_run_in_which_the_breaker_never_opened_measured_nothing() -> None:
    with pytest.raises(RuntimeError, match="never opened"):
        figures([], outcome([], []), [Sample(1.0, False, 0)], 0.5, 30.0)
