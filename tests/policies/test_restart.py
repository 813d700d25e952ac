"""A restart of an engine is seen in what it says of itself, and in nothing that it does not say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.dialects import NOTHING_TOLD, EngineReport, amended, sizes_of
from policies.restart import JITTER_SECONDS, has_restarted, tells_life, would_tell

COUNTERS = ("prefix_hits", "prefix_queries", "prefilled_tokens")
START = 1796166190.0
COUNTS = st.none() | st.integers(0, 10**12)
REPORTS = st.builds(
    EngineReport,
    waiting=COUNTS,
    running=COUNTS,
    kv_usage=st.none() | st.floats(0, 1),
    max_num_seqs=COUNTS,
    token_capacity=COUNTS,
    prefix_hits=COUNTS,
    prefix_queries=COUNTS,
    waiting_tokens=COUNTS,
    started_at=st.none() | st.floats(0, 2e9),
    prefilled_tokens=COUNTS,
)


@pytest.mark.parametrize(
    ("later_seconds", "restarted"),
    [
        (0.0, False),
        (JITTER_SECONDS, False),
        (-JITTER_SECONDS, False),
        (JITTER_SECONDS + 0.01, True),
        (-3600.0, True),
    ],
)
def test_another_start_time_is_a_restart_and_a_little_jitter_none(
    later_seconds: float, restarted: bool
) -> None:
    before, after = EngineReport(started_at=START), EngineReport(started_at=START + later_seconds)
    assert has_restarted(before, after) is restarted


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_counter_that_fell_is_a_restart_also_where_the_start_time_is_the_same(counter: str) -> None:
    def report(count: int) -> EngineReport:
        return EngineReport(started_at=START)._replace(**{counter: count})

    assert has_restarted(report(5), report(4))
    assert not has_restarted(report(5), report(5))
    assert not has_restarted(report(5), report(6))


@given(REPORTS, REPORTS)
def test_load_that_comes_and_goes_is_no_restart(before: EngineReport, after: EngineReport) -> None:
    life = {name: getattr(before, name) for name in (*COUNTERS, "started_at")}
    assert not has_restarted(before, after._replace(**life))


@given(REPORTS, REPORTS)
def test_there_is_no_restart_where_nothing_would_have_told_one(
    before: EngineReport, after: EngineReport
) -> None:
    assert would_tell(before, after) or not has_restarted(before, after)
    assert not has_restarted(None, after) and not would_tell(None, after)
    for unknown in (NOTHING_TOLD, EngineReport(waiting=1, token_capacity=9)):
        assert not has_restarted(before, unknown) and not has_restarted(unknown, after)


@given(REPORTS, st.lists(REPORTS, max_size=5))
def test_reports_of_one_life_put_together_show_no_restart(
    first: EngineReport, others: list[EngineReport]
) -> None:
    known, life = first, {name: getattr(first, name) for name in COUNTERS}
    for report in others:
        # A part of it is told, and no counter falls.
        told = {
            name: value if (count := getattr(report, name)) is None or value is None else value + count
            for name, value in life.items()
        }
        life = told
        after = report._replace(started_at=first.started_at, **told)
        assert not has_restarted(known, after)
        known = amended(known, after)
    again = known._replace(started_at=None, prefix_hits=0, prefix_queries=0, prefilled_tokens=0)
    assert has_restarted(known, again) == any(life.values())


def test_a_start_time_that_only_one_of_two_reports_tells_would_show_nothing() -> None:
    told = EngineReport(started_at=START)
    assert would_tell(told, told)
    assert not would_tell(told, NOTHING_TOLD) and not would_tell(NOTHING_TOLD, told)


@given(REPORTS)
def test_a_report_tells_of_a_life_by_start_time_or_counters_alone(report: EngineReport) -> None:
    told = [getattr(report, name) for name in (*COUNTERS, "started_at")]
    assert tells_life(report) == any(value is not None for value in told)


def test_the_start_time_does_not_age_with_a_report_and_the_counters_do() -> None:
    report = EngineReport(1, 2, 0.5, 8, 100, 3, 4, 5, START, 6)
    assert sizes_of(report) == EngineReport(max_num_seqs=8, token_capacity=100, started_at=START)
    assert not has_restarted(report, sizes_of(report))
