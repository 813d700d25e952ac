"""Every setting of one emulated engine, with unit, default and range.

Step time. A batch of B sequences holds each request for `base_ms + slope_ms * B` per `RESIDENCE_TOKENS`
output tokens, so one step lasts `(base_ms + slope_ms * B) / RESIDENCE_TOKENS` milliseconds. The defaults 110
and 5.25 are a line laid, by Little's law, through the field table of an eight-GPU fleet: batch 8 / 16 / 24 /
32 -> 420 / 680 / 850 / 920 requests per second. The line gives 421 / 660 / 814 / 921, at most 4.3 % off.

Prefill. Each prompt token that is not in the prefix cache adds `1 / prefill_tokens_per_second` to its step.
The default of 100,000 is an inference, not a measurement: a model of 1.5 billion parameters needs 3 GFLOP per
token, and half of an A100's 312 TFLOPS makes 104,000 tokens per second of that. It is also the right order
for the field table: at 76,000 the slope of 5.25 ms per request would be nothing but the prefill of a
400-token prompt, so the real rate is above that.

Limits. The KV default of 4,096 blocks is 65,536 tokens, which holds 32 of the field's longest requests twice
over: preemption has to be asked for with a smaller value. The table's P99 of 580 ms at batch 32 comes from
running out of memory and is not part of the fit. A request joins at the next step, so just as many clients as
slots, each asking again when it is answered, get about a step per request less than the table says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RESIDENCE_TOKENS = 20
"""Output tokens of the request that `base_ms` and `slope_ms` describe."""


class SchedulingPolicy(StrEnum):
    """Order of the waiting queue: arrival, or (priority, arrival) with the lower number first."""

    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One engine. Raises `ValueError` with the setting's name when a value is outside its range."""

    model: str = "emulated"
    seed: int = 0
    """Texts, ids and token counts are functions of this and of the requests in their order."""
    time_scale: float = 1.0
    """Factor on every step's duration; 0 answers at once. At least 0."""
    base_ms: float = 110.0
    slope_ms: float = 5.25
    prefill_tokens_per_second: float = 100_000.0
    max_num_seqs: int = 32
    """Sequences in one step, 1 to 4096. The default is the largest batch of the field table."""
    max_num_batched_tokens: int = 2048
    """Tokens in one step; longer prompts are prefilled in chunks. At least `max_num_seqs`."""
    max_num_queued_reqs: int = 0
    """Bound on running plus waiting sequences; beyond it a request gets 503. 0 is no bound."""
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FCFS
    kv_blocks: int = 4096
    """KV capacity in blocks of 16 tokens."""
    prefix_caching: bool = True
    max_model_len: int = 32_768
    """Prompt and answer together, in tokens; at most what the KV cache holds."""
    default_max_tokens: int = 20
    """Length of an answer whose request names none."""
    embedding_dimensions: int = 8
    keep_alive_seconds: float = 5.0
    """How long an idle connection stays open; not touched by `time_scale`."""
    api_keys: tuple[str, ...] = ()
    """When given, paths under `/v1` want one of them as a bearer token."""
    max_body_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        at_least = {
            "time_scale": 0,
            "base_ms": 0,
            "slope_ms": 0,
            "prefill_tokens_per_second": 1,
            "max_num_seqs": 1,
            "max_num_batched_tokens": self.max_num_seqs,
            "max_num_queued_reqs": 0,
            "kv_blocks": 1,
            "max_model_len": 2,
            "default_max_tokens": 1,
            "embedding_dimensions": 1,
            "keep_alive_seconds": 0.01,
            "max_body_bytes": 1,
        }
        for name, bound in at_least.items():
            if not getattr(self, name) >= bound:
                raise ValueError(f"{name} must be at least {bound}, not {getattr(self, name)}")
        if self.max_num_seqs > 4096:
            raise ValueError(f"max_num_seqs must be at most 4096, not {self.max_num_seqs}")
        if self.max_model_len > self.kv_blocks * 16:
            # One request must always fit alone: preempting everything else is the last thing the scheduler can do.
            raise ValueError(
                f"max_model_len must be at most kv_blocks * 16 = {self.kv_blocks * 16}, not {self.max_model_len}"
            )
