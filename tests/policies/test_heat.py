"""Which beginnings of a prompt are counted, and when a request is hot."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from policies.heat import COOL_SHARE, MIN_SHARE, HeatRules, counted, is_hot, is_hot_request

DEPTHS = st.lists(st.integers(1, 9000), min_size=1, max_size=34).map(
    lambda gaps: list(accumulate(gaps, initial=128))
)


@given(DEPTHS)
def test_one_beginning_in_each_doubling_is_counted_the_shallowest_first(depths: list[int]) -> None:
    found = [depths[index] for index in counted(depths)]
    assert found[0] == depths[0]
    for one, other in pairwise(found):
        assert one.bit_length() < other.bit_length()
        assert not [
            depth for depth in depths if one < depth < other and depth.bit_length() > one.bit_length()
        ]
    # What is left out is within half of what is counted.
    assert all(any(depth / 2 < one <= depth for one in found) for depth in depths)


def test_each_power_of_two_begins_a_doubling() -> None:
    assert counted([300, 512, 600, 1023, 1024]) == [0, 1, 4]


def test_a_prompt_without_boundaries_has_nothing_to_count() -> None:
    assert counted([]) == []


@given(st.integers(1, 200))
def test_hot_from_min_hits_on_and_until_it_is_seen_clearly_less(min_hits: int) -> None:
    rules = HeatRules(min_hits=min_hits)
    assert is_hot(min_hits, False, rules)
    assert not is_hot(min_hits - 0.01, False, rules)
    assert is_hot(COOL_SHARE * min_hits + 0.01, True, rules)
    assert not is_hot(COOL_SHARE * min_hits - 0.01, True, rules)


def test_a_request_is_hot_where_its_hot_beginning_is_a_good_part_of_it() -> None:
    assert is_hot_request(1000, 1000)
    assert is_hot_request(1000, round(1000 / MIN_SHARE))
    assert not is_hot_request(1000, round(1000 / MIN_SHARE) + 1)
    assert is_hot_request(1, 1)
    assert not is_hot_request(0, 0)
