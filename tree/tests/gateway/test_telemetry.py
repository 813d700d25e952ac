"""The metrics page: true numbers, valid text, and labels that no client can add to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from gateway.events import Usage
from gateway.front import Cause
from gateway.paths import Kind
from gateway.record import Outcome, Record
from gateway.series import Latency
from gateway.settings import BackendSettings, TimeoutSettings, UpstreamSettings
from gateway.telemetry import Telemetry
from gateway.upstream.client import Upstream
from policies.terms import BackendId, Lane, PoolName, Refusal, Tag
from routing.decision import Lease, Ticket
from routing.fleet import BackendPlan
from routing.router import Router, Rules

Labels = frozenset[tuple[str, str]]


class Stage:
    """A telemetry with two real backends, one of them with a window of one."""

    def __init__(self) -> None:
        rules = Rules()
        self.router = Router(rules)
        self.router.configure(
            [BackendPlan(BackendId("a"), PoolName("p"), 1), BackendPlan(BackendId("b"), PoolName("q"))], rules
        )
        self.upstream = Upstream()
        backends = [
            (BackendId(id), BackendSettings(url=f"http://127.0.0.1:{port}"))
            for id, port in (("a", 1), ("b", 2))
        ]
        self.upstream.configure(backends, UpstreamSettings(), TimeoutSettings())
        self.in_flight = 0
        self.telemetry = Telemetry(lambda: (self.router, self.upstream, self.in_flight))

    def families(self) -> list[Metric]:
        return list(text_string_to_metric_families(self.telemetry.page().decode()))

    def samples(self) -> dict[tuple[str, Labels], float]:
        """Every sample of the page; a series that occurs twice fails the test."""
        found: dict[tuple[str, Labels], float] = {}
        for family in self.families():
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in found, f"twice: {key}"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float:
        """Of one series, 0 where there is none."""
        return self.samples().get((f"headrace_{name}", frozenset(labels.items())), 0.0)


def served(backend: str = "a", pool: str = "p", status: int = 200, **more: Any) -> Record:
    record = Record("POST", "/v1/chat/completions", 100.0)
    record.route, record.backend, record.pool, record.status = Kind.CHAT, backend, pool, status
    record.ready_at, record.sent_at, record.first_byte_at, record.ended_at = 100.0, 100.002, 100.3, 102.0
    for name, value in more.items():
        setattr(record, name, value)
    return record


async def test_the_page_is_valid_and_every_name_is_our_own_or_the_process() -> None:
    stage = Stage()
    stage.telemetry.ended(served())
    stage.telemetry.retried("a")
    stage.telemetry.reloaded(ok=True)
    families = stage.families()
    assert all(family.name.startswith(("headrace_", "process_")) for family in families)
    assert [name for name, count in Counter(family.name for family in families).items() if count > 1] == []
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert not [key for key in stage.samples() if key[0].endswith("_created")]


async def test_an_ended_request_counts_once_where_it_ran() -> None:
    stage = Stage()
    tag = Tag(business="wealth", lane=Lane.INTERACTIVE)
    for status, label in (
        (200, "2xx"),
        (204, "2xx"),
        (302, "3xx"),
        (404, "4xx"),
        (503, "5xx"),
        (0, "none"),
        (799, "5xx"),
    ):
        place = {
            "business": "wealth",
            "lane": "interactive",
            "pool": "p",
            "backend": "a",
            "route": "chat",
            "status": label,
        }
        before = stage.value("requests_total", **place)
        stage.telemetry.ended(served(status=status, tag=tag))
        assert stage.value("requests_total", **place) == before + 1


async def test_a_request_that_reached_no_backend_has_no_latency_and_no_pool() -> None:
    stage = Stage()
    stage.telemetry.ended(
        served("", "", 503, outcome=Outcome.REFUSED, reason=Refusal.QUEUE_FULL, first_byte_at=0.0)
    )
    assert stage.value("refusals_total", reason="queue_full") == 1
    assert stage.value("overhead_seconds_count") == 0
    assert not [labels for _, labels in stage.samples() if labels == {("pool", "")}]


async def test_tokens_are_those_that_engines_reported() -> None:
    stage = Stage()
    for usage in (Usage(10, 5, 2), None, Usage(1, 0, 0)):
        stage.telemetry.ended(served(usage=usage))
    kinds = {
        kind: stage.value("tokens_total", pool="p", kind=kind) for kind in ("prompt", "completion", "cached")
    }
    assert kinds == {"prompt": 11, "completion": 5, "cached": 2}


@pytest.mark.parametrize(
    ("changes", "name", "labels"),
    [
        ({"outcome": Outcome.ABORTED, "cause": Cause.CLIENT_LEFT}, "aborts_total", {"cause": "client_left"}),
        ({"outcome": Outcome.CUT}, "cut_answers_total", {"backend": "a"}),
        (
            {"outcome": Outcome.CUT, "reason": Refusal.GAP_TIMEOUT},
            "refusals_total",
            {"reason": "gap_timeout"},
        ),
        (
            {"outcome": Outcome.REFUSED, "reason": Refusal.INTERNAL},
            "refusals_total",
            {"reason": "internal_error"},
        ),
    ],
)
async def test_an_ending_that_is_not_well_is_counted_by_its_cause(
    changes: dict[str, Any], name: str, labels: dict[str, str]
) -> None:
    stage = Stage()
    stage.telemetry.ended(served())
    assert stage.value(name, **labels) == 0
    stage.telemetry.ended(served(**changes))
    assert stage.value(name, **labels) == 1


async def test_retries_and_reloads_are_counted() -> None:
    stage = Stage()
    stage.telemetry.retried("b")
    stage.telemetry.reloaded(ok=True)
    stage.telemetry.reloaded(ok=False)
    stage.telemetry.reloaded(ok=False)
    assert stage.value("retries_total", backend="b") == 1
    assert [stage.value("config_reloads_total", result=result) for result in ("ok", "failed")] == [1, 2]


async def test_gauges_show_what_is_now() -> None:
    stage = Stage()
    leases = [stage.router.arrive("", 0.0) for _ in range(3)]
    assert all(isinstance(lease, Lease) for lease in leases)
    stage.in_flight = 4
    [a, b] = stage.router.fleet
    stage.router.unreachable(b, 0.0)
    assert isinstance(stage.router.arrive("", 0.0), Ticket)
    assert stage.value("requests_in_flight") == 4
    assert stage.value("requests_waiting") == 1
    assert stage.value("backend_up", backend="a", pool="p") == 1
    assert stage.value("backend_up", backend="b", pool="q") == 0
    loads = [stage.value("backend_in_flight", backend=one.id, pool=one.pool) for one in (a, b)]
    assert loads == [a.in_flight, b.in_flight] == [1, 2]
    assert stage.value("upstream_connections", backend="a", state="idle") == 0
    assert ("headrace_upstream_connections_opened_total", frozenset({("backend", "b")})) in stage.samples()
    assert stage.value("asyncio_tasks") >= 1


async def test_no_text_of_a_client_adds_a_series() -> None:
    stage = Stage()
    stage.telemetry.ended(served())
    before = stage.samples().keys()
    for number in range(5000):
        record = served()
        record.method, record.path = f"M{number}", f"/v1/{number}"
        record.model, record.request_id = f"model-{number}", f"id-{number}"
        record.status = 200 + number % 100
        record.attempts = number
        stage.telemetry.ended(record)
    assert stage.samples().keys() == before
    assert stage.value("first_byte_seconds_count", pool="p") == 5001


async def test_label_values_with_quotes_and_line_ends_stay_one_line() -> None:
    stage = Stage()
    stage.telemetry.ended(served(backend='b"\n\\', pool='p"\n'))
    assert stage.value("first_byte_seconds_count", pool='p"\n') == 1


async def test_times_go_to_the_histogram_that_is_called_after_them() -> None:
    stage = Stage()
    stage.telemetry.ended(served(queue_seconds=0.0015))
    sums = {
        "first_byte_seconds": (0.3, {"pool": "p"}),
        "request_seconds": (2.0, {"pool": "p"}),
        "queue_seconds": (0.0015, {}),
        "overhead_seconds": (0.0005, {}),
    }
    for name, (seconds, labels) in sums.items():
        assert stage.value(f"{name}_count", **labels) == 1
        assert stage.value(f"{name}_sum", **labels) == pytest.approx(seconds, abs=1e-9)


async def test_an_attempt_that_never_answered_has_no_first_byte() -> None:
    stage = Stage()
    stage.telemetry.ended(served(first_byte_at=0.0, status=504, outcome=Outcome.REFUSED))
    assert stage.value("first_byte_seconds_count", pool="p") == 0
    assert stage.value("request_seconds_count", pool="p") == 1


async def test_a_wait_that_the_coarser_clock_overstates_never_makes_a_sum_fall() -> None:
    stage = Stage()
    stage.telemetry.ended(served(queue_seconds=0.1))
    assert stage.value("overhead_seconds_sum") == 0
    assert stage.value("overhead_seconds_count") == 1


BOUNDS = (0.1, 1.0, 10.0)


def shown(seconds: Iterable[float]) -> dict[str, float]:
    latency = Latency(BOUNDS)
    for value in seconds:
        latency.observe(value)
    family = HistogramMetricFamily("x", "x", labels=("pool",))
    latency.add_to(family, ("p",))
    return {sample.name + sample.labels.get("le", ""): sample.value for sample in family.samples}


@given(st.lists(st.floats(0, 20) | st.sampled_from(BOUNDS), max_size=30))
def test_a_bucket_counts_what_is_no_longer_than_its_bound_and_the_last_counts_all(
    seconds: list[float],
) -> None:
    found = shown(seconds)
    for bound in (*BOUNDS, math.inf):
        name = "x_bucket" + ("+Inf" if bound == math.inf else str(bound))
        assert found[name] == sum(value <= bound for value in seconds)
    assert found["x_count"] == len(seconds)
    assert found["x_sum"] == pytest.approx(math.fsum(seconds))
