"""Whether one more request fits a backend."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.capacity_tokens import fits, prefill_limit, token_capacity

TOKENS = st.floats(1, 10_000)


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=60), st.integers(1, 40), TOKENS, TOKENS)
def test_what_was_let_in_stays_within_all_three_bounds_but_for_a_first_one(
    requests: list[tuple[float, float]], window: int, capacity: float, limit: float
) -> None:
    held: list[float] = []
    backlog: list[float] = []
    for tokens, prefill in requests:
        if fits(len(held), window, sum(held), capacity, tokens, sum(backlog), limit, prefill):
            held.append(tokens)
            backlog.append(prefill)
    assert len(held) <= window
    assert sum(held) <= capacity or len(held) == 1
    assert sum(backlog) <= limit or len(backlog) == 1


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_an_empty_backend_takes_any_request(
    tokens: float, prefill: float, capacity: float, limit: float
) -> None:
    assert fits(0, 1, 0.0, capacity, tokens, 0.0, limit, prefill)


@given(st.integers(0, 50), st.integers(1, 50), TOKENS, TOKENS)
def test_where_the_engine_says_nothing_only_the_window_counts(
    in_flight: int, window: int, reserved: float, tokens: float
) -> None:
    unknown = token_capacity(None)
    assert fits(in_flight, window, reserved, unknown, tokens, reserved, prefill_limit(0.5, None), tokens) == (
        in_flight < window
    )


@pytest.mark.parametrize(
    ("in_flight", "reserved", "tokens", "backlog", "prefill", "expected"),
    [
        (1, 800.0, 100.0, 0.0, 400.0, True),
        (1, 800.0, 101.0, 0.0, 400.0, False),
        (4, 100.0, 100.0, 0.0, 100.0, False),
        (1, 100.0, 100.0, 100.0, 100.0, True),
        (1, 100.0, 100.0, 101.0, 100.0, False),
        (1, 100.0, 100.0, 0.0, 900.0, True),
    ],
)
def test_examples(
    in_flight: int, reserved: float, tokens: float, backlog: float, prefill: float, expected: bool
) -> None:
    capacity, limit = token_capacity(1000), prefill_limit(0.5, 400.0)
    assert (capacity, limit) == (900.0, 200.0)
    assert fits(in_flight, 4, reserved, capacity, tokens, backlog, limit, prefill) is expected


def test_an_empty_number_is_unknown_not_zero() -> None:
    assert token_capacity(0) == inf
