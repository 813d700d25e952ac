"""Whether one more request fits a backend's KV cache and its prefill, beside the window that counts requests.

Decides: `fits`, for one request at one backend, both bounds at once.
    tokens reserved + request's tokens <= token limit         tokens: prompt + 90th percentile of the output, held until the request ends
    prefill backlog + request's prompt <= prefill limit       backlog: prompt tokens sent whose first byte has not come
An empty backend takes any request, however long: whether it is too long at all is the engine's to say. The same holds for the prefill
alone: a long prompt goes where nothing else is being prefilled, else it would wait for ever.
`token_limit`: what is configured, else `KV_SHARE` 0.9 of what the engine says its KV cache holds (vLLM: num_gpu_blocks * block_size; SGLang:
max_total_num_tokens); the rest is for answers that get longer than reserved. Infinite where neither says.
Settings: `max_tokens` and `max_prefill_tokens` (1..1,000,000,000 tokens); None is the engine's word, and no limit of the prefill.
Limits: prefixes that requests share are counted once per request, so where a long one is shared the reservation is too careful: a
`max_tokens` beyond what the engine holds switches it off. Tokens are estimates; other gateways' requests are not seen.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

KV_SHARE = 0.9


class TokenRules(NamedTuple):
    max_tokens: int | None = None
    max_prefill_tokens: int | None = None
    by_engine: bool = True
    """Whether the engine's word counts where `max_tokens` is None."""


def token_limit(rules: TokenRules, kv_tokens: int | None) -> float:
    """Of an engine whose KV cache holds `kv_tokens`, None where it does not say."""
    if rules.max_tokens is not None:
        return rules.max_tokens
    return KV_SHARE * kv_tokens if rules.by_engine and kv_tokens else inf


def prefill_limit(rules: TokenRules) -> float:
    return inf if rules.max_prefill_tokens is None else rules.max_prefill_tokens


def fits(
    in_flight: int,
    reserved: float,
    max_tokens: float,
    tokens: float,
    backlog: float = 0.0,
    max_prefill_tokens: float = inf,
    prompt_tokens: float = 0.0,
) -> bool:
    """Reserve in the same step: two requests that are both told yes on the same numbers may not both fit."""
    if in_flight <= 0:
        return True
    if reserved + tokens > max_tokens:
        return False
    return backlog <= 0 or backlog + prompt_tokens <= max_prefill_tokens
