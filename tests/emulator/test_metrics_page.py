"""The metrics page: vLLM's names, types and labels, and figures that agree with what was served."""

from __future__ import annotations

import re
import time

from prometheus_client.parser import text_string_to_metric_families

from gateway.emulator.metrics_page import gpu_busy_percent, gpu_memory_used_mib
from gateway.emulator.settings import EngineSettings
from tests import client
from tests.emulator.captures import captured_answer
from tests.emulator.running import chat, chat_request, engine, get, until

ABSENT = (
    "_created",
    "vllm:estimated_",
    "vllm:prompt_tokens_cached_by_source",
    "vllm:lora",
    "vllm:tool_call_parser",
)


def series(page: str) -> dict[tuple[str, frozenset[str]], float]:
    """Each sample by its name and its label names; of several the last."""
    return {
        (sample.name, frozenset(sample.labels)): float(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


async def test_every_series_of_the_real_page_is_there_with_its_labels() -> None:
    async with engine() as server:
        answer = await get(server, "/metrics")
    ours, theirs = series(answer.body.decode()), series(captured_answer("metrics-busy").decode())
    wanted = {
        (name, labels)
        for name, labels in theirs
        if name.startswith("vllm:")
        and name != "vllm:cache_config_info"
        and not any(part in name for part in ABSENT)
    }
    assert wanted <= set(ours)
    assert answer.value(b"content-type") == b"text/plain; version=1.0.0; charset=utf-8"


async def test_the_start_time_is_told_as_the_real_page_tells_it_and_stays_the_same() -> None:
    def told(page: bytes) -> list[str]:
        lines = page.decode().splitlines()
        return [line for line in lines if "process_start_time_seconds" in line and "# HELP" not in line]

    before = time.time()
    async with engine() as server:
        pages = [(await get(server, "/metrics")).body for _ in range(2)]
    kind, sample = told(pages[0])
    assert told(pages[1]) == [kind, sample]
    their_kind, their_sample = told(captured_answer("metrics-busy"))
    assert kind == their_kind
    name, value = sample.split()
    assert name == their_sample.split()[0]
    assert re.fullmatch(r"\d\.\d{11}e\+09", value) and re.fullmatch(
        r"\d\.\d{1,11}e\+09", their_sample.split()[1]
    )
    assert before - 0.01 <= float(value) <= time.time() + 0.01


async def test_types_are_those_of_the_real_page() -> None:
    def types(page: str) -> dict[str, str]:
        lines = (line.split() for line in page.splitlines() if line.startswith("# TYPE vllm:"))
        return {line[2]: line[3] for line in lines}

    async with engine() as server:
        ours = types((await get(server, "/metrics")).body.decode())
    theirs = types(captured_answer("metrics-busy").decode())
    assert {name: kind for name, kind in ours.items() if name in theirs} == {
        name: theirs[name] for name in ours if name in theirs
    }


async def test_counters_and_gauges_agree_with_what_was_served() -> None:
    async with engine(EngineSettings(base_ms=20, slope_ms=0, max_num_seqs=2)) as server:
        for _ in range(2):
            assert (await chat(server, "word " * 80, max_tokens=5)).status == 200
        async with await client.connect(server.port) as connection:
            await connection.send(chat_request(n=3, temperature=1, max_tokens=30_000, stream=True))
            await until(lambda: len(server.engine.running) == 2)
            page = (await get(server, "/metrics")).body.decode()
    found = series(page)
    label = frozenset({"engine", "model_name"})
    assert found["vllm:num_requests_running", label] == 2
    assert found["vllm:num_requests_waiting", label] == 1
    assert found["vllm:prefix_cache_hits_total", label] == 96
    assert found["vllm:kv_cache_usage_perc", label] > 0
    assert found["vllm:e2e_request_latency_seconds_count", label] == 2
    assert found["vllm:request_generation_tokens_sum", label] == 10
    assert 'vllm:request_success_total{engine="0",model_name="emulated",finished_reason="length"} 2.0' in page


def test_the_gpu_model_stays_near_the_field_table() -> None:
    measured = {8: (65, 48), 16: (82, 62), 24: (94, 75), 32: (100, 79)}
    for batch, (busy, gib) in measured.items():
        assert abs(gpu_busy_percent(batch) - busy) <= 2
        assert abs(gpu_memory_used_mib(batch) / 1024 - gib) <= 1
