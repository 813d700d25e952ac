"""The metrics page: true numbers, valid text, and labels that no client can add to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import HistogramMetricFamily

from gateway.client_cause import Cause
from gateway.record import Outcome
from gateway.series import Latency
from gateway.usage import Usage
from policies.terms import UNTAGGED, Lane, LengthClass, Refusal, Tag
from tests.gateway.metrics_stage import Stage, served


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
    assert stage.value("refusals_total", reason="queue_full", lane="none") == 1
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
            {"reason": "gap_timeout", "lane": "none"},
        ),
        (
            {"outcome": Outcome.REFUSED, "reason": Refusal.INTERNAL},
            "refusals_total",
            {"reason": "internal_error", "lane": "none"},
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
    stage.in_flight = 4
    assert stage.value("requests_in_flight") == 4
    assert stage.value("asyncio_tasks") >= 1


async def test_requests_are_counted_by_the_length_of_their_prompt_and_where_it_ran() -> None:
    stage = Stage()
    for length, backend, status in (
        (LengthClass.SHORT, "a", 200),
        (LengthClass.SHORT, "a", 500),
        (LengthClass.SHORT, "b", 200),
        (LengthClass.LONG, "b", 200),
    ):
        pool = {"a": "p", "b": "q"}[backend]
        stage.telemetry.ended(served(backend, pool, status, tag=Tag(length=length)))
    assert stage.value("requests_by_length_total", length="short", pool="p") == 2
    assert stage.value("requests_by_length_total", length="short", pool="q") == 1
    assert stage.value("requests_by_length_total", length="long", pool="q") == 1
    assert stage.value("requests_by_length_total", length="long", pool="p") == 0


async def test_a_refusal_is_counted_by_the_lane_that_was_refused_where_it_was_known() -> None:
    stage = Stage()
    for tag in (Tag(lane=Lane.BATCH), UNTAGGED):
        stage.telemetry.ended(
            served("", "", 503, tag=tag, outcome=Outcome.REFUSED, reason=Refusal.OVERLOADED)
        )
    stage.telemetry.refused(Refusal.HEAD_TIMEOUT)
    assert stage.value("refusals_total", reason="overloaded", lane="batch") == 1
    assert stage.value("refusals_total", reason="overloaded", lane="none") == 1
    assert stage.value("refusals_total", reason="head_timeout", lane="none") == 1


async def test_waits_are_told_apart_by_lane_and_count_only_those_that_waited() -> None:
    stage = Stage()
    for lane, seconds in ((Lane.BATCH, 3.0), (Lane.BATCH, 5.0), (Lane.INTERACTIVE, 0.0)):
        stage.telemetry.ended(served(tag=Tag(lane=lane), queue_seconds=seconds))
    assert stage.value("queue_seconds_count", lane="batch") == 2
    assert stage.value("queue_seconds_sum", lane="batch") == 8
    assert stage.value("queue_seconds_count", lane="interactive") == 0


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
        "queue_seconds": (0.0015, {"lane": "standard"}),
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
