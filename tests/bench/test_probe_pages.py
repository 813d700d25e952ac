"""The pages that probes are measured with are of the size that the bar speaks of, and tell all that real ones do."""

from __future__ import annotations

from gateway.engine_report import read_metrics
from gateway.gpu_report import GpuPage, read_gpu
from gateway.gpu_settings import GpuSettings
from policies.dialects import Dialect
from policies.gpu_report import GpuReport
from tests.bench.probe_pages import PAGE_BYTES, dcgm_page, vllm_page
from tests.captures import FIXTURES, split_answer


def test_the_engines_page_is_a_real_one_grown_to_the_size_of_the_bar() -> None:
    _, captured = split_answer((FIXTURES / "vllm-0.32.0/metrics-busy.http").read_bytes())
    assert PAGE_BYTES <= len(vllm_page()) <= 1.25 * PAGE_BYTES
    assert vllm_page().count(b"\n") == captured.count(b"\n")
    assert read_metrics(vllm_page(), Dialect.VLLM) == read_metrics(captured, Dialect.VLLM)


def test_the_exporters_page_tells_all_of_eight_gpus() -> None:
    report = read_gpu(GpuPage(dcgm_page()), GpuSettings(url="http://x"), 0.0)
    assert report == GpuReport(58.0, 71_588 / (71_588 + 9_321 + 651), 0.93)
