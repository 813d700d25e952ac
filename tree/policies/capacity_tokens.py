"""Whether one more request fits a backend: into its window, its KV cache and its prefill.

Decides: `fits`, for one request at one backend, all three bounds at once.
    in flight < window
    tokens reserved + request's tokens <= token capacity      tokens: prompt + 90th percentile of the output, held until the request ends
    prefill backlog + request's uncached prompt <= limit      backlog: uncached prompt tokens sent whose first byte has not come
An empty backend takes any request, however long: whether it is too long at all is the engine's to say. The same holds for the prefill
alone: a long prompt goes where nothing else is being prefilled, else it would wait for ever.
`token_capacity`: `KV_SHARE` 0.9 of what the engine says its KV cache holds (vLLM: num_gpu_blocks * block_size; SGLang: max_total_num_tokens); the rest
is for answers that get longer than reserved. Infinite where the engine does not say. `prefill_limit`: the tokens that the engine prefills
within the time that a first byte may take; infinite where its speed is not known.
Limits: cached prefixes that requests share are counted once per request, so a well-used prefix cache makes the reservation too careful.
"""

from __future__ import annotations

from math import inf

KV_SHARE = 0.9


def token_capacity(kv_tokens: int | None) -> float:
    """Of an engine whose KV cache holds `kv_tokens`, None where it does not say."""
    return inf if not kv_tokens else KV_SHARE * kv_tokens


def prefill_limit(target_seconds: float, prefill_tokens_per_second: float | None) -> float:
    """Uncached prompt tokens that may be under way at once."""
    return inf if prefill_tokens_per_second is None else target_seconds * prefill_tokens_per_second


def fits(
    in_flight: int,
    window: float,
    tokens_reserved: float,
    token_capacity: float,
    request_tokens_p90: float,
    prefill_backlog: float = 0.0,
    prefill_limit: float = inf,
    request_prefill: float = 0.0,
) -> bool:
    """Reserve in the same step: two requests that are both told yes on the same numbers may not both fit."""
    if in_flight >= window:
        return False
    if in_flight > 0 and tokens_reserved + request_tokens_p90 > token_capacity:
        return False
    return prefill_backlog <= 0 or prefill_backlog + request_prefill <= prefill_limit
