"""Which share of its window a backend keeps that is slower than its like.

Decides: weights at the end of each window of time. A backend is compared by its *pace*, the mean of (seconds to the first byte / seconds as forecast for such a request), with the
median of its pool; so long prompts do not count as slow. Where everybody is slow alike nothing changes.
Formula: pace > `factor` * median in `windows_in_a_row` windows running: weight * `step_down`, and again for each that follows, not below `floor`. Each window that is not slow: weight * `step_up`
up to 1. A window with less than `min_samples` is put together with the next; after `patience_windows` of them with too few it counts as not slow.
Source: relative outlier detection as in Envoy, with weights in place of ejection, since pools of two to sixteen have no use for a standard deviation.
Settings: the fields of `OutlierRules`; `factor` is configured (`breaker.outlier_factor`, 1.1..100, default 2).
Limit: needs `min_backends` with enough samples, so a pool of two is never weighed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class OutlierRules:
    factor: float = 2.0
    window_seconds: float = 10.0
    windows_in_a_row: int = 3
    min_samples: int = 5
    min_backends: int = 3
    step_down: float = 0.5
    step_up: float = 1.25
    floor: float = 0.1
    patience_windows: int = 3


class Standing(NamedTuple):
    """Of one backend. `slow_windows` in a row; `thin_windows` in a row had too few samples."""

    weight: float = 1.0
    slow_windows: int = 0
    thin_windows: int = 0


USUAL = Standing()


def after_window(
    standing: Standing, pace: float | None, median_pace: float | None, rules: OutlierRules
) -> Standing:
    """`pace` None: too few samples; `median_pace` None: too few backends to compare with."""
    weight, slow_windows, thin_windows = standing
    if pace is None and thin_windows < rules.patience_windows:
        return Standing(weight, slow_windows, thin_windows + 1)
    if pace is not None and median_pace is not None and pace > rules.factor * median_pace:
        slow_windows += 1
        if slow_windows >= rules.windows_in_a_row:
            weight = max(rules.floor, weight * rules.step_down)
        return Standing(weight, slow_windows)
    return Standing(min(1.0, weight * rules.step_up), 0, thin_windows if pace is None else 0)


def pool_pace(paces: Sequence[float], rules: OutlierRules) -> float | None:
    """The median of those with enough samples."""
    return _median(paces) if len(paces) >= rules.min_backends else None


def others_pace(paces: Sequence[float]) -> float | None:
    """What slow calls are held to: the median of the other backends' paces; None where there are none."""
    return _median(paces) if paces else None


def _median(values: Sequence[float]) -> float:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
