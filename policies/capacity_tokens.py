"""Whether one more request fits a backend's KV cache and its prefill, beside the window that counts requests.

Decides: `fits`, for one request at one backend, both bounds at once.
    tokens reserved + request's tokens <= token limit         tokens: prompt + 90th percentile of the output, held until the request ends
    prefill backlog + request's prompt <= prefill limit       backlog: prompt tokens sent whose first byte has not come
An empty backend takes any request, however long: whether it is too long at all is the engine's to say. The same holds for the prefill
alone: a long prompt goes where nothing else is being prefilled, else it would wait for ever.
`token_limit`: what is configured, else `KV_SHARE` 0.9 of what the engine says its KV cache holds (vLLM: num_gpu_blocks * block_size; SGLang:
max_total_num_tokens); the rest is for answers that get longer than reserved. Infinite where neither says.
`prefill_limit`: what is configured; else, in an automatic window, what the engine prefills in so many seconds, `policies.prefill_rate`:
    max(LEAST_PREFILL_TOKENS, prefill seconds * prefill tokens per second)
so that who is sent has its first byte in about these seconds, and what would wait longer in the engine, in its order, waits here, in ours. The least is
what vLLM computes in one step (`max_num_batched_tokens` from 2,048 on, SGLang's chunks as well): fewer would leave a step unfilled. The engine
is short of nothing as long as it prefills for longer than a slot takes to be filled anew. Infinite while the rate is unknown.
Settings: `max_tokens` and `max_prefill_tokens` (1..1,000,000,000 tokens); None is the engine's word, and the automatic limit or none.
`prefill_seconds` (0.01..3600 s; None is no automatic limit).
Limits: prefixes that requests share are counted once per request, so where a long one is shared the reservation is too careful: a
`max_tokens` beyond what the engine holds switches it off. Tokens are estimates; other gateways' requests are not seen.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

KV_SHARE = 0.9
LEAST_PREFILL_TOKENS = 2048


class TokenRules(NamedTuple):
    max_tokens: int | None = None
    max_prefill_tokens: int | None = None
    by_engine: bool = True
    """Whether the engine's word counts where `max_tokens` is None."""
    prefill_seconds: float | None = None
    """Where `max_prefill_tokens` is None: how long the engine may have to prefill."""


def token_limit(rules: TokenRules, kv_tokens: int | None) -> float:
    """Of an engine whose KV cache holds `kv_tokens`, None where it does not say."""
    if rules.max_tokens is not None:
        return rules.max_tokens
    return KV_SHARE * kv_tokens if rules.by_engine and kv_tokens else inf


def is_prefill_measured(rules: TokenRules) -> bool:
    return rules.max_prefill_tokens is None and rules.prefill_seconds is not None


def prefill_limit(rules: TokenRules, tokens_per_second: float | None = None) -> float:
    """Of an engine that prefills so many, None where that is unknown."""
    if rules.max_prefill_tokens is not None:
        return rules.max_prefill_tokens
    if rules.prefill_seconds is None or tokens_per_second is None:
        return inf
    return max(LEAST_PREFILL_TOKENS, rules.prefill_seconds * tokens_per_second)


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
