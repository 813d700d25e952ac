"""The engines' dialects: by which names each tells its load, and how a request's urgency is said to it.

Decides: the `priority` that goes into a request for an engine. With urgency u = 0 (emergency) .. 3 (batch): vLLM takes u, lower is earlier;
SGLang takes 3 - u, higher is earlier, or u where `--schedule-low-priority-values-first` turned its sign. SGLang pre-empts *running* work for
a request that is more than `--priority-scheduling-preemption-threshold` (default 10) above it, so the levels lie one apart: they jump the
waiting queue and nothing else for every threshold from 3 on, and stay within 0..31, beyond which its metrics lose them.
None where nothing may be sent: the engine has no priority scheduling, SGLang does not say which sign it has (one may even answer 503 to any
priority, `--abort-on-priority-when-disabled`), or the engine is of another kind. vLLM does not say whether it has priority scheduling and
takes a priority without it as if it were not there, so there it is the operator's word that counts.

`LOAD_NAMES`: names of the metrics page, the first of a field that is there counts. Sources: vLLM 0.32 and SGLang 0.5.23, older names after.
Limit: vLLM tells its slots (`--max-num-seqs`) nowhere outside its development mode, and SGLang's old `max_running_requests` gauge is gone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from policies.terms import Lane


class Dialect(StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"
    UNKNOWN = "unknown"


class EngineFlags(NamedTuple):
    """What an engine says about how it was started. None: it does not say."""

    version: str = ""
    priority_scheduling: bool | None = None
    lower_is_urgent: bool = False
    """Of SGLang: its sign was turned to vLLM's."""
    tells_cached_tokens: bool | None = None
    """`usage` has `prompt_tokens_details.cached_tokens`."""


class EngineReport(NamedTuple):
    """An engine's load at one moment, summed over its replicas. None is what it did not tell, never zero."""

    waiting: int | None = None
    running: int | None = None
    kv_usage: float | None = None
    """Share of the KV cache in use, 0 to 1; of the fullest replica."""
    max_num_seqs: int | None = None
    """Most requests that run at a time."""
    token_capacity: int | None = None
    """Tokens that the KV cache holds."""
    prefix_hits: int | None = None
    """Prompt tokens found in the prefix cache since the engine's start."""
    prefix_queries: int | None = None
    """Prompt tokens looked for in it."""
    waiting_tokens: int | None = None
    """Prompt tokens of the waiting requests that no cache covers."""
    started_at: float | None = None
    """When the engine's process started, as it says: Unix time in seconds. SGLang says it nowhere."""
    prefilled_tokens: int | None = None
    """Prompt tokens computed since the engine's start because no cache held them: all that SGLang's `/v1/loads` tells of its cache."""


NOTHING_TOLD = EngineReport()


def amended(report: EngineReport | None, told: EngineReport) -> EngineReport:
    """What was known, with what has been told since in its place: a part of a report leaves the rest as it was."""
    if report is None:
        return told
    return report._replace(**{name: value for name, value in told._asdict().items() if value is not None})


def sizes_of(report: EngineReport) -> EngineReport:
    """What of it does not age."""
    return EngineReport(
        max_num_seqs=report.max_num_seqs, token_capacity=report.token_capacity, started_at=report.started_at
    )


class LoadNames(NamedTuple):
    """Names on the metrics page, each after `family` and one of `separators`."""

    family: str
    separators: str
    replica_label: str
    """Series that differ in it are replicas and add up; series that share it say the same thing again."""
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_usage: tuple[str, ...]
    max_num_seqs: tuple[str, ...] = ()
    token_capacity: tuple[str, ...] = ()
    capacity_labels: str = ""
    """An info series whose labels tell the KV cache's size."""
    prefix_hits: tuple[str, ...] = ()
    prefix_queries: tuple[str, ...] = ()


LOAD_NAMES: dict[Dialect, LoadNames] = {
    Dialect.VLLM: LoadNames(
        family="vllm",
        separators=":",
        replica_label="engine",
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        kv_usage=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        capacity_labels="cache_config_info",
        prefix_hits=("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        prefix_queries=("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    ),
    Dialect.SGLANG: LoadNames(
        family="sglang",
        separators=":_",
        replica_label="dp_rank",
        running=("num_running_reqs",),
        waiting=("num_queue_reqs", "num_waiting_reqs"),
        kv_usage=("token_usage",),
        max_num_seqs=("max_running_requests",),
        token_capacity=("max_total_num_tokens",),
        prefix_hits=("cached_tokens_total",),
        prefix_queries=("prompt_tokens_total",),
    ),
}

_MOST_URGENT_FIRST = tuple(Lane)


def engine_priority(lane: Lane, dialect: Dialect, flags: EngineFlags) -> int | None:
    """The value of the body's `priority`, None to send none."""
    urgency = _MOST_URGENT_FIRST.index(lane)
    if dialect is Dialect.VLLM:
        return None if flags.priority_scheduling is False else urgency
    if dialect is Dialect.SGLANG and flags.priority_scheduling:
        return urgency if flags.lower_is_urgent else len(_MOST_URGENT_FIRST) - 1 - urgency
    return None
