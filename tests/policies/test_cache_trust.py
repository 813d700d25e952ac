"""How far a prediction of cached tokens is trusted, from what the engine really found."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cache_trust import (
    ENOUGH_TOKENS,
    FULL_TRUST,
    GATHERED_TOKENS,
    HALF_LIFE_TOKENS,
    MOST_TOKENS,
    NOTHING_GATHERED,
    CacheTrust,
    counted,
    hit_share,
    restarted,
    sent,
    told,
    trust_in,
)
from policies.dialects import EngineReport

TOKENS = st.floats(0, 1e7) | st.integers(0, 10**7) | st.just(5e-324)
SHARES = st.floats(0, 1)
SAMPLES = st.lists(st.tuples(TOKENS, TOKENS), max_size=60)
COUNTS = st.none() | st.integers(0, 10**12)
EVENTS = st.lists(
    st.tuples(st.just("sent"), TOKENS, TOKENS)
    | st.tuples(st.just("told"), TOKENS, TOKENS)
    | st.tuples(st.just("always told"), TOKENS, TOKENS)
    | st.tuples(st.just("counted"), COUNTS, COUNTS)
    | st.tuples(st.just("restarted"), st.none(), st.none()),
    max_size=60,
)


def after(samples: list[tuple[float, float]], known: CacheTrust = FULL_TRUST) -> CacheTrust:
    """Predicted and found, of requests whose usage always tells."""
    return reduce(lambda state, sample: told(state, sample[0], sample[1], True), samples, known)


def after_reports(
    known: CacheTrust, rounds: int, predicted: float, asked: float, hits: int, queries: int
) -> CacheTrust:
    """As much is sent and counted between each two reports."""
    for number in range(rounds):
        known = sent(known, predicted, asked)
        before = EngineReport(prefix_hits=number * hits, prefix_queries=number * queries)
        reported = EngineReport(prefix_hits=(number + 1) * hits, prefix_queries=(number + 1) * queries)
        known = counted(known, before, reported)
    return known


SINKING = [(2000.0, 0.0)] * 1000


@given(EVENTS)
def test_whatever_happens_it_is_between_0_and_1_and_1_until_there_is_enough(
    events: list[tuple[str, float | None, float | None]],
) -> None:
    known, before = FULL_TRUST, None
    for what, first, second in events:
        if what == "restarted":
            known = restarted(known)
        elif what == "counted":
            report = EngineReport(prefix_hits=first, prefix_queries=second)  # type: ignore[arg-type]
            known, before = counted(known, before, report), report
        else:
            assert first is not None and second is not None
            known = (
                sent(known, first, second) if what == "sent" else told(known, first, second, what != "told")
            )
        assert 0.0 <= trust_in(known) <= 1.0
        assert known.predicted >= ENOUGH_TOKENS or trust_in(known) == 1.0


def test_it_starts_at_1_and_does_not_move_before_a_minimum_of_evidence() -> None:
    prompts = int(ENOUGH_TOKENS / MOST_TOKENS)
    assert trust_in(FULL_TRUST) == 1.0
    assert trust_in(after([(1e6, 0.0)] * prompts)) == 1.0, "however long these prompts are"
    assert trust_in(after([(1e6, 0.0)] * 2 * prompts)) == 0.0


def test_it_moves_once_the_minimum_is_reached_and_each_predicted_token_counts_towards_it() -> None:
    assert trust_in(CacheTrust(ENOUGH_TOKENS, 0.0)) == 0.0
    assert trust_in(CacheTrust(ENOUGH_TOKENS - 1.0, 0.0)) == 1.0
    assert after([(1.0, 0.0)]).predicted == 1.0


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=60))
def test_while_everything_predicted_is_found_it_stays_1(samples: list[tuple[float, float]]) -> None:
    assert trust_in(after([(predicted, predicted + more) for predicted, more in samples])) == 1.0


@given(SHARES, st.floats(100, 1e6))
def test_a_steady_share_is_what_it_comes_to(share: float, predicted: float) -> None:
    samples = [(predicted, share * predicted)] * int(2 * ENOUGH_TOKENS / min(predicted, MOST_TOKENS))
    assert trust_in(after(samples)) == pytest.approx(share, abs=1e-9)


def test_it_is_the_share_of_the_tokens_and_not_of_the_requests() -> None:
    known = after([(100.0, 0.0), (100.0, 0.0), (1800.0, 1800.0)] * 300)
    assert trust_in(known) == pytest.approx(0.9, abs=0.01)


@given(SAMPLES, TOKENS, TOKENS)
def test_no_single_prompt_moves_it_by_more_than_a_tenth(
    samples: list[tuple[float, float]], predicted: float, found: float
) -> None:
    known = after([*samples, *[(MOST_TOKENS, 0.5 * MOST_TOKENS)] * 13])
    assert trust_in(known) < 1.0
    moved = after([(predicted, found)], known)
    assert abs(trust_in(moved) - trust_in(known)) <= 0.1


@given(SAMPLES, SAMPLES)
def test_more_found_is_never_less_trust(
    samples: list[tuple[float, float]], more: list[tuple[float, float]]
) -> None:
    better = [
        (predicted, found + (more[index][0] if index < len(more) else 0.0))
        for index, (predicted, found) in enumerate(samples)
    ]
    assert trust_in(after(better)) >= trust_in(after(samples)) - 1e-12


def test_what_was_found_without_a_prediction_makes_up_for_nothing() -> None:
    known = after([(2000.0, 0.0), (0.0, 2000.0), (10.0, 1990.0)] * 100)
    assert trust_in(known) < 0.02


def test_a_cache_that_shrank_is_known_in_a_few_half_lives_and_one_that_grew_again_too() -> None:
    half_life = [(1000.0, 200.0)] * int(HALF_LIFE_TOKENS / 1000)
    known = after([(1000.0, 1000.0)] * 1000)
    sunk = [trust_in(known := after(half_life, known)) for _ in range(4)]
    assert sunk == pytest.approx([0.6, 0.4, 0.3, 0.25], abs=0.02)
    known = after(SINKING, known)
    assert trust_in(known) < 0.01
    grown = [(1000.0, 1000.0)] * int(HALF_LIFE_TOKENS / 1000)
    risen = [trust_in(known := after(grown, known)) for _ in range(4)]
    assert risen == pytest.approx([0.5, 0.75, 0.875, 0.94], abs=0.02)


# --- who tells ----------------------------------------------------------------------------------------------------------------


def test_of_an_engine_that_may_not_tell_nothing_found_says_nothing_until_it_has_told_once() -> None:
    known = reduce(lambda state, _: told(state, 2000.0, 0.0, always=False), range(1000), FULL_TRUST)
    assert known == FULL_TRUST
    known = told(known, 2000.0, 2000.0, always=False)
    known = reduce(lambda state, _: told(state, 2000.0, 0.0, always=False), range(1000), known)
    assert trust_in(known) < 0.01


def test_a_single_token_shows_that_it_tells() -> None:
    assert told(FULL_TRUST, 1000.0, 1.0, always=False).tells


def test_after_a_restart_it_has_to_tell_again_and_what_is_known_stays() -> None:
    known = after([(2000.0, 500.0)] * 200)
    again = restarted(known)
    assert trust_in(again) == trust_in(known) == pytest.approx(0.25)
    assert told(again, 2000.0, 0.0, always=False) == again


def test_a_restart_ends_what_was_gathered_of_the_engine_before() -> None:
    assert restarted(sent(FULL_TRUST, 1000.0, 2000.0)) == FULL_TRUST
    assert restarted(CacheTrust(3.0, 2.0, True)) == CacheTrust(3.0, 2.0, False)


def test_where_usage_tells_the_counters_are_not_heard() -> None:
    known = told(FULL_TRUST, 1000.0, 1000.0, always=False)
    assert after_reports(known, 100, 50_000.0, 50_000.0, 0, 50_000) == known


def test_the_first_told_puts_an_end_to_what_the_counters_were_gathered_for() -> None:
    known = sent(FULL_TRUST, 1000.0, 2000.0)
    assert known.gathered != NOTHING_GATHERED
    assert told(known, 1000.0, 1000.0, always=False).gathered == NOTHING_GATHERED


# --- from the counters --------------------------------------------------------------------------------------------------------


@given(
    share=SHARES,
    predicted_share=st.floats(0.05, 1),
    queries=st.integers(1000, 100_000),
    unit=st.floats(0.5, 2),
    others=st.floats(0, 3),
)
def test_counters_give_the_share_whatever_the_unit_and_whoever_else_sends(
    share: float, predicted_share: float, queries: int, unit: float, others: float
) -> None:
    asked = unit * queries
    total = int(queries * (1 + others))
    known = after_reports(
        FULL_TRUST, 500, predicted_share * asked, asked, int(share * predicted_share * total), total
    )
    if known.predicted >= ENOUGH_TOKENS:
        assert trust_in(known) == pytest.approx(share, abs=1 / (predicted_share * total) + 1e-6)


def test_counters_are_gathered_until_there_is_enough_on_both_sides() -> None:
    half = GATHERED_TOKENS / 2
    known = after_reports(FULL_TRUST, 1, half, half, 0, int(half))
    assert known.predicted == 0.0
    assert after_reports(known, 1, half, half, 0, int(half)).predicted > 0.0
    waiting = after_reports(FULL_TRUST, 1, 10 * half, 10 * half, 0, int(half))
    assert waiting.predicted == 0.0, "most of it waits in the engine"
    others = after_reports(FULL_TRUST, 1, 1.0, 1.0, 0, int(10 * half))
    assert others.predicted == 0.0, "others sent nearly all of it"


def test_only_what_was_counted_between_two_reports_says_something() -> None:
    known = sent(FULL_TRUST, 60_000.0, 60_000.0)
    before = EngineReport(prefix_hits=900_000, prefix_queries=1_000_000)
    known = counted(known, before, EngineReport(prefix_hits=900_000, prefix_queries=1_060_000))
    assert trust_in(known) == 0.0


def test_what_others_send_alone_says_nothing() -> None:
    reports = [EngineReport(prefix_hits=0, prefix_queries=count) for count in (0, 10**6)]
    assert counted(FULL_TRUST, *reports) == FULL_TRUST


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, EngineReport(prefix_hits=1, prefix_queries=100_000)),
        (EngineReport(prefix_hits=1, prefix_queries=1), EngineReport()),
        (EngineReport(), EngineReport(prefix_hits=1, prefix_queries=100_000)),
        (EngineReport(prefix_queries=1), EngineReport(prefix_queries=100_000)),
        (EngineReport(prefix_hits=9, prefix_queries=9), EngineReport(prefix_hits=1, prefix_queries=100_000)),
        (EngineReport(prefix_hits=0, prefix_queries=200_000), EngineReport(prefix_hits=1, prefix_queries=9)),
    ],
)
def test_counters_that_are_unknown_or_fell_say_nothing_and_what_was_gathered_is_dropped(
    before: EngineReport | None, now: EngineReport
) -> None:
    assert hit_share(before, now) is None
    known = after_reports(after([(2000.0, 500.0)] * 200)._replace(tells=False), 1, 100.0, 100.0, 1, 100)
    lost = counted(sent(known, 50_000.0, 50_000.0), before, now)
    assert lost == known._replace(gathered=NOTHING_GATHERED)


@pytest.mark.parametrize(
    ("hits", "queries", "share"),
    [
        (0, 100, 0.0),
        (0, 1, 0.0),
        (1, 1, 1.0),
        (25, 100, 0.25),
        (100, 100, 1.0),
        (101, 100, None),
        (0, 0, None),
    ],
)
def test_what_was_found_of_what_was_looked_up_between_two_reports(
    hits: int, queries: int, share: float | None
) -> None:
    before = EngineReport(prefix_hits=70, prefix_queries=900)
    assert hit_share(before, EngineReport(prefix_hits=70 + hits, prefix_queries=900 + queries)) == share


def test_a_cache_too_small_sinks_by_its_counters_and_comes_back() -> None:
    known = after_reports(FULL_TRUST, 100, 10_000.0, 12_000.0, 1000, 12_000)
    assert trust_in(known) == pytest.approx(0.1, abs=0.01)
    known = after_reports(known, 100, 10_000.0, 12_000.0, 10_000, 12_000)
    assert trust_in(known) > 0.99


def test_no_more_is_predicted_of_a_prompt_than_it_has() -> None:
    assert sent(FULL_TRUST, 3000.0, 2000.0).gathered.predicted == 2000.0
