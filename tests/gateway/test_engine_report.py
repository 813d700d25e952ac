"""An engine's load, out of the pages that real engines sent and out of pages that no engine should send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine_report import LOAD_HEADER, read_load_header, read_loads, read_metrics, untold
from policies.dialects import NOTHING_TOLD, Dialect, EngineReport
from tests.captures import FIXTURES, split_answer

VLLM, SGLANG = Dialect.VLLM, Dialect.SGLANG
ENGINE_OF = {VLLM: "vllm-0.32.0", SGLANG: "sglang-0.5.23"}


def page(dialect: Dialect, name: str) -> bytes:
    return split_answer((FIXTURES / ENGINE_OF[dialect] / f"{name}.http").read_bytes())[1]


def header(name: str) -> bytes:
    value = split_answer((FIXTURES / ENGINE_OF[VLLM] / f"{name}.http").read_bytes())[0].value(LOAD_HEADER)
    assert value is not None
    return value


def vllm(*lines: str) -> EngineReport:
    return read_metrics("\n".join(lines).encode(), VLLM)


def sglang(*lines: str) -> EngineReport:
    return read_metrics("\n".join(lines).encode(), SGLANG)


STARTED_AT = 1796166190.05
CAPTURED = {
    (VLLM, "metrics-fresh"): EngineReport(0, 0, 0.0, None, 65536, 0, 0, started_at=STARTED_AT),
    (VLLM, "metrics-busy"): EngineReport(
        3, 8, 0.09770395701025891, None, 65536, 1600, 6704, started_at=STARTED_AT
    ),
    (SGLANG, "metrics-fresh"): EngineReport(0, 0, 0.0, None, 65536, None, 11),
    (SGLANG, "metrics-busy"): EngineReport(3, 8, 0.04, None, 65536, 3482, 5650),
}


@pytest.mark.parametrize(("capture", "report"), CAPTURED.items(), ids=lambda value: str(value[:2]))
def test_a_real_metrics_page_is_read(capture: tuple[Dialect, str], report: EngineReport) -> None:
    assert read_metrics(page(*capture), capture[0]) == report


@pytest.mark.parametrize("dialect", [VLLM, SGLANG])
@pytest.mark.parametrize(
    "name", ["metrics-after-load", "variants/queue-full-metrics", "variants/auth-none-metrics"]
)
def test_every_captured_metrics_page_tells_what_the_engine_is_at(dialect: Dialect, name: str) -> None:
    report = read_metrics(page(dialect, name), dialect)
    assert None not in (report.waiting, report.running, report.kv_usage, report.token_capacity)
    assert untold(report)[-1] == ("waiting_tokens" if dialect is VLLM else "started_at")
    assert report.prefix_queries is not None


def test_a_page_in_the_other_engines_dialect_tells_nothing() -> None:
    assert read_metrics(page(VLLM, "metrics-busy"), SGLANG) == NOTHING_TOLD
    assert read_metrics(page(SGLANG, "metrics-busy"), VLLM) == NOTHING_TOLD
    assert read_metrics(page(VLLM, "metrics-busy"), Dialect.UNKNOWN) == NOTHING_TOLD


def test_a_real_loads_page_is_read() -> None:
    busy = EngineReport(3, 8, 0.0392, 8, 65536, waiting_tokens=282, prefilled_tokens=3055)
    idle = EngineReport(0, 0, 0.0, 8, 65536, waiting_tokens=0, prefilled_tokens=11)
    assert read_loads(page(SGLANG, "loads-busy")) == busy
    assert read_loads(page(SGLANG, "get-v1-loads")) == idle
    assert untold(idle) == ["prefix_hits", "prefix_queries", "started_at"]


def test_real_load_headers_are_read_in_both_forms() -> None:
    for name in ("chat-orca-text", "chat-orca-json"):
        assert read_load_header(header(name)) == EngineReport(waiting=0, kv_usage=0.0)


def test_replicas_add_up_and_the_fullest_ones_cache_counts() -> None:
    assert vllm(
        *(f'vllm:num_requests_running{{engine="{n}",model_name="m"}} {n + 1}.0' for n in range(3)),
        *(f'vllm:num_requests_waiting{{model_name="m",engine="{n}"}} {n}' for n in range(3)),
        *(f'vllm:kv_cache_usage_perc{{engine="{n}"}} 0.{n + 2}' for n in range(3)),
        *(f'vllm:cache_config_info{{engine="{n}",kv_cache_size_tokens="1000"}} 1.0' for n in range(3)),
        'vllm:prefix_cache_hits_total{engine="0"} 5',
        'vllm:prefix_cache_hits_total{engine="1"} 1e2',
    ) == EngineReport(3, 6, 0.4, None, 3000, 105, None)


@pytest.mark.parametrize(
    ("lines", "started_at"),
    [
        (["process_start_time_seconds 1.79616619005e+09"], STARTED_AT),
        (["process_start_time_seconds 1796166190.05 1796166200000"], STARTED_AT),
        (['process_start_time_seconds{pod="a"} 5', 'process_start_time_seconds{pod="b"} 7'], 7.0),
        (["process_start_time_seconds 5", "process_start_time_seconds NaN"], None),
        (["process_start_time_seconds -1"], None),
        (["process_start_time_seconds_total 5", "# HELP process_start_time_seconds 5"], None),
        (["xprocess_start_time_seconds 5"], None),
    ],
)
def test_the_start_time_is_read_and_of_several_processes_the_youngest_counts(
    lines: list[str], started_at: float | None
) -> None:
    told = "vllm:num_requests_waiting 4"
    assert vllm(*lines, told) == vllm(told, *lines) == EngineReport(waiting=4, started_at=started_at)


def test_a_start_time_alone_is_any_servers_and_tells_nothing() -> None:
    assert vllm("process_start_time_seconds 1.79616619005e+09") == NOTHING_TOLD


def test_sglangs_data_parallel_ranks_add_up_and_its_tensor_parallel_ones_say_the_same_thing() -> None:
    assert sglang(
        'sglang:num_running_reqs{dp_rank="0",priority="",tp_rank="0"} 4',
        'sglang:num_running_reqs{dp_rank="0",priority="",tp_rank="1"} 4',
        'sglang:num_running_reqs{dp_rank="1",priority="",tp_rank="0"} 3',
        'sglang:num_running_reqs{dp_rank="1",priority="7",tp_rank="0"} 3',
    ) == EngineReport(running=7)


def test_older_names_count_where_the_newer_ones_are_missing() -> None:
    old = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5'
    assert vllm(old).kv_usage == 0.5
    assert vllm(old, 'vllm:kv_cache_usage_perc{model_name="m"} 0.25').kv_usage == 0.25
    assert vllm('vllm:cache_config_info{block_size="16",num_gpu_blocks="10"} 1.0').token_capacity == 160
    loads = sglang('sglang_num_running_reqs{dp_rank="0"} 2', 'sglang_num_waiting_reqs{dp_rank="0"} 1')
    assert loads == EngineReport(waiting=1, running=2)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "x", "0x10", "1e300"])
def test_what_is_no_count_is_missing_and_not_zero(value: str) -> None:
    good = 'vllm:num_requests_waiting{engine="0"} 3'
    assert vllm(good, f'vllm:num_requests_waiting{{engine="1"}} {value}') == NOTHING_TOLD
    assert vllm(good, f'vllm:num_requests_running{{engine="0"}} {value}') == EngineReport(waiting=3)


def test_names_that_only_begin_alike_and_comments_are_not_taken() -> None:
    assert (
        vllm(
            "# HELP vllm:num_requests_running 7",
            'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0',
            'vllm:prefix_cache_hits_created{engine="0"} 1.7e9',
            'xvllm:num_requests_running{engine="0"} 3.0',
            ' vllm:num_requests_running{engine="0"} 3.0',
            "vllm:num_requests_running",
        )
        == NOTHING_TOLD
    )


def test_labels_with_odd_values_and_lines_with_a_time_are_read() -> None:
    odd = r'vllm:num_requests_running{model_name="a} 9 \",engine=\"5 b\\",engine="0"} 2 1700000000000'
    assert vllm(odd, "vllm:num_requests_waiting 4").running == 2
    assert vllm(odd, "vllm:num_requests_waiting 4").waiting == 4


RANK = {"num_running_reqs": 2, "num_waiting_reqs": 1, "token_usage": 0.5, "max_running_requests": 8}


@pytest.mark.parametrize(
    ("content", "report"),
    [
        ({"loads": [RANK, RANK | {"token_usage": 1.5}]}, EngineReport(2, 4, 1.0, 16)),
        ({"loads": [RANK, {"num_running_reqs": 1}]}, EngineReport(running=3)),
        ({"loads": [RANK | {"num_running_reqs": True}]}, EngineReport(1, None, 0.5, 8)),
        ({"loads": [RANK | {"num_running_reqs": "2"}]}, EngineReport(1, None, 0.5, 8)),
        ({"loads": [RANK, 7]}, NOTHING_TOLD),
        ({"loads": []}, NOTHING_TOLD),
        ({"loads": {}}, NOTHING_TOLD),
        ({}, NOTHING_TOLD),
        ([{"dp_rank": 0, "num_reqs": 5, "num_waiting_reqs": 2}] * 2, EngineReport(waiting=4, running=6)),
        ([{"num_reqs": 1, "num_waiting_reqs": 2}], EngineReport(waiting=2, running=0)),
        ([{"num_reqs": 5}], NOTHING_TOLD),
        (7, NOTHING_TOLD),
    ],
)
def test_a_loads_page_of_either_age_is_read_as_far_as_it_tells(content: Any, report: EngineReport) -> None:
    assert read_loads(json.dumps(content).encode()) == report


@pytest.mark.parametrize(
    ("value", "report"),
    [
        (
            b"TEXT named_metrics.num_requests_waiting=2.0, named_metrics.kv_cache_usage_perc=0.25, "
            b"named_metrics.num_requests_waiting=3.0",
            EngineReport(waiting=5, kv_usage=0.25),
        ),
        (b"text named_metrics.num_requests_waiting=nan", NOTHING_TOLD),
        (b"TEXT", NOTHING_TOLD),
        (b'JSON {"named_metrics": {"num_requests_waiting": 4}}', EngineReport(waiting=4)),
        (b'JSON {"named_metrics": [1]}', NOTHING_TOLD),
        (b"JSON [1]", NOTHING_TOLD),
        (b"JSON {", NOTHING_TOLD),
        (b"BIN CgA=", NOTHING_TOLD),
        (b"", NOTHING_TOLD),
    ],
)
def test_a_load_header_is_read_as_far_as_it_tells(value: bytes, report: EngineReport) -> None:
    assert read_load_header(value) == report


def in_bounds(report: EngineReport) -> bool:
    counts = [value for value in report if isinstance(value, int)]
    return all(count >= 0 for count in counts) and 0 <= (report.kv_usage or 0) <= 1


NAMES = st.sampled_from(
    ["vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info", "sglang_token_usage", "sglang:num_queue_reqs"]
)  # fmt: skip
LABELS = st.text(st.sampled_from('engin="0",}{\\dp_rakvcstoe '), max_size=40)
VALUES = st.floats().map(str) | st.integers().map(str) | st.text(max_size=6)
LINES = st.builds("{}{{{}}} {}".format, NAMES, LABELS, VALUES) | st.text(max_size=20)
PAGES = st.binary() | st.lists(LINES, max_size=6).map(lambda lines: "\n".join(lines).encode())


@given(PAGES)
def test_no_metrics_page_makes_the_reader_raise(raw: bytes) -> None:
    for dialect in Dialect:
        assert in_bounds(read_metrics(raw, dialect))


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
RANKS = st.dictionaries(st.sampled_from([*RANK, "num_reqs", "max_total_num_tokens"]), LEAVES)
LOADS = st.lists(RANKS | LEAVES, max_size=3)


@given(
    st.binary()
    | (LOADS | st.fixed_dictionaries({"loads": LOADS})).map(lambda said: json.dumps(said).encode())
)
def test_no_loads_page_makes_the_reader_raise(raw: bytes) -> None:
    assert in_bounds(read_loads(raw))


NAMED = st.dictionaries(st.sampled_from(["num_requests_waiting", "kv_cache_usage_perc", "x"]), LEAVES)


@given(
    st.binary()
    | st.binary().map(lambda rest: b"TEXT " + rest)
    | NAMED.map(lambda named: b"JSON " + json.dumps({"named_metrics": named}).encode())
    | NAMED.map(
        lambda named: ("TEXT " + ", ".join(f"named_metrics.{k}={v}" for k, v in named.items())).encode()
    )
)
def test_no_load_header_makes_the_reader_raise(raw: bytes) -> None:
    assert in_bounds(read_load_header(raw))
