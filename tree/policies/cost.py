"""What a request costs, in weighted tokens.

Formula: 1 * (prompt - cached) + 0.1 * cached + 2 * output. A token that is found in the engine's prefix cache is nearly free, one that is generated
takes a step of its own. Source: the 1 : 2 of VTC (Sheng 2024) and of the field's token-fair gateways.
Limit: the weights are not fitted to a model or an engine.
"""

from __future__ import annotations

CACHED_WEIGHT = 0.1
OUTPUT_WEIGHT = 2.0


def weighted_tokens(prompt_tokens: float, cached_tokens: float, output_tokens: float) -> float:
    return prompt_tokens - cached_tokens + CACHED_WEIGHT * cached_tokens + OUTPUT_WEIGHT * output_tokens
