"""What a request is tagged with: its cost, its pools, and whether its emergency is granted."""

from __future__ import annotations

from math import inf

import pytest

from policies.emergency_budget import EmergencyBudgetRules
from policies.lengths import TextSize
from policies.pool_choice import PoolFacts, PoolRole
from policies.terms import UNTAGGED, BackendId, Lane, PoolName
from routing.counts import Counts
from routing.decision import Intent
from routing.placement import AffinityRules, Placement
from routing.tagger import MAX_BUDGETS, MAX_ORDERS, Tagger, TaggerRules

SHORT, LONG = PoolName("short"), PoolName("long")
FACTS = (
    PoolFacts(SHORT, PoolRole.LOW_LATENCY, max_prompt_tokens=100.0),
    PoolFacts(LONG, PoolRole.HIGH_BATCH, min_prompt_tokens=50.0),
)


def tagger_of(rules: TaggerRules | None = None, *facts: PoolFacts) -> Tagger:
    rules = rules or TaggerRules()
    tagger = Tagger(rules, Counts(), Placement(AffinityRules()))
    tagger.configure(facts or FACTS, rules)
    return tagger


def pools(tagger: Tagger, intent: Intent) -> tuple[PoolName, ...]:
    tag = tagger.tag("", intent, 0.0, 1.0)
    assert tagger.pools_of(intent, tag) == tag.pools
    return tag.pools


def of(tokens: int, **fields: object) -> Intent:
    return Intent(size=TextSize(token_ids=tokens), max_tokens=1)._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(10, (SHORT,)), (49, (SHORT,)), (50, (LONG, SHORT)), (100, (LONG, SHORT)), (101, (LONG,))],
)
def test_a_prompt_goes_to_the_pools_that_take_its_length(tokens: int, expected: tuple[PoolName, ...]) -> None:
    assert pools(tagger_of(), of(tokens)) == expected


def test_a_prompt_of_unknown_length_goes_to_any_pool() -> None:
    assert pools(tagger_of(), Intent()) == (LONG, SHORT)
    assert pools(tagger_of(), Intent(lane=Lane.INTERACTIVE)) == (SHORT, LONG)


def test_a_request_that_one_backend_alone_can_serve_goes_to_its_pool_whatever_its_length() -> None:
    held = of(10, pools=(LONG,), backend=BackendId("b"))
    assert pools(tagger_of(), held) == ()
    assert pools(tagger_of(), held._replace(is_held=True)) == (LONG,)


def test_an_empty_prompt_costs_one_token() -> None:
    tagger = tagger_of(None, PoolFacts(SHORT))
    assert tagger.tag("", Intent(size=TextSize(), max_tokens=0), 0.0, 1.0).cost == 1.0
    assert tagger.tag("", of(100), 0.0, 1.0).cost > 100.0


def test_orders_of_pools_that_clients_name_are_kept_within_a_bound_and_right_beyond_it() -> None:
    facts = [PoolFacts(PoolName(f"p{number}")) for number in range(40)]
    tagger = tagger_of(None, *facts)
    for first in facts:
        for second in facts:
            named = tuple(dict.fromkeys((first.name, second.name)))
            assert pools(tagger, Intent(pools=named)) == named
    assert len(tagger._orders) == MAX_ORDERS < 40 * 40


def test_emergencies_beyond_the_budget_are_interactive() -> None:
    tagger = tagger_of(TaggerRules(budget=EmergencyBudgetRules(burst=2.0, budget_share=0.1)))
    urgent = Intent(lane=Lane.EMERGENCY, tenant="t")
    lanes = [tagger.tag("", urgent, now, 1.0).lane for now in (0.0, 0.0, 0.0, 5.0, 10.0)]
    assert lanes == [Lane.EMERGENCY, Lane.EMERGENCY, Lane.INTERACTIVE, Lane.INTERACTIVE, Lane.EMERGENCY]
    assert tagger.tag("", urgent._replace(tenant="u"), 0.0, 1.0).lane is Lane.EMERGENCY


def test_budgets_are_kept_within_a_bound_and_begin_with_a_fresh_burst_beyond_it() -> None:
    tagger = tagger_of(TaggerRules(budget=EmergencyBudgetRules(burst=1.0)))
    urgent = Intent(lane=Lane.EMERGENCY, tenant="t0")
    for number in range(MAX_BUDGETS):
        tagger.tag("", urgent._replace(tenant=f"t{number}"), 0.0, 0.0)
    assert tagger.tag("", urgent, 0.0, 0.0).lane is Lane.INTERACTIVE
    assert len(tagger._budgets) == MAX_BUDGETS
    assert tagger.tag("", urgent._replace(tenant="one more"), 0.0, 0.0).lane is Lane.EMERGENCY
    assert len(tagger._budgets) == 1
    assert tagger.tag("", urgent, 0.0, 0.0).lane is Lane.EMERGENCY


def test_without_a_target_there_is_no_deadline() -> None:
    tagger = tagger_of()
    assert tagger.tag("", Intent(), 7.0, 1.0).deadline == UNTAGGED.deadline == inf
    assert tagger.tag("", Intent(target_seconds=2.0), 7.0, 1.0).deadline == 9.0
