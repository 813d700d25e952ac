"""The `/metrics` page: vLLM's names and labels for the engine, and DCGM's names for the GPU it pretends to
have.

The GPU's figures are modelled on the field table of an 80 GB card, by the number of running sequences B:
memory used 34 + 1.75 B GiB up to 79 (48, 62, 76, 79 at 8, 16, 24, 32; measured 48, 62, 75, 79), busy 50 + 1.9
B percent up to 100 (65, 80, 96, 100; measured 65, 82, 94, 100), idle 0. The temperature is an invention: 40 C
plus 0.4 per busy percent, below the usual alarm of 85 C. Both can be overridden by a fault. vLLM's `_created`
series are left out, and of the process's own only its start time is told. It is the engine's: several engines in one process started one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.emulator.answer import Answer
from gateway.emulator.faults import Faults
from gateway.emulator.measurements import Histogram
from gateway.emulator.scheduler import Engine
from gateway.emulator.settings import EngineSettings
from gateway.emulator.tokens import BLOCK_TOKENS

CONTENT_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
MEMORY_MIB = 80 * 1024


def gpu_busy_percent(running: int) -> float:
    return min(100.0, 50 + 1.9 * running) if running else 0.0


def gpu_memory_used_mib(running: int) -> float:
    return min(79.0, 34 + 1.75 * running) * 1024


def render(engine: Engine[Answer], faults: Faults, started_at: float) -> bytes:
    """`started_at` is in seconds since 1970."""
    return "".join(_page(engine, faults, started_at)).encode()


def _page(engine: Engine[Answer], faults: Faults, started_at: float) -> Iterator[str]:
    # In the exponent form in which the real page has it.
    yield f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {started_at:.11e}\n"
    measured = engine.measurements
    name = engine.settings.model.replace("\\", r"\\").replace('"', r"\"")
    label = f'engine="0",model_name="{name}"'
    waiting = len(engine.waiting)
    yield from _family("num_requests_running", "gauge", {label: len(engine.running)})
    yield from _family("num_requests_waiting", "gauge", {label: waiting})
    reasons = {f'{label},reason="capacity"': waiting, f'{label},reason="deferred"': 0}
    yield from _family("num_requests_waiting_by_reason", "gauge", reasons)
    states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
    sleep = {f'{label},sleep_state="{state}"': value for state, value in states.items()}
    yield from _family("engine_sleep_state", "gauge", sleep)
    yield from _family("kv_cache_usage_perc", "gauge", {label: engine.blocks.usage()})
    yield from _family("cache_config_info", "gauge", {_cache_config(engine.settings): 1})
    for counter, value in (
        ("prefix_cache_queries_total", measured.prefix_queries),
        ("prefix_cache_hits_total", measured.prefix_hits),
        ("external_prefix_cache_queries_total", 0),
        ("external_prefix_cache_hits_total", 0),
        ("mm_cache_queries_total", 0),
        ("mm_cache_hits_total", 0),
        ("num_preemptions_total", measured.preemptions),
        ("prompt_tokens_total", measured.prompt_tokens),
        ("prompt_tokens_cached_total", measured.cached_prompt_tokens),
        ("generation_tokens_total", measured.generation_tokens),
        ("corrupted_requests_total", 0),
    ):
        yield from _family(counter, "counter", {label: value})
    sources = {
        "local_compute": measured.prompt_tokens - measured.cached_prompt_tokens,
        "local_cache_hit": measured.cached_prompt_tokens,
        "external_kv_transfer": 0,
    }
    by_source = {f'{label},source="{source}"': value for source, value in sources.items()}
    yield from _family("prompt_tokens_by_source_total", "counter", by_source)
    success = {f'{label},finished_reason="{reason}"': count for reason, count in measured.success.items()}
    yield from _family("request_success_total", "counter", success)
    rejections = {"max_num_queued_reqs": measured.rejections, "max_num_queued_tokens": 0}
    rejected = {f'model_name="{name}",reason="{reason}"': count for reason, count in rejections.items()}
    yield from _family("admission_rejections_total", "counter", rejected)
    for family, histogram in (
        ("request_prompt_tokens", measured.request_prompt_tokens),
        ("request_generation_tokens", measured.request_generation_tokens),
        ("iteration_tokens_total", measured.step_tokens),
        ("request_max_num_generation_tokens", measured.params_max_tokens),
        ("request_params_n", measured.params_n),
        ("request_params_max_tokens", measured.params_max_tokens),
        ("time_to_first_token_seconds", measured.time_to_first_token),
        ("inter_token_latency_seconds", measured.inter_token),
        ("request_time_per_output_token_seconds", measured.time_per_output_token),
        ("e2e_request_latency_seconds", measured.end_to_end),
        ("request_queue_time_seconds", measured.queue_time),
        ("request_inference_time_seconds", measured.inference_time),
        ("request_prefill_time_seconds", measured.prefill_time),
        ("request_decode_time_seconds", measured.decode_time),
        ("request_num_preemptions", measured.request_preemptions),
        ("request_prefill_kv_computed_tokens", measured.prefill_computed),
    ):
        yield from _histogram(family, label, histogram)
    yield from _gpu(len(engine.running), faults)


def _gpu(running: int, faults: Faults) -> Iterator[str]:
    busy = gpu_busy_percent(running)
    used = gpu_memory_used_mib(running) if faults.gpu_memory_used_mib is None else faults.gpu_memory_used_mib
    warmth = 40 + 0.4 * busy if faults.gpu_temperature_celsius is None else faults.gpu_temperature_celsius
    label = 'gpu="0",UUID="GPU-emulated",device="emulated0",modelName="emulated"'
    for name, value in (
        ("GPU_TEMP", warmth),
        ("GPU_UTIL", busy),
        ("FB_USED", used),
        ("FB_FREE", max(0.0, MEMORY_MIB - used)),
    ):
        yield f"# TYPE DCGM_FI_DEV_{name} gauge\nDCGM_FI_DEV_{name}{{{label}}} {value:g}\n"


def _family(name: str, kind: str, series: Mapping[str, float]) -> Iterator[str]:
    # The exposition names a counter's family with its `_total`, as vLLM's page does.
    yield f"# TYPE vllm:{name} {kind}\n"
    for label, value in series.items():
        yield f"vllm:{name}{{{label}}} {float(value)}\n"


def _histogram(name: str, label: str, histogram: Histogram) -> Iterator[str]:
    yield f"# TYPE vllm:{name} histogram\n"
    count = 0
    for bound, inside in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        count += inside
        yield f'vllm:{name}_bucket{{{label},le="{bound}"}} {float(count)}\n'
    yield f"vllm:{name}_count{{{label}}} {float(count)}\nvllm:{name}_sum{{{label}}} {histogram.total}\n"


def _cache_config(settings: EngineSettings) -> str:
    facts = {
        "block_size": BLOCK_TOKENS,
        "enable_prefix_caching": settings.prefix_caching,
        "engine": 0,
        "kv_cache_size_tokens": settings.kv_blocks * BLOCK_TOKENS,
        "num_gpu_blocks": settings.kv_blocks,
    }
    return ",".join(f'{name}="{value}"' for name, value in facts.items())
