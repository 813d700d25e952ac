"""How much is shed in overload, and who."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.shed_share import (
    LIGHTEST,
    SHEDS_NOTHING,
    Place,
    ShedShare,
    ShedShareRules,
    after_tick,
    places,
    sheds,
    tick_seconds,
)
from policies.terms import Lane

RULES = ShedShareRules()
TARGET, TICK = 0.025, 0.0625
SHARES = st.floats(0, 1)
DELAYS = st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=60)
FLOWS = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.5, 100.0]), st.integers(0, 9)), max_size=8)


@given(DELAYS)
def test_the_share_stays_within_its_bounds(delays: list[tuple[float, bool]]) -> None:
    shed = SHEDS_NOTHING
    for delay, overloaded in delays:
        shed = after_tick(shed, delay, TARGET, overloaded, TICK, RULES)
        assert 0.0 <= shed.share <= RULES.max_share


@given(DELAYS)
def test_nothing_is_shed_before_the_detector_has_spoken(delays: list[tuple[float, bool]]) -> None:
    shed = SHEDS_NOTHING
    for delay, _ in delays:
        shed = after_tick(shed, delay, TARGET, False, TICK, RULES)
        assert shed.share == 0.0


@given(DELAYS)
def test_two_seconds_after_the_last_delay_nothing_is_shed(delays: list[tuple[float, bool]]) -> None:
    shed = SHEDS_NOTHING
    for delay, overloaded in delays:
        shed = after_tick(shed, delay, TARGET, overloaded, TICK, RULES)
    for _ in range(int(2 / TICK)):
        shed = after_tick(shed, 0.0, TARGET, True, TICK, RULES)
    assert shed.share == 0.0


@pytest.mark.parametrize("load", [1.2, 1.5, 2.0, 3.0])
def test_a_steady_overload_is_shed_to_what_can_be_served_and_the_queue_stays_short(load: float) -> None:
    budget, queue, shed, tail = 0.5, 0.0, SHEDS_NOTHING, []
    tick = tick_seconds(budget, RULES)
    for step in range(int(30 / tick)):
        queue = max(0.0, queue + tick * (load * (1 - shed.share) - 1))
        shed = after_tick(shed, queue, TARGET, True, tick, RULES)
        if step * tick > 15:
            tail.append((shed.share, queue))
    assert sum(share for share, _ in tail) / len(tail) == pytest.approx(1 - 1 / load, abs=0.03)
    assert max(queue for _, queue in tail) < 0.6 * budget


@given(FLOWS)
def test_the_places_of_all_flows_fill_the_arrivals_with_the_lighter_ones_first(
    flows: list[tuple[float, int]],
) -> None:
    found = places(flows)
    assert len(found) == len(flows)
    total = sum(arrivals for _, arrivals in flows)
    if total == 0:
        assert all(place == LIGHTEST for place in found)
        return
    for (usage, _), place in zip(flows, found, strict=True):
        lighter = sum(arrivals for other, arrivals in flows if other < usage)
        own = sum(arrivals for other, arrivals in flows if other == usage)
        assert place == pytest.approx((lighter / total, own / total))


@given(FLOWS, st.integers(0, 20).map(lambda twentieths: twentieths / 20))
def test_the_share_of_the_arrivals_is_shed_and_it_is_the_heaviest(
    flows: list[tuple[float, int]], share: float
) -> None:
    total = sum(arrivals for _, arrivals in flows)
    refused: dict[float, float] = {}
    draws = [(step + 0.5) / 1000 for step in range(1000)]
    for (usage, arrivals), place in zip(flows, places(flows), strict=True):
        gone = sum(sheds(Lane.STANDARD, place, draw, share) for draw in draws) / len(draws)
        assert refused.setdefault(usage, gone) == gone
        if arrivals:
            assert gone in (0.0, 1.0) or 1 - share == pytest.approx(
                place.lighter + (1 - gone) * place.own, abs=0.002
            )
    if total:
        shed = sum(refused[usage] * arrivals for usage, arrivals in flows) / total
        assert shed == pytest.approx(share, abs=0.002)
    by_usage = [refused[usage] for usage in sorted(refused)]
    if all(arrivals for _, arrivals in flows):
        assert by_usage == sorted(by_usage)


@given(SHARES, SHARES, st.floats(0, 1, exclude_max=True), SHARES)
def test_an_emergency_is_never_shed(lighter: float, own: float, draw: float, share: float) -> None:
    assert not sheds(Lane.EMERGENCY, Place(lighter, own), draw, share)


@given(st.sampled_from(Lane), SHARES, st.floats(0, 1, exclude_max=True))
def test_the_same_draw_is_shed_by_every_larger_share(lane: Lane, share: float, draw: float) -> None:
    if sheds(lane, Place(0.0, 1.0), draw, share):
        assert sheds(lane, Place(0.0, 1.0), draw, min(1.0, share + 0.1))


def test_a_flow_without_a_place_goes_last() -> None:
    assert not sheds(Lane.BATCH, LIGHTEST, 0.99, 0.95)


@pytest.mark.parametrize(
    ("rules", "share"),
    [
        (RULES, 0.45 + 0.05 * 4 * 0.1),
        (ShedShareRules(kp=0.1), 0.6 + 0.05 * 4 * 0.1),
        (ShedShareRules(ki=0.5), 0.45 + 0.5 * 4 * 0.1),
        (ShedShareRules(max_error=2.0), 0.35 + 0.05 * 2 * 0.1),
        (ShedShareRules(max_share=0.4), 0.4),
    ],
)
def test_each_setting_of_the_rise_counts(rules: ShedShareRules, share: float) -> None:
    after = after_tick(ShedShare(0.3, 1.0), 5 * TARGET, TARGET, True, 0.1, rules)
    assert after.share == pytest.approx(share)


def test_once_begun_it_follows_the_delay_whatever_the_detector_says() -> None:
    after = after_tick(ShedShare(0.3, 1.0), 5 * TARGET, TARGET, False, 0.1, RULES)
    assert after == after_tick(ShedShare(0.3, 1.0), 5 * TARGET, TARGET, True, 0.1, RULES)


def test_it_rises_for_every_delay_above_the_target_and_is_bounded() -> None:
    assert after_tick(ShedShare(0.3, 0.5), 1.5 * TARGET, TARGET, True, 0.1, RULES).share > 0.3
    shed = SHEDS_NOTHING
    for _ in range(100):
        shed = after_tick(shed, 60.0, TARGET, True, 0.1, RULES)
    assert shed == ShedShare(0.95, 8.0)


def test_each_setting_of_the_fall_and_the_tick_counts() -> None:
    assert after_tick(ShedShare(0.3, -1.0), 0.0, TARGET, True, 0.1, RULES).share == pytest.approx(0.25)
    faster = ShedShareRules(fall_per_second=2.0)
    assert after_tick(ShedShare(0.3, -1.0), 0.0, TARGET, True, 0.1, faster).share == pytest.approx(0.1)
    assert (tick_seconds(0.5, RULES), tick_seconds(0.1, RULES)) == (0.0625, 0.02)
    assert tick_seconds(0.1, ShedShareRules(min_tick_seconds=0.1)) == 0.1
