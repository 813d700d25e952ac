"""Lanes are clamped by the ceiling; deadlines of strangers only tighten."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.lanes import RANK, lane_of, target_seconds
from policies.terms import Lane

LANES = st.sampled_from(Lane)
MAYBE = st.none() | LANES
MS = st.none() | st.floats(0.001, 1e8)
SECONDS = st.floats(0.001, 1e6) | st.just(inf)


@given(MAYBE, MAYBE, MAYBE, LANES)
def test_no_request_is_above_its_ceiling_whatever_it_asks_for(
    asked: Lane | None, business: Lane | None, default: Lane | None, ceiling: Lane
) -> None:
    assert RANK[lane_of(asked, business, default, ceiling)] >= RANK[ceiling]


@given(LANES, MAYBE, MAYBE, LANES)
def test_what_is_asked_for_below_the_ceiling_is_given(
    asked: Lane, business: Lane | None, default: Lane | None, ceiling: Lane
) -> None:
    lane = lane_of(asked, business, default, ceiling)
    assert lane is (asked if RANK[asked] >= RANK[ceiling] else ceiling)


@pytest.mark.parametrize(
    ("business", "default", "lane"),
    [
        (None, None, Lane.STANDARD),
        (None, Lane.BATCH, Lane.BATCH),
        (Lane.INTERACTIVE, Lane.BATCH, Lane.INTERACTIVE),
        (Lane.BATCH, None, Lane.BATCH),
    ],
)
def test_without_a_hint_the_business_type_speaks_then_the_tenant(
    business: Lane | None, default: Lane | None, lane: Lane
) -> None:
    assert lane_of(None, business, default, Lane.EMERGENCY) is lane


def test_the_standard_lane_of_a_tenant_that_may_only_use_batch_is_batch() -> None:
    assert lane_of(None, None, None, Lane.BATCH) is Lane.BATCH


@given(MS, SECONDS)
def test_a_stranger_can_only_tighten_its_target(asked_ms: float | None, business: float) -> None:
    target = target_seconds(asked_ms, business)
    assert 0 < target <= business
    assert target in (business, (asked_ms or 0) / 1000)


@given(MS, SECONDS)
def test_a_trusted_client_names_its_own_target(asked_ms: float | None, business: float) -> None:
    target = target_seconds(asked_ms, business, trust_headers=True)
    assert target == (business if asked_ms is None else asked_ms / 1000)


def test_without_anything_there_is_no_deadline() -> None:
    assert target_seconds(None) == inf
