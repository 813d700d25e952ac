"""Urgency is said to each engine with its own sign, and only where it does something."""

from __future__ import annotations

import pytest

from policies.dialects import LOAD_NAMES, Dialect, EngineFlags, EngineReport, amended, engine_priority
from policies.terms import Lane

LANES = list(Lane)
VLLM, SGLANG, UNKNOWN = Dialect.VLLM, Dialect.SGLANG, Dialect.UNKNOWN
ON = EngineFlags(priority_scheduling=True)
OFF = EngineFlags(priority_scheduling=False)
TURNED = EngineFlags(priority_scheduling=True, lower_is_urgent=True)
PREEMPTION_THRESHOLD = 10
HIGHEST_LABEL = 31


@pytest.mark.parametrize(
    ("dialect", "flags", "said"),
    [
        (VLLM, EngineFlags(), [0, 1, 2, 3]),
        (VLLM, ON, [0, 1, 2, 3]),
        (VLLM, OFF, [None] * 4),
        (SGLANG, ON, [3, 2, 1, 0]),
        (SGLANG, TURNED, [0, 1, 2, 3]),
        (SGLANG, EngineFlags(), [None] * 4),
        (SGLANG, OFF, [None] * 4),
        (SGLANG, TURNED._replace(priority_scheduling=None), [None] * 4),
        (UNKNOWN, ON, [None] * 4),
    ],
)
def test_an_engine_is_told_urgency_in_its_own_sign_or_not_at_all(
    dialect: Dialect, flags: EngineFlags, said: list[int | None]
) -> None:
    assert [engine_priority(lane, dialect, flags) for lane in LANES] == said


@pytest.mark.parametrize("flags", [ON, TURNED])
def test_no_lane_is_so_far_above_another_that_sglang_would_push_out_running_work(flags: EngineFlags) -> None:
    levels = [engine_priority(lane, SGLANG, flags) for lane in LANES]
    known = [level for level in levels if level is not None]
    assert len(set(known)) == len(LANES)
    assert max(known) - min(known) <= PREEMPTION_THRESHOLD
    assert all(0 <= level <= HIGHEST_LABEL for level in known)


def test_each_engine_has_names_for_what_a_report_needs_and_a_report_tells_nothing_by_itself() -> None:
    assert set(LOAD_NAMES) == {VLLM, SGLANG}
    for names in LOAD_NAMES.values():
        assert (
            names.running and names.waiting and names.kv_usage and names.prefix_hits and names.prefix_queries
        )
        assert names.token_capacity or names.capacity_labels
    assert set(EngineReport()) == {None}


def test_what_is_told_later_is_added_to_what_was_told_before() -> None:
    told = EngineReport(waiting=3, kv_usage=0.5)
    assert amended(None, told) is told
    assert amended(told, EngineReport(waiting=0, running=2)) == EngineReport(
        waiting=0, running=2, kv_usage=0.5
    )
