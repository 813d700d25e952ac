"""The value of every metric that rules may be about, in virtual time: where it is measured, over which span, and that what is not known is None and never 0."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policies.dialects import EngineReport
from policies.gpu_report import GpuReport
from policies.metric_catalogue import SCOPES, Metric, Scope
from policies.terms import BackendId, Lane, PoolName, Verdict
from routing.backend import BackendPlan, Hold
from routing.decision import Intent, Lease
from routing.router import Router
from routing.rules import Rules
from routing.samples import REPORT_SECONDS

A, B, P, Q = BackendId("a"), BackendId("b"), PoolName("p"), PoolName("q")
PLANS = (BackendPlan(A, P, 4), BackendPlan(B, Q, 4))


class Core:
    def __init__(self, plans: Sequence[BackendPlan] = PLANS, rules: Rules | None = None) -> None:
        self.router = Router(rules or Rules())
        self.router.configure(plans, rules or Rules())
        self.now = 0.0
        self.router.samples.take(0.0)

    def passes(self, seconds: float) -> None:
        """In beats of a second."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self.router.samples.take(self.now)

    def reported(self, id: BackendId = A, **facts: object) -> None:
        self.router.engines.reported(id, EngineReport(**facts), self.now)  # type: ignore[arg-type]

    def gpu(self, at: float, id: BackendId = A, stale_seconds: float = 10.0, **facts: float) -> None:
        self.router.samples.gpu(id, GpuReport(**facts), at, at + stale_seconds)

    def of(self, metric: Metric, scope: Scope = Scope.FLEET, subject: str = "") -> float | None:
        return self.router.samples.value(metric, scope, subject, self.now)

    def a(self, metric: Metric) -> float | None:
        return self.of(metric, Scope.BACKEND, A)

    def p(self, metric: Metric) -> float | None:
        return self.of(metric, Scope.POOL, P)


IDLE = {
    Metric.SATURATION_RATIO: 0.0,
    Metric.OPEN_RATIO: 0.0,
    Metric.STANDING_QUEUE: 0.0,
}
"""What is known of a fleet of which nobody has heard anything."""


@pytest.mark.parametrize("metric", Metric)
def test_of_a_fleet_that_nobody_has_heard_of_nothing_is_known_that_would_have_to_be_told(
    metric: Metric,
) -> None:
    core = Core()
    core.passes(120)
    for scope, subject in ((Scope.BACKEND, A), (Scope.POOL, P), (Scope.FLEET, "")):
        expected = IDLE.get(metric) if scope in SCOPES[metric] else None
        assert core.of(metric, scope, subject) == expected, scope


@pytest.mark.parametrize("scope", [Scope.BACKEND, Scope.POOL])
def test_of_a_subject_that_is_not_there_nothing_is_known(scope: Scope) -> None:
    core = Core()
    assert all(core.of(metric, scope, "gone") is None for metric in Metric)


# --- GPUs ---------------------------------------------------------------------------------------------------------------------


def test_the_last_report_of_the_gpus_counts_until_it_is_stale() -> None:
    core = Core()
    core.gpu(0.0, temperature_celsius=70.0, memory_used_ratio=0.5, utilisation_ratio=0.9)
    core.gpu(5.0, temperature_celsius=90.0, memory_used_ratio=0.6, utilisation_ratio=0.0)
    metrics = (Metric.GPU_TEMPERATURE_CELSIUS, Metric.GPU_MEMORY_USED_RATIO, Metric.GPU_UTILISATION_RATIO)
    core.now = 15.0
    assert [core.a(metric) for metric in metrics] == [90.0, 0.6, 0.0]
    assert core.of(Metric.GPU_TEMPERATURE_CELSIUS, Scope.BACKEND, B) is None
    core.now = 15.1
    assert [core.a(metric) for metric in metrics] == [None, None, None]
    assert core.a(Metric.MEMORY_SWING_RATIO) is None


def test_what_the_last_report_lacks_is_unknown_though_it_was_told_before() -> None:
    core = Core()
    core.gpu(0.0, temperature_celsius=70.0)
    core.gpu(1.0, utilisation_ratio=0.5)
    assert core.a(Metric.GPU_TEMPERATURE_CELSIUS) is None


def test_memory_swings_by_its_change_from_one_sample_to_the_next_either_way() -> None:
    core = Core()
    for at, used, swing in (
        (0.0, 0.5, None),
        (1.0, 0.6, 0.2),
        (2.0, 0.6, 0.0),
        (3.0, 0.3, 0.5),
        (4.0, 0.0, 1.0),
        (5.0, 0.1, None),
    ):
        core.gpu(at, memory_used_ratio=used)
        assert core.a(Metric.MEMORY_SWING_RATIO) == (None if swing is None else pytest.approx(swing)), at


def test_memory_does_not_swing_over_a_gap() -> None:
    core = Core()
    core.gpu(0.0, memory_used_ratio=0.5)
    core.gpu(11.0, memory_used_ratio=0.9)
    core.now = 11.0
    assert core.a(Metric.MEMORY_SWING_RATIO) is None, "what was before was stale"
    core.gpu(12.0, utilisation_ratio=0.5)
    core.gpu(13.0, memory_used_ratio=0.5)
    assert core.a(Metric.MEMORY_SWING_RATIO) is None, "the sample between told nothing of memory"


def test_reports_of_a_backend_that_is_not_configured_are_not_kept() -> None:
    core = Core()
    core.gpu(0.0, BackendId("gone"), temperature_celsius=70.0)
    core.gpu(0.0, temperature_celsius=70.0)
    assert core.router.samples.gpu_of(BackendId("gone")) is None
    core.router.configure(PLANS[1:], Rules())
    assert core.router.samples.gpu_of(A) is None
    core.router.configure(PLANS, Rules())
    assert core.a(Metric.GPU_TEMPERATURE_CELSIUS) is None


# --- engines ------------------------------------------------------------------------------------------------------------------


def test_what_an_engine_says_of_its_load_counts_until_it_is_old() -> None:
    core = Core()
    core.reported(kv_usage=0.95, running=7, waiting=0)
    metrics = (Metric.KV_USAGE_RATIO, Metric.ENGINE_RUNNING, Metric.ENGINE_WAITING)
    core.now = REPORT_SECONDS
    assert [core.a(metric) for metric in metrics] == [0.95, 7.0, 0.0]
    core.now = REPORT_SECONDS + 0.1
    assert [core.a(metric) for metric in metrics] == [None, None, None]


def test_what_an_engine_does_not_say_or_says_no_more_because_it_is_away_is_unknown() -> None:
    core = Core()
    core.reported(running=7, waiting=1)
    assert core.a(Metric.KV_USAGE_RATIO) is None and core.a(Metric.ENGINE_RUNNING) == 7.0
    core.router.engines.probed(A, False, True, core.now)
    assert core.a(Metric.ENGINE_RUNNING) is None


def test_the_cache_hit_ratio_is_of_the_tokens_looked_up_in_the_span_by_backend_pool_and_fleet() -> None:
    core = Core()
    for hits, queries in ((900, 1000), (905, 1010), (930, 1050)):
        core.reported(prefix_hits=hits, prefix_queries=queries)
        core.passes(1)
    core.reported(B, prefix_hits=0, prefix_queries=0)
    core.passes(1)
    assert core.a(Metric.CACHE_HIT_RATIO) == core.p(Metric.CACHE_HIT_RATIO) == 30 / 50, (
        "what was before the first look does not count"
    )
    assert core.of(Metric.CACHE_HIT_RATIO, Scope.BACKEND, B) is None, "a ratio of nothing"
    core.reported(B, prefix_hits=0, prefix_queries=50)
    core.passes(1)
    assert core.of(Metric.CACHE_HIT_RATIO, Scope.BACKEND, B) == 0.0
    assert core.of(Metric.CACHE_HIT_RATIO) == 30 / 100
    core.passes(62)
    assert core.of(Metric.CACHE_HIT_RATIO) is None


def test_an_engine_that_starts_anew_counts_on_from_there() -> None:
    core = Core()
    core.reported(prefix_hits=500, prefix_queries=1000)
    core.passes(1)
    core.reported(prefix_hits=0, prefix_queries=10)
    core.passes(1)
    assert core.a(Metric.CACHE_HIT_RATIO) is None
    core.reported(prefix_hits=9, prefix_queries=20)
    core.passes(1)
    assert core.a(Metric.CACHE_HIT_RATIO) == 0.9


# --- the gateway's own --------------------------------------------------------------------------------------------------------


def test_saturation_is_requests_in_flight_by_slots() -> None:
    core = Core()
    lease = core.router.arrive("", 0.0, Intent(pools=(P,)))
    assert isinstance(lease, Lease)
    assert core.a(Metric.SATURATION_RATIO) == core.p(Metric.SATURATION_RATIO) == 0.25
    assert core.of(Metric.SATURATION_RATIO) == 0.125
    lease.verdict = Verdict.GOOD
    core.router.finish(lease, 1.0)
    assert core.of(Metric.SATURATION_RATIO) == 0.0
    unbounded = Core((BackendPlan(A, P),))
    assert unbounded.of(Metric.SATURATION_RATIO) is None and unbounded.a(Metric.SATURATION_RATIO) is None


def test_open_are_backends_that_get_nothing_new_those_on_standby_apart() -> None:
    core = Core()
    core.router.fleet.hold(core.router.fleet.get(A), Hold.OPERATOR)  # type: ignore[arg-type]
    assert core.p(Metric.OPEN_RATIO) == 1.0 and core.of(Metric.OPEN_RATIO) == 0.5
    core.router.fleet.hold(core.router.fleet.get(B), Hold.STANDBY)  # type: ignore[arg-type]
    assert core.of(Metric.OPEN_RATIO) == 1.0
    assert core.of(Metric.OPEN_RATIO, Scope.POOL, Q) is None, "of nothing"


def test_batches_are_idle_by_the_places_that_stayed_empty() -> None:
    core = Core()
    core.router.counts.gathered(P, 3, 4)
    core.passes(1)
    core.router.counts.gathered(P, 1, 4)
    core.passes(1)
    assert core.p(Metric.BATCH_IDLE_RATIO) == 0.5, "4 of 8, or of the second alone 0.75"
    core.passes(62)
    assert core.p(Metric.BATCH_IDLE_RATIO) is None


def test_the_share_of_abnormal_requests_is_over_the_business_span() -> None:
    core = Core(rules=Rules(primary_seconds=10.0, business_seconds=100.0))
    core.router.endings.ended("p", True, 0, False, 0.0, False)
    core.router.endings.ended("p", False, 0, True, 0.0, False)
    core.passes(1)
    core.router.endings.ended("p", False, 0, True, 0.0, False)
    core.passes(98)
    assert core.of(Metric.ABNORMAL_RATIO) == pytest.approx(1 / 3)
    core.passes(5)
    assert core.of(Metric.ABNORMAL_RATIO) is None


def test_the_share_of_refused_requests_and_late_first_bytes_is_over_ten_seconds() -> None:
    core = Core()
    endings = core.router.endings
    endings.asked[Lane.INTERACTIVE] += 4
    endings.shed[Lane.INTERACTIVE] += 1
    endings.asked[Lane.BATCH] += 4
    endings.shed[Lane.BATCH] += 3
    endings.ended("p", False, 0, True, 1.9, True)
    core.passes(1)
    assert core.of(Metric.SHED_RATIO) == 0.5 and core.of(Metric.INTERACTIVE_SHED_RATIO) == 0.25
    assert core.of(Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET) == 2.0
    core.passes(11)
    assert core.of(Metric.SHED_RATIO) is None and core.of(Metric.INTERACTIVE_SHED_RATIO) is None
    assert core.of(Metric.INTERACTIVE_FIRST_BYTE_OVER_TARGET) is None


def test_the_hot_share_is_of_requests_that_have_a_path_over_the_primary_span() -> None:
    core = Core()
    paths = core.router.placement.paths
    paths.requests += 4
    paths.hot_requests += 1
    core.passes(1)
    assert core.of(Metric.HOT_RATIO) == 0.25
    core.passes(62)
    assert core.of(Metric.HOT_RATIO) is None


def test_a_span_that_stays_the_same_goes_on_over_a_reload_and_one_that_changes_begins_anew() -> None:
    core = Core()
    core.router.endings.ended("p", True, 0, False, 0.0, False)
    core.router.counts.gathered(P, 3, 4)
    core.passes(1)
    core.router.configure(PLANS, Rules())
    assert core.of(Metric.ABNORMAL_RATIO) == 1.0 and core.p(Metric.BATCH_IDLE_RATIO) == 0.25
    core.router.configure(PLANS, Rules(primary_seconds=30.0))
    assert core.of(Metric.ABNORMAL_RATIO) == 1.0 and core.p(Metric.BATCH_IDLE_RATIO) is None
    core.router.configure(PLANS, Rules(primary_seconds=30.0, business_seconds=30.0))
    assert core.of(Metric.ABNORMAL_RATIO) is None


def test_another_span_begins_anew_and_a_gpu_that_was_seen_keeps_its_last_report() -> None:
    core = Core()
    core.gpu(0.0, memory_used_ratio=0.5)
    core.gpu(1.0, memory_used_ratio=0.6)
    gpu = core.router.samples.gpu_of(A)
    assert gpu is not None and gpu.swings.largest(1.0) == pytest.approx(0.2)
    core.router.samples.configure(30.0, 300.0)
    assert gpu.swings.seconds == 30.0 and gpu.swings.largest(1.0) is None
    assert gpu.report.memory_used_ratio == 0.6


def test_the_hit_ratio_is_of_the_backends_that_were_looked_at_twice() -> None:
    plans = (BackendPlan(A, P, 4), BackendPlan(BackendId("new"), P, 4))
    core = Core(plans[:1])
    core.reported(prefix_hits=0, prefix_queries=0)
    core.passes(1)
    core.router.configure(plans, Rules())
    core.reported(prefix_hits=50, prefix_queries=100)
    core.reported(BackendId("new"), prefix_hits=0, prefix_queries=1000)
    core.passes(1)
    assert core.router.samples.value(Metric.CACHE_HIT_RATIO, Scope.POOL, P, core.now) == 0.5
