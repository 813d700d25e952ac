"""Whether the classifier says what a trusted client's header says: the intent accuracy.

| name | type | labels | meaning |
|---|---|---|---|
| classifier_agreements_total | counter | result | of requests whose business type a trusted header named and that were looked at: `agreed`, `disagreed`, or `abstained` where the classifier was not sure enough |

Intent accuracy is agreed / (agreed + disagreed). Absent without a classifier. Counts outlive a reload.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class IntentAccuracy(Collector):
    def __init__(self) -> None:
        self.agreed = 0
        self.disagreed = 0
        self.abstained = 0
        self.is_measured = False
        """Whether a configuration has had a classifier to compare with."""

    def compared(self, named: str, said: str | None) -> None:
        """`said` is None where the classifier abstained."""
        if said is None:
            self.abstained += 1
        elif said == named:
            self.agreed += 1
        else:
            self.disagreed += 1

    def collect(self) -> Iterable[Metric]:
        if not self.is_measured:
            return
        family = CounterMetricFamily(
            "headrace_classifier_agreements", "Classifier against trusted headers", labels=("result",)
        )
        for result in ("agreed", "disagreed", "abstained"):
            family.add_metric((result,), getattr(self, result))
        yield family
