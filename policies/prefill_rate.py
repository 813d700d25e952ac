"""How many prompt tokens per second an engine prefills, from the first bytes of its own answers.

Decides: `tokens_per_second`, over the last `MEMORY_SAMPLES` 32 samples the `PERCENTILE` 0.75 of   tokens / seconds.
    tokens    prompt tokens in prefill at one request's dispatch, its own included: what the engine has to compute before its first token
    seconds   until the first byte of its answer, since the first of those tokens is being computed: since the first byte before the dispatch,
              or, if nothing else was in prefill, since the dispatch
From the dispatch alone the seconds would be too few, for part of what is ahead is done by then: beside prompts of 8,000 tokens up to 70 % too fast.
A sample has `MANY_TOKENS` 1,024 or more: with fewer the seconds are a decode step and the network. Unknown until there are `ENOUGH_SAMPLES` 20.
The percentile is above the middle because the seconds also hold what is not prefill of these tokens (decode, later prompts in the same step,
a stall): of prompts that go together the last one tells the step's rate, the first one a part of it.
Where the rate is too low because answers begin late for other reasons, throughput is safe: by Little's law a limit of seconds * rate binds only where
first bytes take about these seconds, so never short prompts that are soon begun.
Not samples: a prompt of which the engine found more than `MOST_CACHED` 10 % in its prefix cache.
Inputs: tokens and seconds above 0.
Measured against the emulated engine in virtual time (10,000 tokens per second, steps of 2,048 and 8,192 tokens, loads of 0.6 to 1.3 times what it can
do): the median is within 11 % of what the engine prefilled in the steps in which it did, a single moment within 25 %.
Limits: tokens are the gateway's estimates. Where the engine does not say what it found in its cache, that counts as computed: then it is the rate at which
it takes prompts in, which is what a limit in the same tokens needs. Waiting for a slot or for KV cache counts as prefill. What other gateways send, and
prompts of answers that are not streamed, are not in `tokens`; their time is in `seconds`. An engine that got slower is seen when 25 samples of it
have ended, one that got faster after 8.
"""

from __future__ import annotations

MANY_TOKENS = 1024
MEMORY_SAMPLES = 32
ENOUGH_SAMPLES = 20
PERCENTILE = 0.75
MOST_CACHED = 0.1

PrefillRate = tuple[float, ...]
"""Tokens per second of the last samples, oldest first."""
UNKNOWN: PrefillRate = ()


def sampled(rate: PrefillRate, tokens: float, seconds: float) -> PrefillRate:
    return rate if tokens < MANY_TOKENS else (*rate[1 - MEMORY_SAMPLES :], tokens / seconds)


def tokens_per_second(rate: PrefillRate) -> float | None:
    """None while it is unknown."""
    return sorted(rate)[int(PERCENTILE * len(rate))] if len(rate) >= ENOUGH_SAMPLES else None


def is_sample(prompt_tokens: float, cached_tokens: float) -> bool:
    """Of one request, as the engine counted them; where it says nothing of its cache that is 0."""
    return cached_tokens <= MOST_CACHED * prompt_tokens
