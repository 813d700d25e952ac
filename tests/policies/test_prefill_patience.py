"""How long a line of prompts is worth what is cached behind it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.prefill_patience import PATIENCE, PREFERENCE_TOKENS, is_worth

TOKENS = st.floats(0, 1e6)


@given(TOKENS, TOKENS)
def test_no_longer_line_is_always_worth_it(ahead: float, spared: float) -> None:
    assert is_worth(ahead, ahead, 0.0)
    assert is_worth(0.0, ahead, spared)


@given(TOKENS, st.floats(0, 1e5))
def test_the_more_is_spared_the_longer_it_may_be(elsewhere: float, spared: float) -> None:
    most = PATIENCE * spared + PREFERENCE_TOKENS
    assert is_worth(elsewhere + most - 1, elsewhere, spared)
    assert not is_worth(elsewhere + most + 1, elsewhere, spared)


def test_a_mere_preference_waits_for_less_than_what_a_cached_prompt_is_worth() -> None:
    assert is_worth(PREFERENCE_TOKENS, 0.0, 0.0)
    assert not is_worth(5000.0, 0.0, 0.0)
    assert is_worth(5000.0, 0.0, 1000.0)
