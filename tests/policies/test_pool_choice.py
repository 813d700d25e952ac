"""Which pool takes a request."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pool_choice import (
    PoolChoiceRules,
    PoolFacts,
    PoolRole,
    choose_pool,
    is_realtime,
    may_enter,
    preference,
)
from policies.terms import Lane, PoolName

RULES = PoolChoiceRules()
BIG = PoolFacts(PoolName("big"))
FAST = PoolFacts(PoolName("fast"), PoolRole.LOW_LATENCY)
POOLS = st.lists(
    st.builds(
        PoolFacts,
        st.sampled_from("abcd").map(PoolName),
        st.sampled_from(PoolRole),
        st.sampled_from([0.0, 100.0]),
        st.sampled_from([99.0, 4096.0, inf]),
    ),
    max_size=4,
    unique_by=lambda pool: pool.name,
)
NAMED = st.lists(st.sampled_from("abcde").map(PoolName), max_size=4)
TIMES = st.sampled_from([0.05, 0.1, 0.2, 0.39, 0.4, 1.0, inf])
LOADS = st.lists(st.tuples(TIMES, st.floats(0, 1)), min_size=1, max_size=4)
LEFT = st.sampled_from([0.0, 0.1, 0.3, 1.0, inf])


@given(POOLS, NAMED, st.sampled_from([0.0, 50.0, 5000.0]), st.booleans())
def test_the_order_holds_the_pools_that_take_the_prompt_each_once_and_of_named_ones_only_those(
    pools: list[PoolFacts], named: list[PoolName], tokens: float, realtime: bool
) -> None:
    order = preference(pools, named, tokens, realtime)
    fitting = {pool.name for pool in pools if pool.min_prompt_tokens <= tokens <= pool.max_prompt_tokens}
    assert set(order) == (fitting & set(named) if named else fitting)
    assert len(set(order)) == len(order)
    if named:
        assert list(order) == sorted(order, key=named.index)


@pytest.mark.parametrize(("tokens", "taken"), [(99.4, False), (100, True), (200, True), (200.6, False)])
def test_a_pool_takes_prompts_from_its_least_to_its_most_both_included(tokens: float, taken: bool) -> None:
    pool = PoolFacts(PoolName("a"), PoolRole.HIGH_BATCH, 100.0, 200.0)
    assert preference([pool], (), tokens, False) == (("a",) if taken else ())


@given(POOLS, st.booleans())
def test_real_time_prefers_low_latency_and_throughput_prefers_high_batch(
    pools: list[PoolFacts], realtime: bool
) -> None:
    role = {pool.name: pool.role for pool in pools}
    roles = [role[name] for name in preference(pools, (), 100.0, realtime)]
    first = PoolRole.LOW_LATENCY if realtime else PoolRole.HIGH_BATCH
    assert roles == sorted(roles, key=lambda one: one is not first)


@given(LOADS, LEFT, st.booleans(), st.integers(0, 3), st.sampled_from([0.0, 9.0, 11.0]))
def test_who_leaves_the_pool_of_its_flow_gains_the_ratio_or_the_deadline_or_goes_home(
    loads: list[tuple[float, float]], left: float, realtime: bool, spilled: int, ago: float
) -> None:
    seconds, saturations = [load[0] for load in loads], [load[1] for load in loads]
    chosen = choose_pool(seconds, saturations, left, realtime, spilled, ago, RULES)
    present = spilled if spilled < len(loads) and ago < RULES.hysteresis_seconds else 0
    assert 0 <= chosen < len(loads)
    if chosen == present:
        return
    assert seconds[chosen] < inf
    gains = seconds[chosen] < RULES.spill_ratio * seconds[present]
    saves = seconds[present] > left >= seconds[chosen]
    returns = chosen == 0 and saturations[0] < RULES.max_return_saturation
    assert gains or saves or returns
    if not realtime and chosen and seconds[present] < inf:
        assert saturations[chosen] < RULES.max_guest_saturation


@given(LOADS, LEFT)
def test_a_real_time_request_meets_its_deadline_wherever_that_is_possible(
    loads: list[tuple[float, float]], left: float
) -> None:
    seconds, saturations = [load[0] for load in loads], [load[1] for load in loads]
    chosen = choose_pool(seconds, saturations, left, True, 0, 0.0, RULES)
    assert seconds[chosen] <= left or min(seconds) > left


@given(LOADS, LEFT, st.booleans(), st.floats(0, 1))
def test_a_pool_without_backends_is_left_for_one_that_has_some(
    loads: list[tuple[float, float]], left: float, realtime: bool, ratio: float
) -> None:
    seconds, saturations = [load[0] for load in loads], [load[1] for load in loads]
    rules = PoolChoiceRules(spill_ratio=ratio)
    chosen = choose_pool(seconds, saturations, left, realtime, 0, 0.0, rules)
    assert seconds[chosen] < inf or min(seconds) == inf


def test_where_no_gain_is_enough_a_pool_without_backends_is_left_all_the_same() -> None:
    never = PoolChoiceRules(spill_ratio=0.0)
    assert choose_pool([1.0, 0.1], [0.0, 0.0], inf, False, 0, 0.0, never) == 0
    assert choose_pool([inf, 0.1], [0.0, 0.0], inf, False, 0, 0.0, never) == 1


def test_nobody_goes_home_to_a_pool_without_backends() -> None:
    assert choose_pool([inf, 0.4], [0.0, 0.9], inf, False, 1, 0.0, RULES) == 1
    assert choose_pool([0.5, 0.4], [0.0, 0.9], inf, False, 1, 0.0, RULES) == 0


@given(LOADS, LEFT, st.booleans(), st.integers(0, 3))
def test_without_spilling_everybody_stays_at_home(
    loads: list[tuple[float, float]], left: float, realtime: bool, spilled: int
) -> None:
    rules = PoolChoiceRules(spill=False)
    seconds, saturations = [load[0] for load in loads], [load[1] for load in loads]
    assert choose_pool(seconds, saturations, left, realtime, spilled, 0.0, rules) == 0


@pytest.mark.parametrize(
    ("lane", "prompt", "output", "realtime"),
    [
        (Lane.EMERGENCY, 400, 100, True),
        (Lane.INTERACTIVE, 4096, 1024, True),
        (Lane.INTERACTIVE, 4097, 100, False),
        (Lane.INTERACTIVE, 100, 1025, False),
        (Lane.STANDARD, 100, 100, False),
        (Lane.BATCH, 100, 100, False),
    ],
)
def test_real_time_is_urgent_and_not_long(lane: Lane, prompt: float, output: float, realtime: bool) -> None:
    assert is_realtime(lane, prompt, output, RULES) is realtime
    order = preference([BIG, FAST], (), prompt, realtime)
    assert order == (("fast", "big") if realtime else ("big", "fast"))


@pytest.mark.parametrize(
    ("seconds", "saturations", "left", "realtime", "spilled", "ago", "chosen"),
    [
        ((0.08, 0.19), (0.5, 0.5), 0.3, True, 0, 0.0, 0),
        ((0.30, 0.19), (1.0, 0.5), 0.3, True, 0, 0.0, 0),
        ((0.40, 0.30), (1.0, 0.5), 0.3, True, 0, 0.0, 1),
        ((0.31, 0.19), (1.0, 0.5), 0.3, True, 0, 0.0, 1),  # the deadline holds only there
        ((0.39, 0.19), (1.0, 0.5), inf, True, 0, 0.0, 1),  # less than half of the time
        ((0.37, 0.19), (1.0, 0.5), inf, True, 0, 0.0, 0),
        ((0.40, 0.20), (1.0, 0.5), inf, True, 0, 0.0, 0),
        ((0.50, 0.40), (1.0, 1.0), 0.3, True, 0, 0.0, 0),  # late everywhere and not worth it
        ((1.00, 0.10), (1.0, 0.4), inf, False, 0, 0.0, 1),
        ((1.00, 0.10), (1.0, 0.5), inf, False, 0, 0.0, 0),  # no guests in a pool that is half full
        ((0.15, 0.19), (0.8, 0.5), 0.3, True, 1, 9.0, 1),  # stays where it spilled to
        ((0.15, 0.19), (0.8, 0.5), 0.3, True, 1, 10.0, 0),
        ((0.08, 0.19), (0.8, 0.5), 0.3, True, 1, 9.0, 0),
        ((0.25, 0.19), (0.4, 0.5), 0.3, True, 1, 9.0, 0),  # home has room again
        ((0.25, 0.19), (0.5, 0.5), 0.3, True, 1, 9.0, 1),
        ((0.30, 0.19), (0.4, 0.5), 0.3, True, 1, 9.0, 0),
        ((0.19, 0.19), (0.4, 0.5), 0.1, True, 1, 9.0, 0),
        ((0.35, 0.19), (0.4, 0.5), 0.3, True, 1, 9.0, 1),
        ((0.15, 0.35), (0.8, 0.9), 0.3, True, 1, 9.0, 0),
        ((0.9, 0.4, 0.3), (1.0, 0.5, 0.5), inf, True, 0, 0.0, 2),
        ((0.9, 0.3, 0.3), (1.0, 0.5, 0.5), inf, True, 0, 0.0, 1),  # of equals the preferred one
        ((0.9,), (1.0,), 0.1, True, 3, 0.0, 0),
    ],
)
def test_examples(
    seconds: tuple[float, ...],
    saturations: tuple[float, ...],
    left: float,
    realtime: bool,
    spilled: int,
    ago: float,
    chosen: int,
) -> None:
    assert choose_pool(seconds, saturations, left, realtime, spilled, ago, RULES) == chosen


def test_who_waits_may_enter_home_always_and_others_as_a_guest() -> None:
    assert may_enter(0, 1.0, False, PoolChoiceRules(spill=False))
    assert may_enter(1, 0.9, True, RULES) and may_enter(1, 0.4, False, RULES)
    assert not may_enter(1, 0.5, False, RULES)
    assert not may_enter(1, 0.0, True, PoolChoiceRules(spill=False))
    assert may_enter(1, 0.5, False, PoolChoiceRules(max_guest_saturation=0.6))


def test_each_setting_of_the_choice_counts() -> None:
    assert choose_pool((0.2, 0.15), (1.0, 0.5), inf, True, 0, 0.0, PoolChoiceRules(spill_ratio=0.8)) == 1
    stays = (0.15, 0.19), (0.8, 0.5), 0.3, True, 1, 9.0
    assert choose_pool(*stays, PoolChoiceRules(hysteresis_seconds=5)) == 0
    assert choose_pool(*stays, PoolChoiceRules(max_return_saturation=0.9)) == 0
    guest = (1.0, 0.1), (1.0, 0.5), inf, False, 0, 0.0
    assert choose_pool(*guest, PoolChoiceRules(max_guest_saturation=0.6)) == 1
    assert is_realtime(Lane.INTERACTIVE, 5000, 100, PoolChoiceRules(long_prompt_tokens=8000))
    assert is_realtime(Lane.INTERACTIVE, 100, 2000, PoolChoiceRules(long_output_tokens=2000))
