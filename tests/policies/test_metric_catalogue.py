"""Within which bounds a threshold of each metric makes sense."""

from __future__ import annotations

from math import inf

import pytest

from policies.metric_catalogue import SCOPES, Metric, largest


@pytest.mark.parametrize(
    ("metric", "most"),
    [
        (Metric.GPU_TEMPERATURE_CELSIUS, 200.0),
        (Metric.MEMORY_SWING_RATIO, inf),
        (Metric.SATURATION_RATIO, inf),
        (Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET, inf),
        (Metric.ENGINE_RUNNING, inf),
        (Metric.ENGINE_WAITING, inf),
        (Metric.KV_USAGE_RATIO, 1.0),
        (Metric.SHED_RATIO, 1.0),
        (Metric.STANDING_QUEUE, 1.0),
    ],
)
def test_a_share_is_never_above_one_a_count_and_an_overshoot_have_no_bound(
    metric: Metric, most: float
) -> None:
    assert largest(metric) == most


def test_every_metric_is_measured_somewhere() -> None:
    assert set(SCOPES) == set(Metric)
    assert all(SCOPES.values())
