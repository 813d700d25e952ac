"""What rules ask for, as the configuration words it and together."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.degradation_actions import (
    MIN_PER_SECOND,
    NO_EFFECTS,
    Action,
    ActivateStandby,
    Asked,
    BatchCold,
    BatchShare,
    ClampMaxTokens,
    CloseColdPath,
    Effects,
    HoldBackends,
    LimitRate,
    NoLending,
    NoOptionalWork,
    NoRetries,
    PreferFallback,
    RefuseBelow,
    Serial,
    ShedOverShare,
    WindowShare,
    action_of,
    combined,
    refuses,
    wording,
)
from policies.terms import BackendId, Lane, PoolName

A, B = BackendId("a"), BackendId("b")
P, Q = PoolName("p"), PoolName("q")

WORDS: dict[str, Action] = {
    "close_cold_path": CloseColdPath(),
    "serial": Serial(),
    "hold": HoldBackends(),
    "prefer_fallback": PreferFallback(),
    "activate_standby": ActivateStandby(),
    "no_retries": NoRetries(),
    "no_lending": NoLending(),
    "batch_cold": BatchCold(),
    "no_optional_work": NoOptionalWork(),
    "shed_over_share": ShedOverShare(),
    "batch_share 0.6": BatchShare(0.6),
    "window_share 0.5": WindowShare(0.5),
    "window_share 1": WindowShare(1.0),
    "limit_rate 0.9": LimitRate(0.9),
    "refuse_below emergency": RefuseBelow(Lane.EMERGENCY),
    "refuse_below interactive": RefuseBelow(Lane.INTERACTIVE),
    "refuse_below standard": RefuseBelow(Lane.STANDARD),
    "clamp_max_tokens batch 256": ClampMaxTokens(Lane.BATCH, 256),
    "clamp_max_tokens batch 1": ClampMaxTokens(Lane.BATCH, 1),
    "clamp_max_tokens batch 99999999": ClampMaxTokens(Lane.BATCH, 99_999_999),
    "clamp_max_tokens standard p90": ClampMaxTokens(Lane.STANDARD),
}


@pytest.mark.parametrize("text", WORDS)
def test_each_action_is_read_from_its_words_and_worded_again(text: str) -> None:
    assert action_of(text) == WORDS[text]
    assert wording(WORDS[text]) == text
    assert action_of(f"  {text.replace(' ', '   ')} ") == WORDS[text]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not an action; allowed: close_cold_path"),
        ("explode", "is not an action; allowed: close_cold_path"),
        ("hold 3", "hold takes no value"),
        ("window_share", "window_share needs a share above 0 and at most 1"),
        ("window_share 0", "needs a share"),
        ("window_share 1.01", "needs a share"),
        ("window_share nan", "needs a share"),
        ("window_share half", "needs a share"),
        ("window_share 0.5 0.5", "needs a share"),
        ("batch_share 0", "batch_share needs a share above 0 and at most 1, such as batch_share 0.5"),
        ("batch_cold yes", "batch_cold takes no value"),
        ("explode", "window_share, limit_rate, batch_share, refuse_below, clamp_max_tokens"),
        ("limit_rate -1", "limit_rate needs a share"),
        ("refuse_below", "refuse_below needs a lane; allowed: emergency, interactive, standard"),
        ("refuse_below batch", "refuse_below needs a lane"),
        ("refuse_below vip", "refuse_below needs a lane"),
        ("clamp_max_tokens 256", "clamp_max_tokens needs a lane (standard, batch) and tokens"),
        ("clamp_max_tokens interactive 256", "clamp_max_tokens needs a lane"),
        ("clamp_max_tokens batch 0", "clamp_max_tokens needs a lane"),
        ("clamp_max_tokens batch -5", "clamp_max_tokens needs a lane"),
        ("clamp_max_tokens batch 100000000", "clamp_max_tokens needs a lane"),
        ("clamp_max_tokens batch p95", "clamp_max_tokens needs a lane"),
    ],
)
def test_what_is_no_action_is_told_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(").replace(")", r"\)")):
        action_of(text)


def test_what_is_told_begins_with_the_words_concerned_and_ends_with_words_that_may_be_copied() -> None:
    with pytest.raises(ValueError, match=r"^clamp_max_tokens needs a lane .*") as told:
        action_of("clamp_max_tokens batch many")
    examples = str(told.value).partition("such as: ")[2].split(", or ")
    assert [action_of(f"clamp_max_tokens {example}") for example in examples] == [
        ClampMaxTokens(Lane.BATCH, 256),
        ClampMaxTokens(Lane.BATCH),
    ]


ASKED = [
    Asked(WindowShare(0.75), (A, B)),
    Asked(WindowShare(0.5), (A,)),
    Asked(WindowShare(1.0), (BackendId("c"),)),
    Asked(LimitRate(0.9), requests_per_second=90.0),
    Asked(LimitRate(0.5), requests_per_second=50.0),
    Asked(RefuseBelow(Lane.STANDARD)),
    Asked(RefuseBelow(Lane.INTERACTIVE)),
    Asked(ClampMaxTokens(Lane.BATCH, 256)),
    Asked(ClampMaxTokens(Lane.BATCH, 64)),
    Asked(ClampMaxTokens(Lane.BATCH)),
    Asked(HoldBackends(), (B,)),
    Asked(HoldBackends(), (B, A)),
    Asked(Serial(), (A,), (Q,)),
    Asked(Serial(), (B,), (P,)),
    Asked(CloseColdPath()),
    Asked(PreferFallback()),
    Asked(ActivateStandby()),
    Asked(NoRetries()),
    Asked(NoLending()),
    Asked(BatchShare(0.6), (A,), (P, Q)),
    Asked(BatchShare(0.3), (B,), (Q,)),
    Asked(BatchShare(1.0), (), (PoolName("r"),)),
    Asked(BatchCold()),
    Asked(NoOptionalWork()),
    Asked(ShedOverShare()),
]
TOGETHER = Effects(
    closes_cold_path=True,
    prefers_fallback=True,
    activates_standby=True,
    has_no_retries=True,
    has_no_lending=True,
    has_no_optional_work=True,
    batch_is_cold=True,
    sheds_over_share=True,
    refuses_below=Lane.INTERACTIVE,
    requests_per_second=50.0,
    clamps=((Lane.BATCH, 64), (Lane.BATCH, None)),
    serial_pools=frozenset({P, Q}),
    held=frozenset({A, B}),
    window_shares=((A, 0.5), (B, 0.75)),
    batch_shares=((P, 0.6), (Q, 0.3)),
)


def test_of_shares_and_limits_the_smallest_counts_of_lanes_the_most_urgent_and_of_all_else_the_union() -> (
    None
):
    assert combined(ASKED) == TOGETHER


@given(st.permutations(ASKED), st.integers(0, len(ASKED)))
def test_neither_their_order_nor_how_often_one_is_asked_for_changes_anything(
    asked: list[Asked], again: int
) -> None:
    assert combined([*asked, *asked[:again]]) == TOGETHER


def test_where_nothing_is_asked_for_nothing_holds_and_each_action_does_one_thing() -> None:
    assert combined([]) == NO_EFFECTS
    alone = [combined([one]) for one in ASKED if one.action not in (WindowShare(1.0), BatchShare(1.0))]
    assert all(effects != NO_EFFECTS for effects in alone)
    for one in WORDS.values():
        effects = combined([Asked(one, (A,), (P,), 5.0)])
        changed = [
            name
            for name in Effects.__dataclass_fields__
            if getattr(effects, name) != getattr(NO_EFFECTS, name)
        ]
        assert len(changed) == (one != WindowShare(1.0)), (one, changed)


def test_no_rate_shuts_everybody_out() -> None:
    assert combined([Asked(LimitRate(0.9), requests_per_second=0.0)]).requests_per_second == MIN_PER_SECOND


def test_lanes_below_the_bound_are_refused_and_emergencies_never() -> None:
    order = [Lane.EMERGENCY, Lane.INTERACTIVE, Lane.STANDARD, Lane.BATCH]
    assert not any(refuses(NO_EFFECTS, lane) for lane in order)
    for index, bound in enumerate(order[:3]):
        effects = combined([Asked(RefuseBelow(bound))])
        assert [refuses(effects, lane) for lane in order] == [place > index for place in range(4)]
    for two in permutations(order, 2):
        bound_of_two = combined([Asked(RefuseBelow(lane)) for lane in two]).refuses_below
        assert bound_of_two is min(two, key=order.index)
