"""The page of all metrics is the library's own, line for line, and between its pieces others have their turns."""

from __future__ import annotations

import asyncio

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from gateway.metrics_page import LINES_AT_ONCE, Registry, page, pieces


def registry_of(*sizes: int) -> Registry:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # as `Telemetry` does
    registry = Registry()
    for index, size in enumerate(sizes):
        gauge = Gauge(f"g{index}", "Of many\nlines", ("name",), registry=registry)
        for number in range(size):
            gauge.labels(f'{number}"\n').set(number / 3)
    Counter("c", "Once", registry=registry).inc()
    histogram = Histogram("h", "Of each", ("name",), registry=registry)
    for number in range(40):
        histogram.labels(str(number)).observe(number)
    return registry


async def test_it_is_what_the_library_writes() -> None:
    for sizes in ((), (0,), (1, 0, 5), (LINES_AT_ONCE,), (3, LINES_AT_ONCE + 1, 2), (3 * LINES_AT_ONCE, 7)):
        registry = registry_of(*sizes)
        assert await page(registry) == generate_latest(registry)


def test_no_piece_has_more_lines_than_are_made_at_once() -> None:
    found = list(pieces(registry_of(5, 3 * LINES_AT_ONCE + 5, 10)))
    lines = [sum(not line.startswith(b"#") for line in part.splitlines()) for part in found]
    assert max(lines) <= LINES_AT_ONCE and len(found) <= 8
    assert sum(lines) > 3 * LINES_AT_ONCE + 20


async def test_others_have_their_turns_between_its_pieces() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await page(registry_of(4 * LINES_AT_ONCE))
    counting.cancel()
    assert turns >= 4
