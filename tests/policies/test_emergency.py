"""The reserve of a pool and its lending."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.emergency import ReserveRules, kept_slots, lent_slots
from policies.terms import Lane

RULES = st.builds(ReserveRules, st.integers(0, 6), st.floats(0, 1), st.just(2.0))
LANES = st.sampled_from(Lane)
SECONDS = st.sampled_from([0.5, 2.0, 2.1, inf])
EVENTS = st.lists(st.tuples(st.sampled_from(["emergency", "short", "long"]), st.booleans()), max_size=60)


def usable_slots(
    capacity: int,
    in_flight: int,
    emergencies: int,
    lane: Lane,
    seconds: float,
    rules: ReserveRules,
) -> int:
    free = max(0, capacity - in_flight)
    if lane is Lane.EMERGENCY:
        return free
    from_long, from_short = kept_slots(capacity, emergencies, rules)
    return max(0, free - (from_short if seconds <= rules.lending_seconds else from_long))


def reserve_of(capacity: int, rules: ReserveRules) -> int:
    return min(rules.reserved_per_pool, capacity // 2)


@given(st.integers(0, 24), RULES, EVENTS)
def test_whatever_comes_and_goes_others_hold_no_more_of_the_reserve_than_may_be_lent(
    capacity: int, rules: ReserveRules, events: list[tuple[str, bool]]
) -> None:
    running = {"emergency": 0, "short": 0, "long": 0}
    for kind, arrives in events:
        if not arrives:
            running[kind] = max(0, running[kind] - 1)
            continue
        lane = Lane.EMERGENCY if kind == "emergency" else Lane.STANDARD
        seconds = 1.0 if kind == "short" else 60.0
        total, emergencies = sum(running.values()), running["emergency"]
        if usable_slots(capacity, total, emergencies, lane, seconds, rules):
            running[kind] += 1
        reserve = reserve_of(capacity, rules)
        assert sum(running.values()) <= capacity
        assert running["long"] <= capacity - reserve
        lent = lent_slots(capacity, sum(running.values()), running["emergency"], rules)
        assert lent <= rules.lending_share * reserve
        assert lent <= running["short"]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), RULES, SECONDS)
def test_an_emergency_may_use_every_free_slot(
    capacity: int, in_flight: int, emergencies: int, rules: ReserveRules, seconds: float
) -> None:
    free = max(0, capacity - in_flight)
    assert usable_slots(capacity, in_flight, emergencies, Lane.EMERGENCY, seconds, rules) == free


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), RULES, LANES, SECONDS)
def test_a_free_slot_stays_free_only_as_part_of_the_unused_reserve(
    capacity: int, in_flight: int, emergencies: int, rules: ReserveRules, lane: Lane, seconds: float
) -> None:
    emergencies = min(emergencies, in_flight)
    slots = usable_slots(capacity, in_flight, emergencies, lane, seconds, rules)
    kept = max(0, capacity - in_flight) - slots
    unused = max(0, reserve_of(capacity, rules) - emergencies)
    assert slots >= 0 and 0 <= kept <= unused
    if seconds <= rules.lending_seconds:
        assert kept <= unused - int(rules.lending_share * unused)


@given(st.integers(1, 40), st.integers(0, 10_000), LANES)
def test_however_large_the_reserve_is_half_of_an_idle_pool_is_for_everybody(
    capacity: int, reserved: int, lane: Lane
) -> None:
    slots = usable_slots(capacity, 0, 0, lane, inf, ReserveRules(reserved, 0.0))
    assert slots >= (capacity + 1) // 2


@pytest.mark.parametrize(
    ("capacity", "in_flight", "emergencies", "seconds", "slots"),
    [
        (4, 0, 0, inf, 2),
        (4, 2, 0, inf, 0),
        (4, 2, 0, 2.0, 1),
        (4, 3, 0, 2.0, 0),
        (4, 3, 1, 2.0, 0),
        (4, 3, 2, inf, 1),
        (5, 0, 0, inf, 3),
        (6, 0, 0, inf, 4),
        (64, 60, 0, inf, 2),
        (64, 62, 0, 2.1, 0),
        (64, 62, 0, 1.0, 1),
        (1, 0, 0, inf, 1),
        (2, 1, 0, inf, 0),
        (0, 0, 0, inf, 0),
        (8, 12, 0, inf, 0),
    ],
)
def test_examples(capacity: int, in_flight: int, emergencies: int, seconds: float, slots: int) -> None:
    rules = ReserveRules()
    assert usable_slots(capacity, in_flight, emergencies, Lane.INTERACTIVE, seconds, rules) == slots


@pytest.mark.parametrize(
    ("rules", "slots"),
    [
        (ReserveRules(), 1),
        (ReserveRules(reserved_per_pool=0), 2),
        (ReserveRules(lending_share=0.0), 0),
        (ReserveRules(lending_share=1.0), 2),
        (ReserveRules(lending_seconds=0.5), 0),
    ],
)
def test_each_setting_counts(rules: ReserveRules, slots: int) -> None:
    assert usable_slots(10, 8, 0, Lane.BATCH, 1.0, rules) == slots


def test_what_others_hold_of_the_reserve_is_shown() -> None:
    assert [lent_slots(10, in_flight, 0, ReserveRules()) for in_flight in (7, 8, 9, 10, 12)] == [
        0,
        0,
        1,
        2,
        2,
    ]
    assert lent_slots(10, 10, 2, ReserveRules()) == 0
    assert [lent_slots(capacity, 4, 0, ReserveRules()) for capacity in (4, 5, 6)] == [2, 1, 0]
