"""What pages tell of a backend's GPUs: DCGM's and nvidia_gpu_exporter's by themselves, any other by the names that are configured; what is odd or old is unknown."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.gpu_report import GpuPage, read_gpu, tells_nothing, untold
from gateway.gpu_settings import GpuSettings
from policies.gpu_report import NO_GPU, GpuReport

NOW = 1_796_000_000.0
TEMPERATURE, UTILISATION = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"
USED, FREE, RESERVED = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"
DCGM_LABELS = (
    'gpu="{gpu}",UUID="GPU-{gpu}d1c",pci_bus_id="00000000:0{gpu}:00.0",device="nvidia{gpu}",'
    'modelName="NVIDIA A100-SXM4-80GB",Hostname="{node}",DCGM_FI_DRIVER_VERSION="570.86.15"'
)


def dcgm(name: str, *values: object, node: str = "n1") -> str:
    """One name's part of a dcgm-exporter's page, the values of GPUs 0, 1, ..."""
    lines = [f"# HELP {name} As DCGM says (in its unit).", f"# TYPE {name} gauge"]
    lines += [
        f"{name}{{{DCGM_LABELS.format(gpu=gpu, node=node)}}} {value}" for gpu, value in enumerate(values)
    ]
    return "\n".join(lines) + "\n"


def read(page: str | bytes, **settings: Any) -> GpuReport:
    raw = page.encode() if isinstance(page, str) else page
    return read_gpu(GpuPage(raw), GpuSettings(url="http://x/metrics", **settings), NOW)


FOUR_GPUS = (
    dcgm("DCGM_FI_DEV_SM_CLOCK", 1410, 1410, 1410, 1410)
    + dcgm("DCGM_FI_DEV_MEMORY_TEMP", 99, 99, 99, 99)
    + dcgm(TEMPERATURE, 41, 88, 42, 40)
    + dcgm(UTILISATION, 100, 50, 30, 20)
    + dcgm(FREE, 79_000, 79_000, 19_000, 79_000)
    + dcgm(USED, 1_000, 1_000, 60_000, 1_000)
    + dcgm(RESERVED, 1_000, 1_000, 1_000, 1_000)
)


def test_of_a_dcgm_exporters_page_the_hottest_and_the_fullest_gpu_count_and_the_mean_of_their_work() -> None:
    assert read(FOUR_GPUS) == GpuReport(88.0, 0.75, 0.5)


def test_labels_choose_the_gpus_that_are_the_backends() -> None:
    two_nodes = FOUR_GPUS + dcgm(TEMPERATURE, 70, node="n2")
    assert read(FOUR_GPUS, labels=("gpu=0",)) == GpuReport(41.0, 1_000 / 81_000, 1.0)
    assert read(FOUR_GPUS, labels=("gpu=2", "gpu=3")) == GpuReport(42.0, 0.75, 0.25)
    assert read(two_nodes, labels=("gpu=0", "Hostname=n2")).temperature_celsius == 70.0
    assert read(two_nodes, labels=("gpu=0",)).temperature_celsius == 70.0, "of either node"
    assert read(FOUR_GPUS, labels=('gpu = "1"',)).temperature_celsius == 88.0
    assert read(FOUR_GPUS, labels=("gpu=7",)) == NO_GPU
    assert read(FOUR_GPUS, labels=("gpu=0", "rack=1")) == NO_GPU
    assert (
        read('nvidia_smi_temperature_gpu{path="C:\\\\x"} 5', labels=("path=C:\\x",)).temperature_celsius == 5
    )


def test_memory_is_a_share_of_what_is_told_to_be_all_or_of_used_and_free() -> None:
    assert read(dcgm(USED, 60) + dcgm(FREE, 20)).memory_used_ratio == 0.75, "older DCGM tells no reserved"
    assert read(dcgm(USED, 60) + dcgm("DCGM_FI_DEV_FB_TOTAL", 80)).memory_used_ratio == 0.75
    assert read(dcgm(USED, 0) + dcgm(FREE, 80)).memory_used_ratio == 0.0


@pytest.mark.parametrize(
    "page",
    [
        dcgm(USED, 60),
        dcgm(FREE, 20),
        dcgm(USED, 60, 60) + dcgm(FREE, 20),
        dcgm(USED, 0) + dcgm(FREE, 0),
        dcgm(USED, 60) + dcgm(FREE, 20, node="n2"),
        dcgm(USED, 60) + dcgm(FREE, "NaN"),
        dcgm(USED, 60) + dcgm(FREE, 20) + dcgm(RESERVED, "NaN"),
        dcgm(USED, 90) + dcgm("DCGM_FI_DEV_FB_TOTAL", 80),
        dcgm(USED, 1e308) + dcgm(FREE, 1e308),
        dcgm(USED, 0x7FFFFFF0) + dcgm(FREE, 0x7FFFFFF0),
    ],
)
def test_memory_of_which_a_part_is_missing_is_unknown(page: str) -> None:
    assert read(page).memory_used_ratio is None


def test_the_page_of_nvidia_gpu_exporter_is_known_too() -> None:
    page = (
        'nvidia_smi_temperature_gpu{uuid="a"} 61\nnvidia_smi_memory_used_bytes{uuid="a"} 6e+10\n'
        'nvidia_smi_memory_total_bytes{uuid="a"} 8e+10\nnvidia_smi_utilization_gpu_ratio{uuid="a"} 0.97\n'
    )
    assert read(page) == GpuReport(61.0, 0.75, 0.97)


def test_a_card_that_is_cut_into_instances_tells_its_work_as_a_share() -> None:
    assert read('DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",GPU_I_ID="1"} 0.25').utilisation_ratio == 0.25


def test_any_other_page_is_read_by_the_names_that_are_configured() -> None:
    page = (
        'gpu_edge_temperature{card="0"} 77\ngpu_used_vram{card="0"} 40960\ngpu_total_vram{card="0"} 65536\ngpu_gfx_activity{card="0"} 35\n'
        "busy_ratio 0.35\n"
    )
    names = {
        "temperature": "gpu_edge_temperature",
        "memory_used": "gpu_used_vram",
        "memory_total": "gpu_total_vram",
    }
    assert read(page, **names, utilisation="gpu_gfx_activity") == GpuReport(77.0, 0.625, 0.35)
    assert read(page, **names, utilisation="busy_ratio") == GpuReport(77.0, 0.625, 0.35)
    assert read(page) == NO_GPU
    assert read(page + FOUR_GPUS, temperature="gpu_edge_temperature") == GpuReport(77.0, 0.75, 0.5)
    assert read(FOUR_GPUS, temperature="gpu_edge_temperature").temperature_celsius is None


@pytest.mark.parametrize(
    "value", ["NaN", "+Inf", "-Inf", "-1", "", "[Not Supported]", "1_0", "201", "2147483632", "9223372036854775794", "140737488355328", "61 62 63"]
)  # fmt: skip
def test_a_temperature_that_is_none_makes_all_of_them_unknown_and_never_zero(value: str) -> None:
    assert read(dcgm(TEMPERATURE, 60, value)).temperature_celsius is None
    assert read(dcgm(TEMPERATURE, value, 60)).temperature_celsius is None
    assert read(dcgm(TEMPERATURE, value, 60), labels=("gpu=1",)).temperature_celsius == 60.0


@pytest.mark.parametrize(
    "page",
    [
        FOUR_GPUS.replace("\n", "\r\n"),
        FOUR_GPUS.removesuffix("\n"),
        "\ufeff" + FOUR_GPUS,
        FOUR_GPUS.replace("A100", '\\"A100\\" }{ \\\\'),
        FOUR_GPUS.replace("\nDCGM_FI_DEV_GPU_TEMP", "\nx\x00\nDCGM_FI_DEV_GPU_TEMP"),
        FOUR_GPUS + "# EOF\n",
        "".join(f"{line} # {{id=\"a}}\"}} 7 1.5\n" if "{" in line else line + "\n" for line in FOUR_GPUS.splitlines()),
        "".join(f"{line} {NOW * 1e3:.0f}\n" if "{" in line else line + "\n" for line in FOUR_GPUS.splitlines()),
    ],
)  # fmt: skip
def test_odd_ends_of_lines_labels_exemplars_and_timestamps_change_nothing(page: str) -> None:
    assert read(page) == GpuReport(88.0, 0.75, 0.5)


def test_a_page_that_is_not_utf_8_is_read_all_the_same() -> None:
    assert read(FOUR_GPUS.encode().replace(b"A100", b"\xff\xfe\x80")) == GpuReport(88.0, 0.75, 0.5)


def test_what_is_stamped_with_an_old_time_is_unknown() -> None:
    def told(age: float) -> float | None:
        return read(f"{TEMPERATURE} 60 {(NOW - age) * 1e3:.0f}", stale_seconds=10.0).temperature_celsius

    assert told(0.0) == told(9.9) == told(-60.0) == 60.0
    assert told(10.1) is None
    assert read(f"{TEMPERATURE} 60 {NOW - 11:.1f}", stale_seconds=10.0).temperature_celsius is None
    assert read(f"{TEMPERATURE} 60 {NOW - 11:.1f}", stale_seconds=12.0).temperature_celsius == 60.0


def test_what_a_report_lacks_is_named() -> None:
    assert untold(GpuReport(temperature_celsius=0.0)) == ["memory used ratio", "utilisation ratio"]
    assert tells_nothing(NO_GPU) and not tells_nothing(GpuReport(utilisation_ratio=0.0))


NAMES = st.sampled_from([TEMPERATURE, UTILISATION, USED, FREE, RESERVED, "own_total", "other"])
LABELS = st.text(st.sampled_from('gpu="01",}{\\ #\n'), max_size=12) | st.sampled_from(['gpu="0"', 'gpu="1"'])
VALUES = st.floats().map(str) | st.integers().map(str) | st.text(max_size=6)
LINES = st.builds("{}{{{}}} {}".format, NAMES, LABELS, VALUES) | st.text(max_size=20)
PAGES = st.binary() | st.lists(LINES, max_size=12).map(lambda lines: "\n".join(lines).encode())
SETTINGS = st.sampled_from(
    [
        GpuSettings(url="x"),
        GpuSettings(url="x", labels=("gpu=0", "gpu=1")),
        GpuSettings(url="x", memory_used=USED, memory_total="own_total", utilisation="other"),
    ]
)


@given(PAGES, SETTINGS)
def test_no_page_makes_the_reader_raise_or_tell_what_cannot_be(page: bytes, settings: GpuSettings) -> None:
    temperature, memory, utilisation = read_gpu(GpuPage(page), settings, NOW)
    assert temperature is None or (isfinite(temperature) and 0.0 <= temperature <= 200.0)
    assert memory is None or 0.0 <= memory <= 1.0
    assert utilisation is None or 0.0 <= utilisation <= 1.0
