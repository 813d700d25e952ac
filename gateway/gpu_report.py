"""Reads what a page in Prometheus' text format tells of a backend's GPUs.

Known without configuration, of each row the first that is there:

| what | names |
|---|---|
| temperature | `DCGM_FI_DEV_GPU_TEMP`, `nvidia_smi_temperature_gpu` |
| memory used | `DCGM_FI_DEV_FB_USED`, `nvidia_smi_memory_used_bytes` |
| all memory | `DCGM_FI_DEV_FB_TOTAL`, `nvidia_smi_memory_total_bytes`; else used + `DCGM_FI_DEV_FB_FREE` + `DCGM_FI_DEV_FB_RESERVED` (0 where it is not told) |
| utilisation | `DCGM_FI_DEV_GPU_UTIL` (percent), `DCGM_FI_PROF_GR_ENGINE_ACTIVE` and `nvidia_smi_utilization_gpu_ratio` (0 to 1) |

The two series of one GPU's memory are those with equal labels. A value that is no number, negative, DCGM's sign for "not known", beyond what can be (above 200 C, a share above 1) or
stamped with a time more than `stale_seconds` ago (as /federate of a Prometheus does) makes that field None, whichever GPU it is of: a GPU that is not known may be the hot one.
Limit: a GPU that has gone from the page altogether is not missed.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from math import inf
from typing import NamedTuple

from gateway.gpu_settings import GpuSettings
from gateway.text_format import Sample, labels_of, samples_of
from policies.gpu_report import NO_GPU, GpuReport

_HOTTEST_CELSIUS = 200.0
_BLANKS = frozenset(
    float(blank + kind)
    for blank in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 1 << 47)  # of 32 bits, of 64 bits, of a float
    for kind in range(4)
)
"""DCGM's own: not known, not found, not supported, not allowed."""


class _Names(NamedTuple):
    temperature: tuple[str, ...] = ("DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu")
    used: tuple[str, ...] = ("DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
    total: tuple[str, ...] = ("DCGM_FI_DEV_FB_TOTAL", "nvidia_smi_memory_total_bytes")
    free: tuple[str, ...] = ("DCGM_FI_DEV_FB_FREE",)
    reserved: tuple[str, ...] = ("DCGM_FI_DEV_FB_RESERVED",)
    utilisation: tuple[str, ...] = (
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "nvidia_smi_utilization_gpu_ratio",
    )


_Values = dict[bytes, float | None]
"""By labels."""


class GpuPage:
    """One page that may tell of many backends: what all of them ask of it is parsed once. Of one thread at a time."""

    def __init__(self, page: bytes) -> None:
        self._page = page
        self._samples: dict[tuple[str, ...], dict[str, list[Sample]]] = {}
        self._labels: dict[bytes, dict[bytes, bytes]] = {}
        self._by_label: dict[tuple[tuple[str, ...], bytes], dict[bytes, dict[str, list[Sample]]]] = {}

    def samples(self, names: tuple[str, ...]) -> dict[str, list[Sample]]:
        if names not in self._samples:
            self._samples[names] = samples_of(self._page, names)
        return self._samples[names]

    def samples_with(self, names: tuple[str, ...], label: bytes) -> dict[bytes, dict[str, list[Sample]]]:
        """By the values of one label."""
        key = names, label
        found = self._by_label.get(key)
        if found is None:
            found = self._by_label[key] = {}
            for name, samples in self.samples(names).items():
                for sample in samples:
                    value = self.labels(sample).get(label)
                    if value is not None:
                        found.setdefault(value, {}).setdefault(name, []).append(sample)
        return found

    def labels(self, sample: Sample) -> dict[bytes, bytes]:
        labels = self._labels.get(sample.labels)
        if labels is None:
            labels = self._labels[sample.labels] = labels_of(sample)
        return labels


def read_gpu(page: GpuPage, settings: GpuSettings, unix_now: float) -> GpuReport:
    """Nothing here raises, whatever the page."""
    names = _names(settings)
    found = _ours(page, sum(names, ()), settings.labels, unix_now - settings.stale_seconds)

    def told(options: tuple[str, ...]) -> tuple[str, _Values]:
        return next(((name, found[name]) for name in options if name in found), ("", {}))

    utilisation, busy = told(names.utilisation)
    return GpuReport(
        _bounded(max(_known(told(names.temperature)[1]), default=None), _HOTTEST_CELSIUS),
        _used_ratio(*(told(options)[1] for options in (names.used, names.total, names.free, names.reserved))),
        _mean(_known(busy), 1.0 if utilisation.endswith(("ratio", "_ACTIVE")) else 100.0),
    )


def untold(report: GpuReport) -> list[str]:
    return [name.replace("_", " ") for name, value in report._asdict().items() if value is None]


def tells_nothing(report: GpuReport) -> bool:
    return report == NO_GPU


@cache
def _names(settings: GpuSettings) -> _Names:
    given = {
        "temperature": settings.temperature,
        "used": settings.memory_used,
        "total": settings.memory_total,
        "utilisation": settings.utilisation,
    }
    return _Names(**{field: (name,) for field, name in given.items() if name})


def _ours(
    page: GpuPage, names: tuple[str, ...], labels: tuple[str, ...], oldest_at: float
) -> dict[str, _Values]:
    """The values of one backend's series, None for what is not known."""
    wanted = _wanted(labels)
    parts = [page.samples(names)]
    if wanted:
        first, *others = wanted
        by_value = page.samples_with(names, first)
        parts = [by_value[value] for value in wanted[first] if value in by_value]
        if others:
            parts = [
                {
                    name: [one for one in samples if _has(page.labels(one), wanted)]
                    for name, samples in part.items()
                }
                for part in parts
            ]
    found: dict[str, _Values] = {}
    for part in parts:
        for name, samples in part.items():
            if samples:
                found.setdefault(name, {}).update({one.labels: _value(one, oldest_at) for one in samples})
    return found


def _has(labels: dict[bytes, bytes], wanted: dict[bytes, frozenset[bytes]]) -> bool:
    return all(labels.get(name) in values for name, values in wanted.items())


def _value(sample: Sample, oldest_at: float) -> float | None:
    value, at = sample.value, sample.at
    is_known = value is not None and value >= 0.0 and value not in _BLANKS
    return value if is_known and (at is None or at >= oldest_at) else None


@cache
def _wanted(labels: tuple[str, ...]) -> dict[bytes, frozenset[bytes]]:
    values: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for label in labels:
        name, _, value = label.partition("=")
        values[name.strip().encode()].add(value.strip().strip('"').encode())
    return {name: frozenset(found) for name, found in values.items()}


def _known(values: _Values) -> list[float]:
    """All of them, or none where one is not known."""
    known = [value for value in values.values() if value is not None]
    return known if len(known) == len(values) else []


def _bounded(value: float | None, most: float) -> float | None:
    return value if value is not None and value <= most else None


def _mean(values: list[float], whole: float) -> float | None:
    return _bounded(sum(values) / len(values) / whole, 1.0) if values else None


def _used_ratio(used: _Values, total: _Values, free: _Values, reserved: _Values) -> float | None:
    """Of the fullest."""
    ratios: _Values = {}
    for labels, value in used.items():
        if total:
            whole = total.get(labels)
        else:
            left, kept = free.get(labels), reserved.get(labels, 0.0)
            whole = None if value is None or left is None or kept is None else value + left + kept
        if value is None or whole is None or not 0.0 < whole < inf:
            ratios[labels] = None
        else:
            ratios[labels] = _bounded(value / whole, 1.0)
    return max(_known(ratios), default=None)
