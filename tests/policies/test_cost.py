"""What a request costs, in weighted tokens."""

from __future__ import annotations

from policies.cost import weighted_tokens


def test_an_output_token_costs_two_and_a_cached_one_a_tenth_of_a_prompt_token() -> None:
    assert weighted_tokens(100.0, 0.0, 0.0) == 100.0
    assert weighted_tokens(100.0, 40.0, 0.0) == 64.0
    assert weighted_tokens(100.0, 100.0, 10.0) == 30.0
