"""Reads what a page in Prometheus' text format tells of a backend's GPUs.

Known without configuration, each the first that is there: DCGM's `DCGM_FI_DEV_GPU_TEMP`, `DCGM_FI_DEV_FB_USED` with `DCGM_FI_DEV_FB_FREE` and `DCGM_FI_DEV_FB_RESERVED`,
`DCGM_FI_DEV_GPU_UTIL`; nvidia_gpu_exporter's `nvidia_smi_temperature_gpu`, `nvidia_smi_memory_used_bytes` with `nvidia_smi_memory_total_bytes`, `nvidia_smi_utilization_gpu_ratio`.
Used memory is a share of used + free + reserved, or of the total; the two series of one GPU are those with equal labels.
A value that is no number, negative, or beyond what can be (temperatures above 200 C, shares above 1) makes that field None, whichever GPU it is of: a GPU that is not
known may be the hot one. Nothing here raises. The page as a whole is never parsed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from math import isfinite

from gateway.gpu_settings import GpuSettings
from policies.gpu_report import NO_GPU, GpuReport

_TEMPERATURE = ("DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu")
_USED = ("DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
_TOTAL = ("nvidia_smi_memory_total_bytes",)
_FREE = ("DCGM_FI_DEV_FB_FREE",)
_RESERVED = ("DCGM_FI_DEV_FB_RESERVED",)
_UTILISATION = ("DCGM_FI_DEV_GPU_UTIL", "nvidia_smi_utilization_gpu_ratio")
_HOTTEST_CELSIUS = 200.0
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

_Series = dict[bytes, float | None]
"""Values by labels."""


def read_gpu(page: bytes, settings: GpuSettings) -> GpuReport:
    names = _names(settings)
    found: dict[str, _Series] = {}
    wanted = _wanted(settings.labels)
    for name, labels, text in _line_of(tuple(dict.fromkeys(sum(names, ())))).findall(b"\n" + page):
        if not wanted or _is_ours(labels, wanted):
            found.setdefault(name.decode(), {})[labels] = _number(text)
    temperature, used, total, free, reserved, utilisation = (_first(found, options) for options in names)
    name_of_utilisation = next((name for name in names[5] if name in found), "")
    whole = 1.0 if name_of_utilisation.endswith("ratio") else 100.0
    return GpuReport(
        _temperature(temperature), _used_ratio(used, total, free, reserved), _mean_ratio(utilisation, whole)
    )


def untold(report: GpuReport) -> list[str]:
    return [name.replace("_", " ") for name, value in report._asdict().items() if value is None]


def tells_nothing(report: GpuReport) -> bool:
    return report == NO_GPU


def _names(settings: GpuSettings) -> tuple[tuple[str, ...], ...]:
    def either(given: str, known: tuple[str, ...]) -> tuple[str, ...]:
        return (given,) if given else known

    own_total = settings.memory_total
    return (
        either(settings.temperature, _TEMPERATURE),
        either(settings.memory_used, _USED),
        either(own_total, _TOTAL),
        () if own_total else _FREE,
        () if own_total else _RESERVED,
        either(settings.utilisation, _UTILISATION),
    )


@cache
def _line_of(names: tuple[str, ...]) -> re.Pattern[bytes]:
    either = "|".join(re.escape(name) for name in names)
    return re.compile(rf"\n({either})(?:\{{([^\n]*)\}})?[ \t]+(\S+)".encode())


@cache
def _wanted(labels: tuple[str, ...]) -> dict[bytes, frozenset[bytes]]:
    values: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for label in labels:
        name, _, value = label.partition("=")
        values[name.strip().encode()].add(value.strip().strip('"').encode())
    return {name: frozenset(found) for name, found in values.items()}


def _is_ours(labels: bytes, wanted: dict[bytes, frozenset[bytes]]) -> bool:
    named = dict(_LABEL.findall(labels))
    return all(named.get(name) in values for name, values in wanted.items())


def _first(found: dict[str, _Series], options: tuple[str, ...]) -> _Series:
    return next((found[name] for name in options if name in found), {})


def _number(text: bytes) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0.0 else None


def _known(values: list[float | None]) -> list[float]:
    """All of them, or none where one is not known."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _temperature(series: _Series) -> float | None:
    hottest = max(_known(list(series.values())), default=None)
    return hottest if hottest is not None and hottest <= _HOTTEST_CELSIUS else None


def _used_ratio(used: _Series, total: _Series, free: _Series, reserved: _Series) -> float | None:
    ratios: list[float | None] = []
    for labels, value in used.items():
        whole: float | None
        if total:
            whole = total.get(labels)
        else:
            left, kept = free.get(labels), reserved.get(labels, 0.0)
            whole = None if value is None or left is None or kept is None else value + left + kept
        ratio = None if value is None or not whole else value / whole
        ratios.append(ratio if ratio is not None and ratio <= 1.0 else None)
    return max(_known(ratios), default=None)


def _mean_ratio(series: _Series, whole: float) -> float | None:
    values = _known(list(series.values()))
    mean = sum(values) / len(values) / whole if values else None
    return mean if mean is not None and mean <= 1.0 else None
