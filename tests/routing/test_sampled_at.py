"""When a sample was taken: what tells one sample from the next, though both have the same value."""

from __future__ import annotations

import pytest

from policies.dialects import EngineReport
from policies.gpu_report import GpuReport
from policies.metric_catalogue import SCOPES, Metric, Scope
from tests.routing.rule_stage import Stage, pool

BY_GPU = {
    Metric.GPU_TEMPERATURE_CELSIUS,
    Metric.GPU_MEMORY_USED_RATIO,
    Metric.GPU_UTILISATION_RATIO,
    Metric.MEMORY_SWING_RATIO,
}
BY_ENGINE = {Metric.KV_USAGE_RATIO, Metric.ENGINE_RUNNING, Metric.ENGINE_WAITING}


@pytest.mark.parametrize("metric", list(Metric))
def test_a_sample_is_as_old_as_what_told_it(metric: Metric) -> None:
    stage = Stage(pool("p"))
    samples, backend = stage.router.samples, stage.backend("p0")
    nothing = EngineReport(*[None] * len(EngineReport._fields))
    samples.take(30.0)
    samples.gpu(backend.id, GpuReport(50.0, 0.5, 0.5), 10.0, 99.0)
    stage.router.fleet.reported(backend, nothing._replace(kv_usage=0.5, running=1, waiting=0), 20.0)
    for scope in SCOPES[metric]:
        subject = {Scope.BACKEND: "p0", Scope.POOL: "p", Scope.FLEET: ""}[scope]
        expected = 10.0 if metric in BY_GPU else 20.0 if metric in BY_ENGINE else 30.0
        assert samples.sampled_at(metric, scope, subject) == expected
    if Scope.BACKEND in SCOPES[metric] and metric in BY_GPU | BY_ENGINE:
        assert samples.sampled_at(metric, Scope.BACKEND, "who") < 31.0
