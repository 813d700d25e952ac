"""Whether one more request fits into a backend's KV cache and its prefill."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.capacity_tokens import (
    KV_SHARE,
    LEAST_PREFILL_TOKENS,
    TokenRules,
    fits,
    is_prefill_measured,
    prefill_limit,
    token_limit,
)

TOKENS = st.integers(0, 1_000_000)


@pytest.mark.parametrize(
    ("configured", "told", "limit"),
    [(None, None, inf), (None, 0, inf), (None, 1000, KV_SHARE * 1000), (300, 1000, 300), (3000, None, 3000)],
)
def test_the_configured_limit_goes_before_the_engines_and_without_both_there_is_none(
    configured: int | None, told: int | None, limit: float
) -> None:
    assert token_limit(TokenRules(max_tokens=configured), told) == limit


def test_the_prefill_has_no_limit_where_none_is_configured() -> None:
    assert prefill_limit(TokenRules()) == inf
    assert prefill_limit(TokenRules(), 1000.0) == inf
    assert not is_prefill_measured(TokenRules())


@pytest.mark.parametrize("measured", [None, 1000.0])
def test_a_prefill_limit_that_is_configured_goes_before_a_measured_one(measured: float | None) -> None:
    rules = TokenRules(max_prefill_tokens=7, prefill_seconds=1.0)
    assert prefill_limit(rules, measured) == 7
    assert not is_prefill_measured(rules)


@pytest.mark.parametrize(
    ("seconds", "measured", "limit"),
    [
        (1.0, None, inf),
        (1.0, 10_000.0, 10_000),
        (0.5, 10_000.0, 5_000),
        (0.1, 10_000.0, LEAST_PREFILL_TOKENS),
    ],
)
def test_a_measured_limit_is_what_is_prefilled_in_so_many_seconds_and_a_step_at_least(
    seconds: float, measured: float | None, limit: float
) -> None:
    rules = TokenRules(prefill_seconds=seconds)
    assert is_prefill_measured(rules)
    assert prefill_limit(rules, measured) == limit


@given(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)
def test_an_empty_backend_takes_any_request(
    reserved: int, limit: int, tokens: int, backlog: int, prefill: int, prompt: int
) -> None:
    assert fits(0, reserved, limit, tokens, backlog, prefill, prompt)


@pytest.mark.parametrize(("tokens", "taken"), [(40, True), (41, False)])
def test_tokens_fit_up_to_the_limit(tokens: int, taken: bool) -> None:
    assert fits(1, 60, 100, tokens) is taken


@pytest.mark.parametrize(
    ("backlog", "prompt", "taken"), [(60, 40, True), (60, 41, False), (0, 101, True), (1, 100, False)]
)
def test_prefill_fits_up_to_its_limit_and_alone_whatever_its_length(
    backlog: int, prompt: int, taken: bool
) -> None:
    assert fits(3, 0, inf, prompt, backlog, 100, prompt) is taken


@given(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, st.integers(0, 1000))
def test_what_does_not_fit_does_not_fit_with_more_there(
    reserved: int, limit: int, tokens: int, backlog: int, prefill: int, prompt: int, more: int
) -> None:
    if not fits(1, reserved, limit, tokens, backlog, prefill, prompt):
        assert not fits(2, reserved + more, limit, tokens, backlog or 1, prefill, prompt) or backlog == 0
        assert not fits(1, reserved, limit, tokens + more, backlog, prefill, prompt + more)
