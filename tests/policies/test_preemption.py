"""When an emergency takes a slot, whose, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.lanes import RANK
from policies.preemption import PreemptionRules, may_preempt, victim
from policies.terms import Lane

RULES = PreemptionRules()


@dataclass
class Running:
    lane: Lane = Lane.BATCH
    dispatched_at: float = 0.0
    preemptions: int = 0


RUNNING = st.lists(
    st.builds(Running, st.sampled_from(Lane), st.integers(-3, 3).map(float), st.integers(0, 3)), max_size=8
)


@given(RUNNING, st.integers(0, 3))
def test_the_victim_is_the_last_dispatched_of_the_least_urgent_that_may_be_one(
    running: list[Running], at_most: int
) -> None:
    may = [one for one in running if one.lane is not Lane.EMERGENCY and one.preemptions < at_most]
    index = victim(running, PreemptionRules(max_preemptions=at_most))
    if index is None:
        assert not may
    else:
        chosen = running[index]
        assert chosen in may
        least_urgent = max(RANK[one.lane] for one in may)
        assert RANK[chosen.lane] == least_urgent
        assert chosen.dispatched_at == max(one.dispatched_at for one in may if RANK[one.lane] == least_urgent)


@given(RUNNING)
def test_every_request_becomes_immune_so_that_preemption_ends(running: list[Running]) -> None:
    for _ in range(RULES.max_preemptions * len(running)):
        index = victim(running, RULES)
        if index is not None:
            running[index].preemptions += 1
    assert victim(running, RULES) is None


@pytest.mark.parametrize(
    ("waited", "rest", "settled_at", "now", "may"),
    [
        (0.0, 0.25, -inf, 0.0, True),
        (0.0, 0.24, -inf, 0.0, False),
        (0.2, 0.1, -inf, 0.0, True),
        (0.0, None, -inf, 0.0, False),
        (0.25, None, -inf, 0.0, True),
        (0.0, inf, 1.0, 1.4, False),
        (0.0, inf, 1.0, 1.5, True),
        (0.0, inf, inf, 100.0, False),
    ],
)
def test_only_for_a_long_wait_and_not_before_the_last_slots_are_back(
    waited: float, rest: float | None, settled_at: float, now: float, may: bool
) -> None:
    assert may_preempt(waited, rest, settled_at, now, RULES) is may


def test_each_rule_counts() -> None:
    assert may_preempt(0.2, None, -inf, 0.0, PreemptionRules(wait_seconds=0.1))
    assert may_preempt(1.0, None, 1.0, 1.1, PreemptionRules(pause_seconds=0.1))
    assert victim([Running(), Running()], RULES) == 0
    assert victim([Running()], PreemptionRules(max_preemptions=0)) is None
    assert victim([Running(preemptions=2)], RULES) is None
    assert victim([Running(preemptions=2)], PreemptionRules(max_preemptions=3)) == 0
