"""The three levels of monitoring by their formulas, in virtual time: fresh numbers count, leave their span in time, and what is not known is absent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.core_rules import backend_plans, core_rules, pool_plans
from gateway.intent_accuracy import IntentAccuracy
from gateway.monitoring_metrics import Monitoring
from gateway.monitoring_settings import MonitoringSettings
from gateway.record import Outcome
from gateway.sessions.store import Append, Appended, Result, Turn, session_key
from gateway.sessions.turn_metrics import TurnMetrics
from gateway.settings import BackendSettings, PoolSettings, Settings
from gateway.usage import Usage
from policies.dialects import EngineReport
from policies.gpu_report import GpuReport
from policies.terms import BackendId, Lane, LengthClass, PoolName, Refusal, Tag, Verdict
from routing.decision import Intent, Lease
from tests.gateway.core_stage import ends_well, leased, router_of
from tests.gateway.metrics_stage import Stage, served

MINUTE, FIVE_MINUTES, HOUR = 60, 300, 3600
LEVELS = {
    MINUTE: {"cache_hit_ratio", "batching_efficiency_ratio", "batch_idle_ratio", "memory_swing_ratio"},
    FIVE_MINUTES: {"intent_accuracy_ratio", "dialogue_turns_mean", "abnormal_ratio"},
    HOUR: {
        "gpu_seconds_per_request", "useful_throughput_ratio", "cost_per_1000_tokens", "breaker_loss_requests", "breaker_loss_tokens",
    },
}  # fmt: skip
COUNTS = {"breaker_loss_requests", "breaker_loss_tokens"}
"""Which are 0 where nothing happened; of a ratio of nothing nothing is known."""


def pool(name: str, *backends: BackendSettings) -> PoolSettings:
    return PoolSettings(name=name, backends=backends)


def backend(name: str, **fields: Any) -> BackendSettings:
    return BackendSettings(url=f"http://{name}", name=name, **fields)


ONE = Settings(pools=(pool("p", backend("a")),))


class Watch:
    """A gateway's core and what is said of it, as the heartbeat sees it every second."""

    def __init__(self, settings: Settings = ONE) -> None:
        self.now = 0.0
        self.router = router_of(settings)
        self.accuracy = IntentAccuracy()
        self.turns = TurnMetrics(CollectorRegistry(), lambda: self.now)
        self.monitoring = Monitoring(self.router, self.accuracy, self.turns, lambda: self.now)
        self.monitoring.configure(settings)
        self.router.samples.take(0.0)

    def beat(self) -> None:
        self.router.samples.take(self.now)
        self.monitoring.beat(self.now)

    def passes(self, seconds: float, beat_seconds: float = 1.0) -> None:
        for _ in range(round(seconds / beat_seconds)):
            self.now += beat_seconds
            self.beat()

    def reconfigure(self, settings: Settings) -> None:
        self.router.configure(backend_plans(settings), core_rules(settings), pool_plans(settings))
        self.monitoring.configure(settings)

    def known(self) -> dict[str, float]:
        """All values by name and labels, such as `abnormal_ratio` or `cache_hit_ratio p`."""
        return {
            " ".join([sample.name.removeprefix("headrace_"), *sample.labels.values()]): sample.value
            for family in self.monitoring.collect()
            for sample in family.samples
        }

    def names(self) -> set[str]:
        return {name.split(" ")[0] for name in self.known()} - COUNTS

    # --- what happens -----------------------------------------------------------------------------------------------------------

    def gpu_memory(self, used: float, at: float | None = None) -> None:
        at = self.now if at is None else at
        self.router.samples.gpu(BackendId("a"), GpuReport(memory_used_ratio=used), at, at + 10.0)

    def cache(self, hits: int, queries: int) -> None:
        report = EngineReport(prefix_hits=hits, prefix_queries=queries)
        self.router.engines.reported(BackendId("a"), report, self.now)

    def ended(self, pool: str = "p", tokens: int = 0, good: bool = True, abnormal: bool = False) -> None:
        self.router.endings.ended(pool, abnormal, tokens, good, 0.0, False)

    def turn(self, turns: int) -> None:
        append = Append(session_key("t", "s"), Turn("1", b"{}", 5), 60.0)
        self.turns.appended(append, Appended(Result.APPENDED, 1, turns))

    def everything(self) -> None:
        """One event of each kind."""
        self.cache(0, 0)
        self.gpu_memory(0.5)
        self.passes(1)
        self.cache(60, 100)
        self.gpu_memory(0.6)
        self.router.counts.gathered(PoolName("p"), 3, 4)
        self.accuracy.compared("x", "x")
        self.turn(5)
        lease = leased(self.router, self.now)
        self.passes(1)
        ends_well(self.router, lease, self.now)
        self.ended(tokens=1000)
        self.router.circuits.lost_requests += 2
        self.router.circuits.lost_tokens += 30.5
        self.passes(1)


PRICED = Settings(pools=(pool("p", backend("a", price_per_hour=36.0, gpus=8)),))


def test_where_nothing_is_known_nothing_is_told_and_never_zero() -> None:
    watch = Watch(PRICED)
    assert watch.known() == {}
    watch.passes(2 * HOUR, 60.0)
    assert watch.known() == {"breaker_loss_requests": 0.0, "breaker_loss_tokens": 0.0}


def test_each_formula() -> None:
    watch = Watch(PRICED)
    watch.everything()
    assert watch.known() == {
        "cache_hit_ratio p": 0.6,
        "batching_efficiency_ratio p": 0.75,
        "batch_idle_ratio p": 0.25,
        "memory_swing_ratio a p": pytest.approx(0.2),
        "intent_accuracy_ratio": 1.0,
        "dialogue_turns_mean": 5.0,
        "abnormal_ratio": 0.0,
        "gpu_seconds_per_request p": 8.0,
        "useful_throughput_ratio": 1.0,
        "breaker_loss_requests": 2.0,
        "breaker_loss_tokens": 30.5,
        # 3 s at 36 an hour are 0.03, for 1,000 tokens.
        "cost_per_1000_tokens p": pytest.approx(0.03),
    }


@pytest.mark.parametrize("span", LEVELS)
def test_numbers_stay_for_the_span_of_their_level_and_leave_it_in_time(span: int) -> None:
    watch = Watch(PRICED)
    watch.everything()
    names = LEVELS[span] - COUNTS
    assert names <= watch.names()
    watch.passes(span - 4)
    assert names <= watch.names(), "the first of it happened a second after the beginning"
    watch.passes(span / 60 + 5)
    assert not names & watch.names()
    if span == HOUR:
        assert {name: watch.known()[name] for name in COUNTS} == dict.fromkeys(COUNTS, 0.0)


@pytest.mark.parametrize(
    ("field", "span"),
    [("primary_seconds", MINUTE), ("business_seconds", FIVE_MINUTES), ("cost_seconds", HOUR)],
)
def test_each_span_is_a_setting_of_its_own(field: str, span: int) -> None:
    watch = Watch(replace(PRICED, monitoring=MonitoringSettings(**{field: 10.0})))
    watch.everything()
    everything = set().union(*LEVELS.values()) - COUNTS
    assert watch.names() == everything
    watch.passes(12)
    assert everything - watch.names() == LEVELS[span] - COUNTS


def test_a_span_that_is_changed_by_a_reload_begins_anew_and_the_others_go_on() -> None:
    watch = Watch(PRICED)
    watch.everything()
    before = watch.names()
    watch.reconfigure(PRICED)
    assert watch.names() == before
    watch.reconfigure(replace(PRICED, monitoring=MonitoringSettings(business_seconds=100.0)))
    watch.passes(1)
    assert before - watch.names() == LEVELS[FIVE_MINUTES]
    shorter = MonitoringSettings(business_seconds=100.0, primary_seconds=30.0)
    watch.reconfigure(replace(PRICED, monitoring=shorter))
    watch.passes(1)
    assert before - watch.names() == LEVELS[FIVE_MINUTES] | LEVELS[MINUTE]


# --- primary ------------------------------------------------------------------------------------------------------------------


def test_memory_swings_by_the_largest_change_of_the_span() -> None:
    watch = Watch()
    for used in (0.5, 0.4, 0.44, 0.44):
        watch.gpu_memory(used)
        watch.passes(1)
    assert watch.known()["memory_swing_ratio a p"] == pytest.approx(0.2)
    watch.passes(56)
    assert watch.known()["memory_swing_ratio a p"] == pytest.approx(0.2)
    watch.passes(2)
    assert watch.known()["memory_swing_ratio a p"] == pytest.approx(0.1)


def test_a_backend_whose_gpus_are_not_read_does_not_swing() -> None:
    watch = Watch()
    watch.gpu_memory(0.5)
    watch.passes(5)
    assert "memory_swing_ratio" not in watch.names(), "one sample is no change"


# --- business -----------------------------------------------------------------------------------------------------------------


def test_intent_accuracy_is_of_those_the_classifier_was_sure_of() -> None:
    watch = Watch()
    for said in ("x", "x", "x", "y", None, None):
        watch.accuracy.compared("x", said)
    watch.passes(1)
    assert watch.known()["intent_accuracy_ratio"] == 0.75


def test_a_classifier_that_always_abstains_has_no_accuracy() -> None:
    watch = Watch()
    watch.accuracy.compared("x", None)
    watch.passes(1)
    assert "intent_accuracy_ratio" not in watch.names()


def test_dialogues_are_as_long_as_their_windows_are_on_average() -> None:
    watch = Watch()
    for turns in (1, 2, 3, 10):
        watch.turn(turns)
    watch.passes(1)
    assert watch.known()["dialogue_turns_mean"] == 4.0


async def test_abnormal_are_faults_cut_answers_and_refusals_for_want_of_capacity_and_nothing_else() -> None:
    def share(**record: Any) -> int:
        stage = Stage()
        stage.telemetry.ended(served(**record))
        stage.telemetry.count()
        assert stage.router.endings.requests == 1
        return stage.router.endings.abnormal

    assert share(status=200) == share(status=404) == 0
    assert share(status=0, outcome=Outcome.ABORTED) == 0, "the client left"
    assert share(status=429, outcome=Outcome.REFUSED, reason=Refusal.RATE_LIMITED) == 0
    assert share(status=500) == share(status=503, outcome=Outcome.REFUSED, reason=Refusal.QUEUE_FULL) == 1
    assert share(status=429, outcome=Outcome.REFUSED, reason=Refusal.OVER_SHARE) == 1
    assert share(status=200, outcome=Outcome.CUT) == 1


# --- cost ---------------------------------------------------------------------------------------------------------------------


def test_gpu_seconds_are_those_of_busy_backends_by_answers_that_ended_well() -> None:
    settings = Settings(
        pools=(pool("p", backend("a", gpus=4), backend("b", gpus=2)), pool("q", backend("c")))
    )
    watch = Watch(settings)
    names = {name: watch.router.fleet.get(BackendId(name)) for name in "abc"}
    leases: list[Lease] = []
    while {lease.backend.id for lease in leases} < {"a", "b"}:
        leases.append(leased(watch.router, watch.now))
    watch.passes(10)
    for lease in leases:
        ends_well(watch.router, lease, watch.now)
    assert not any(known is not None and known.in_flight for known in names.values())
    watch.passes(10)
    for good in (True, True, True, False):
        watch.ended(good=good)
    watch.passes(1)
    busy = 10 * (4 + 2)
    assert watch.known()["gpu_seconds_per_request p"] == pytest.approx(busy / 3)
    assert "gpu_seconds_per_request q" not in watch.known()


@pytest.mark.parametrize("gpus", [1, 8])
def test_gpus_are_counted_as_they_are_configured(gpus: int) -> None:
    watch = Watch(Settings(pools=(pool("p", backend("a", gpus=gpus)),)))
    lease = leased(watch.router)
    watch.passes(5)
    ends_well(watch.router, lease, watch.now)
    watch.ended()
    watch.passes(1)
    assert watch.known()["gpu_seconds_per_request p"] == 5.0 * gpus


async def test_useful_are_the_tokens_of_answers_that_ended_well_and_in_time() -> None:
    def tokens(first_byte_after: float = 0.3, target: float | None = None, **record: Any) -> tuple[int, int]:
        stage = Stage()
        tag = Tag(lane=Lane.INTERACTIVE, length=LengthClass.SHORT)
        if target is not None:
            tag = tag._replace(target_seconds=target)
        usage = Usage(30, 12, 0)
        stage.telemetry.ended(served(tag=tag, usage=usage, first_byte_at=100.0 + first_byte_after, **record))
        stage.telemetry.count()
        return stage.router.endings.useful_tokens, stage.router.endings.tokens

    assert tokens() == tokens(target=0.5) == (42, 42)
    assert tokens(target=0.2) == (0, 42), "too late"
    assert tokens(outcome=Outcome.CUT) == tokens(outcome=Outcome.ABORTED) == tokens(status=500) == (0, 42)


def test_useful_throughput_is_of_all_tokens() -> None:
    watch = Watch()
    watch.ended(tokens=300)
    watch.ended(tokens=100, good=False)
    watch.passes(1)
    assert watch.known()["useful_throughput_ratio"] == 0.75


def test_what_tokens_cost_is_what_the_backends_of_their_pool_cost_meanwhile() -> None:
    settings = Settings(
        pools=(
            pool("p", backend("a", price_per_hour=20.0), backend("b", price_per_hour=16.0)),
            pool("q", backend("c", price_per_hour=0.0)),
            pool("r", backend("d", price_per_hour=5.0), backend("e")),
        )
    )
    watch = Watch(settings)
    watch.passes(99)
    for name in "pqr":
        watch.ended(name, tokens=4_000)
    watch.passes(1)
    assert {name: value for name, value in watch.known().items() if "cost" in name} == {
        "cost_per_1000_tokens p": pytest.approx(36.0 * 100 / 3600 / 4),
        "cost_per_1000_tokens q": 0.0,
    }


def test_a_price_counts_from_when_it_is_configured() -> None:
    def at(price: float | None) -> Settings:
        return Settings(pools=(pool("p", backend("a", price_per_hour=price)),))

    watch = Watch(at(36.0))
    watch.passes(100)
    watch.reconfigure(at(72.0))
    watch.passes(99)
    watch.ended(tokens=1_000)
    watch.passes(1)
    assert watch.known()["cost_per_1000_tokens p"] == pytest.approx(1.0 + 2.0)
    watch.reconfigure(at(None))
    watch.passes(1)
    assert "cost_per_1000_tokens" not in watch.names()
    watch.reconfigure(at(36.0))
    watch.passes(99)
    watch.ended(tokens=1_000)
    watch.passes(1)
    assert watch.known()["cost_per_1000_tokens p"] == pytest.approx(1.0), (
        "nothing of the time without a price"
    )


def test_breaker_losses_are_what_was_refused_while_a_circuit_was_open() -> None:
    watch = Watch()
    lost = Tag(prompt_tokens=100.0, output_tokens=20.0)
    watch.router.circuits.refused("m", lost)
    watch.passes(1)
    assert watch.known()["breaker_loss_requests"] == 0.0, "refused, but not for a circuit"
    for number in range(40):
        lease = leased(watch.router, watch.now, Intent(tenant=f"t{number}"))
        lease.verdict = Verdict.FAULT
        watch.router.finish(lease, watch.now)
        if not all(circuit.is_closed for circuit in watch.router.circuits):
            break
    watch.router.circuits.refused("m", lost)
    watch.passes(1)
    assert watch.known()["breaker_loss_requests"] == 1.0
    assert watch.known()["breaker_loss_tokens"] == 120.0


def test_what_left_the_configuration_is_not_told_any_more() -> None:
    watch = Watch(PRICED)
    watch.everything()
    watch.reconfigure(Settings(pools=(pool("other", backend("b")),)))
    watch.passes(1)
    assert not [name for name in watch.known() if " " in name]
