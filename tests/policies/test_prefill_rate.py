"""How fast an engine prefills, as the first bytes of its answers say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.prefill_rate import (
    ENOUGH_SAMPLES,
    MANY_TOKENS,
    MEMORY_SAMPLES,
    UNKNOWN,
    PrefillRate,
    is_sample,
    sampled,
    tokens_per_second,
)

SAMPLES = st.lists(
    st.tuples(st.integers(MANY_TOKENS, 1_000_000), st.floats(1e-6, 1e4)),
    min_size=ENOUGH_SAMPLES,
    max_size=100,
)


def after(samples: list[tuple[int, float]], rate: PrefillRate = UNKNOWN) -> PrefillRate:
    for tokens, seconds in samples:
        rate = sampled(rate, tokens, seconds)
    return rate


def test_it_is_unknown_until_there_are_enough_samples_of_many_tokens() -> None:
    rate = after([(MANY_TOKENS - 1, 0.02)] * 1000)
    assert rate == UNKNOWN and tokens_per_second(rate) is None
    rate = after([(2000, 0.2)] * (ENOUGH_SAMPLES - 1), rate)
    assert tokens_per_second(rate) is None
    assert tokens_per_second(sampled(rate, 2000, 0.2)) == pytest.approx(10_000)


@given(SAMPLES)
def test_it_is_one_of_what_the_last_samples_said_and_the_rest_is_forgotten(
    samples: list[tuple[int, float]],
) -> None:
    rate = after(samples)
    said = [tokens / seconds for tokens, seconds in samples[-MEMORY_SAMPLES:]]
    assert tokens_per_second(rate) in said
    assert len(rate) <= MEMORY_SAMPLES


@given(SAMPLES, st.sampled_from([0.25, 2.0, 4.0]))
def test_an_engine_that_is_so_much_slower_has_so_much_less(
    samples: list[tuple[int, float]], slower: float
) -> None:
    known = tokens_per_second(after(samples))
    assert known is not None
    slow = tokens_per_second(after([(tokens, slower * seconds) for tokens, seconds in samples]))
    assert slow == pytest.approx(known / slower)


def test_a_stall_that_most_of_its_samples_see_does_not_count() -> None:
    rate = after([(5000, 0.5)] * MEMORY_SAMPLES)
    assert tokens_per_second(after([(5000, 60.0)] * 20, rate)) == pytest.approx(10_000)


def test_a_slower_engine_is_seen_after_25_samples_and_a_faster_one_after_8() -> None:
    rate = after([(5000, 0.5)] * MEMORY_SAMPLES)
    assert tokens_per_second(after([(5000, 1.5)] * 24, rate)) == pytest.approx(10_000)
    slow = after([(5000, 1.5)] * 25, rate)
    assert tokens_per_second(slow) == pytest.approx(10_000 / 3)
    assert tokens_per_second(after([(5000, 0.5)] * 8, slow)) == pytest.approx(10_000)


@pytest.mark.parametrize(
    ("prompt", "cached", "counts"), [(1000, 0, True), (1000, 100, True), (1000, 101, False)]
)
def test_a_prompt_that_the_cache_holds_in_part_says_nothing(prompt: int, cached: int, counts: bool) -> None:
    assert is_sample(prompt, cached) is counts
