"""The page of all metrics, made piece by piece: of a fleet of hundreds of backends it has ten thousand lines, and nobody is to wait for all of them.

Numbers of one collector are of one moment; those of two may be of two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from copy import copy
from typing import cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

LINES_AT_ONCE = 256
"""About 2 ms."""


class Registry(CollectorRegistry):
    """Knows its collectors in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


async def page(registry: Registry) -> bytes:
    parts: list[bytes] = []
    for part in pieces(registry):
        parts.append(part)
        await asyncio.sleep(0)
    return b"".join(parts)


def pieces(registry: Registry) -> Iterator[bytes]:
    """Of at most `LINES_AT_ONCE` samples, but for the headings."""
    waiting: list[bytes] = []
    lines = 0
    for collector in list(registry.collectors):
        for family in list(collector.collect()):
            for start in range(0, max(len(family.samples), 1), LINES_AT_ONCE):
                count = min(len(family.samples) - start, LINES_AT_ONCE)
                if lines + count > LINES_AT_ONCE:
                    yield b"".join(waiting)
                    waiting, lines = [], 0
                waiting.append(_text(family, start))
                lines += count
    yield b"".join(waiting)


class _Alone:
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _text(family: Metric, start: int) -> bytes:
    if len(family.samples) > LINES_AT_ONCE:
        whole, family = family, copy(family)
        family.samples = whole.samples[start : start + LINES_AT_ONCE]
    text = generate_latest(cast(CollectorRegistry, _Alone(family)))
    # The heading, HELP and TYPE, stands once.
    return text.split(b"\n", 2)[2] if start else text
