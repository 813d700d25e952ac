"""What the engine counts, under vLLM's names and with vLLM's bucket bounds (seen on vLLM 0.32.0).

An aborted request is in no histogram and in no `request_success`, only its tokens are counted: that is what
the real engine does. `metrics_page` turns this into text.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from gateway.emulator.sequence import Sequence

FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_SECONDS = (
    *(
        0.01,
        0.025,
        0.05,
        0.075,
        0.1,
        0.15,
        0.2,
        0.3,
        0.4,
        0.5,
        0.75,
        1.0,
        2.5,
        5.0,
        7.5,
        10.0,
        20.0,
        40.0,
        80.0,
    ),
)
REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
STEP_TOKENS = tuple(float(2**power) for power in (0, *range(3, 15)))
FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


def _token_bounds(at_most: int) -> tuple[float, ...]:
    bounds = (float(digit * 10**power) for power in range(9) for digit in (1, 2, 5))
    return tuple(bound for bound in bounds if bound <= at_most)


class Histogram:
    """Counts per bucket (not cumulative; the last one is +Inf) and the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Measurements:
    """Counters rise for the life of the engine; `finished` and `stepped` are called by the scheduler only."""

    def __init__(self, max_model_len: int) -> None:
        tokens = _token_bounds(max_model_len)
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.cached_prompt_tokens = 0
        self.generation_tokens = 0
        self.rejections = 0
        self.steps = 0
        self.success = dict.fromkeys(FINISHED_REASONS, 0)
        self.time_to_first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.inter_token = Histogram(TOKEN_SECONDS)
        self.time_per_output_token = Histogram(TOKEN_SECONDS)
        self.end_to_end = Histogram(REQUEST_SECONDS)
        self.queue_time = Histogram(REQUEST_SECONDS)
        self.inference_time = Histogram(REQUEST_SECONDS)
        self.prefill_time = Histogram(REQUEST_SECONDS)
        self.decode_time = Histogram(REQUEST_SECONDS)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.params_max_tokens = Histogram(tokens)
        self.prefill_computed = Histogram(tokens)
        self.params_n = Histogram((1.0, 2.0, 5.0, 10.0, 20.0))
        self.step_tokens = Histogram(STEP_TOKENS)
        self.request_preemptions = Histogram((0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0))

    def stepped(self, seconds: float, prefilled: int, continuing: int, first: int) -> None:
        """One step ended: tokens prefilled, sequences that got one more token, sequences that got their
        first."""
        self.steps += 1
        self.generation_tokens += continuing + first
        self.step_tokens.observe(prefilled + continuing + first)
        if continuing:
            self.inter_token.observe(seconds, continuing)

    def admitted(self, sequence: Sequence[Any], waited_seconds: float) -> None:
        """A sequence runs for the first time."""
        tokens = sequence.prompt.tokens
        self.prompt_tokens += tokens
        self.cached_prompt_tokens += sequence.cached_tokens
        self.prefix_queries += tokens
        self.prefix_hits += sequence.cached_tokens
        self.queue_time.observe(waited_seconds)

    def finished(self, sequence: Sequence[Any], now: float) -> None:
        self.success["stop" if sequence.stopped else "length"] += 1
        self.end_to_end.observe(now - sequence.arrived_at)
        self.inference_time.observe(now - sequence.admitted_at)
        self.prefill_time.observe(sequence.first_token_at - sequence.admitted_at)
        decode_seconds = now - sequence.first_token_at
        self.decode_time.observe(decode_seconds)
        if sequence.generated > 1:
            self.time_per_output_token.observe(decode_seconds / (sequence.generated - 1))
        self.request_prompt_tokens.observe(sequence.prompt.tokens)
        self.request_generation_tokens.observe(sequence.generated)
        self.prefill_computed.observe(sequence.prompt.tokens - sequence.cached_tokens)
        self.request_preemptions.observe(sequence.preemptions)
