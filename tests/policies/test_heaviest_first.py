"""Who loses how much of what is refused."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.heaviest_first import cut_level, lost_share

FLOWS = st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0.01, 100)), min_size=1, max_size=30)


@given(FLOWS, st.floats(0.001, 0.95))
def test_exactly_the_share_is_lost(flows: list[tuple[float, float]], share: float) -> None:
    level = cut_level(flows, share)
    lost = sum(demand * lost_share(demand, weight, level) for demand, weight in flows)
    assert lost == pytest.approx(share * sum(demand for demand, _ in flows), rel=1e-6)


@given(FLOWS, st.floats(0.001, 0.95))
def test_what_is_left_of_a_flow_is_all_or_no_less_per_weight_than_of_any_other(
    flows: list[tuple[float, float]], share: float
) -> None:
    level = cut_level(flows, share)
    left = [(demand * (1 - lost_share(demand, weight, level)), demand, weight) for demand, weight in flows]
    most = max(kept / weight for kept, _, weight in left)
    for kept, demand, weight in left:
        assert kept == pytest.approx(demand) or kept / weight == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize(
    ("flows", "share", "left"),
    [
        ([(80.0, 1.0), (20.0, 1.0)], 0.5, (30.0, 20.0)),
        ([(60.0, 1.0), (40.0, 1.0)], 0.5, (25.0, 25.0)),
        ([(60.0, 3.0), (40.0, 1.0)], 0.2, (60.0, 20.0)),
        ([(50.0, 1.0)], 0.4, (30.0,)),
    ],
)
def test_the_heaviest_per_weight_loses_first(
    flows: list[tuple[float, float]], share: float, left: tuple[float, ...]
) -> None:
    level = cut_level(flows, share)
    assert [demand * (1 - lost_share(demand, weight, level)) for demand, weight in flows] == pytest.approx(
        left
    )


def test_nothing_is_lost_where_nothing_is_to_be() -> None:
    assert cut_level([], 0.5) == cut_level([(5.0, 1.0)], 0.0) == inf
    assert lost_share(5.0, 1.0, inf) == 0.0
    assert lost_share(0.0, 1.0, 0.0) == 0.0
