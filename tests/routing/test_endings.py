"""What became of requests is counted once each, by what rates over time need."""

from __future__ import annotations

from math import inf

import pytest

from policies.terms import Lane, PoolName
from routing.endings import OVER_TARGET_BOUNDS, Endings, upper_quantile


def ended(endings: Endings, **facts: object) -> None:
    usual = {
        "pool": "p",
        "abnormal": False,
        "tokens": 10,
        "good": True,
        "first_byte_over_target": 0.5,
        "interactive": True,
    }
    endings.ended(**{**usual, **facts})  # type: ignore[arg-type]


def test_tokens_are_useful_where_the_answer_ended_well_and_in_time() -> None:
    endings = Endings()
    ended(endings, tokens=1)
    ended(endings, tokens=2, first_byte_over_target=1.0)
    ended(endings, tokens=4, first_byte_over_target=0.0)
    ended(endings, tokens=8, first_byte_over_target=1.01)
    ended(endings, tokens=16, good=False)
    assert (endings.tokens, endings.useful_tokens) == (31, 7)


def test_requests_are_counted_and_those_among_them_that_ended_abnormally() -> None:
    endings = Endings()
    ended(endings)
    ended(endings, abnormal=True, good=False, tokens=0)
    ended(endings, abnormal=True, good=False, tokens=0, pool="")
    assert (endings.requests, endings.abnormal) == (3, 2)


def test_a_pool_is_credited_with_its_good_answers_and_all_of_its_tokens() -> None:
    endings = Endings()
    ended(endings, pool="p", tokens=1)
    ended(endings, pool="p", tokens=2, good=False)
    ended(endings, pool="q", tokens=4)
    ended(endings, pool="", tokens=0, good=False)
    assert endings.answered == {PoolName("p"): 1, PoolName("q"): 1}
    assert endings.tokens_of == {PoolName("p"): 3, PoolName("q"): 4}


def test_only_interactive_requests_with_a_target_and_a_first_byte_count_towards_the_target() -> None:
    endings = Endings()
    ended(endings, first_byte_over_target=0.0)
    ended(endings, interactive=False)
    assert sum(endings.over_target) == 0
    ended(endings, first_byte_over_target=0.5)
    ended(endings, first_byte_over_target=inf)
    assert sum(endings.over_target) == 2 and endings.over_target[-1] == 1


@pytest.mark.parametrize(("over", "share", "bound"), [([0.5] * 19 + [3.5], 0.95, 0.5), ([0.5] * 18 + [3.5] * 2, 0.95, 4.0), ([50.0], 0.95, 10.0), ([0.05], 0.95, 0.1), ([1.0], 0.5, 1.0)])  # fmt: skip
def test_a_quantile_is_the_bound_below_which_that_share_lies(
    over: list[float], share: float, bound: float
) -> None:
    endings = Endings()
    for value in over:
        ended(endings, first_byte_over_target=value)
    assert upper_quantile(tuple(map(float, endings.over_target)), share) == bound


def test_a_quantile_of_nothing_is_unknown() -> None:
    assert upper_quantile((0.0,) * (len(OVER_TARGET_BOUNDS) + 1), 0.95) is None


def test_every_lane_has_its_count_of_asked_and_shed() -> None:
    endings = Endings()
    assert set(endings.asked) == set(endings.shed) == set(Lane)
