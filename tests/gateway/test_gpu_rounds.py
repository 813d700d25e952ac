"""The state of GPUs is read again and again over sockets, apart from the traffic, and an exporter that is away, slow, wrong or silent leaves what was known to age."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from gateway import gpu_report
from gateway.foreign_page import MOST_METRICS_BYTES
from gateway.gpu_rounds import GpuRounds
from gateway.gpu_settings import GpuSettings
from gateway.text_format import Sample, samples_of
from policies.gpu_report import GpuReport
from policies.terms import BackendId
from tests.backend import Backend, Ending, Framing, Gate, Script
from tests.captures import FIXTURES, split_answer

ONE, TWO = BackendId("one"), BackendId("two")
QUICK = {"interval_seconds": 0.05, "timeout_seconds": 5.0}


def hot(celsius: float, **script: Any) -> Script:
    return Script(chunks=[page(celsius)], **script)


def page(*celsius: float) -> bytes:
    return b"".join(
        b'DCGM_FI_DEV_GPU_TEMP{gpu="%d"} %g\n' % (gpu, warmth) for gpu, warmth in enumerate(celsius)
    )


class Told(NamedTuple):
    id: BackendId
    report: GpuReport
    at: float
    until: float


class Watched:
    """An exporter, and what was told of its page."""

    def __init__(self, exporter: Backend) -> None:
        self.exporter = exporter
        self.told: list[Told] = []
        self._changed = asyncio.Event()
        self.rounds = GpuRounds(self._tell)

    def _tell(self, id: BackendId, report: GpuReport, at: float, until: float) -> None:
        self.told.append(Told(id, report, at, until))
        self._changed.set()

    def settings(self, **fields: Any) -> GpuSettings:
        return GpuSettings(**{"url": f"{self.exporter.url}/metrics", **QUICK, **fields})

    def answers(self, script: Script) -> None:
        self.exporter.probes["/metrics"] = script

    @property
    def asked(self) -> int:
        return len(self.exporter.exchanges)

    async def is_asked(self, times: int = 2) -> None:
        already = self.asked
        await self.exporter.until(lambda: self.asked >= already + times)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def is_told(self, celsius: float) -> None:
        await self.until(lambda: bool(self.told) and self.told[-1].report.temperature_celsius == celsius)

    @property
    def temperatures(self) -> set[float | None]:
        return {told.report.temperature_celsius for told in self.told}


@asynccontextmanager
async def watched(**fields: Any) -> AsyncIterator[Watched]:
    async with Backend(record_probes=True) as exporter:
        watch = Watched(exporter)
        watch.answers(hot(60))
        watch.rounds.configure([(ONE, watch.settings(**fields))])
        try:
            yield watch
        finally:
            await watch.rounds.close()


async def test_a_page_is_read_again_and_again_on_one_connection_and_not_compressed() -> None:
    async with watched(stale_seconds=7.0) as watch:
        await watch.until(lambda: len(watch.told) >= 3)
        assert watch.told[0].report == GpuReport(temperature_celsius=60.0)
        assert [told.until - told.at for told in watch.told] == pytest.approx([7.0] * len(watch.told))
        assert watch.told[0].at < watch.told[1].at <= asyncio.get_running_loop().time()
        assert {exchange.connection for exchange in watch.exporter.exchanges} == {0}
        assert {exchange.request.value(b"accept-encoding") for exchange in watch.exporter.exchanges} == {
            b"identity"
        }


async def test_interval_seconds_lie_between_two_readings() -> None:
    async with watched() as often, watched(interval_seconds=3600) as rare:
        await often.until(lambda: len(often.told) >= 5)
        assert rare.asked == 1
    at = [told.at for told in often.told]
    assert all(later - earlier >= 0.9 * 0.05 for earlier, later in pairwise(at))


GONE_WRONG = {
    "an error": Script(status=500, chunks=[page(20)]),
    "somewhere else": Script(status=302, headers=[(b"location", b"/metrics")]),
    "no content": Script(status=204),
    "an empty page": Script(),
    "another page": Script(chunks=[b"<html>" + page(20).replace(b"\n", b"")]),
    "a cut page": Script(headers=[(b"content-length", b"100000")], chunks=[page(20)], ending=Ending.CUT),
    "a cut chunk": Script(chunks=[page(20)], framing=Framing.CHUNKED, ending=Ending.CUT),
    "a reset": Script(chunks=[page(20)], framing=Framing.CHUNKED, ending=Ending.RESET),
    "a number cut short": Script(chunks=[b"DCGM_FI_DEV_GPU_TEMP 2"], framing=Framing.UNTIL_CLOSE),
    "a page too large": Script(chunks=[page(20) + b"#" * MOST_METRICS_BYTES]),
    "a page without end": Script(chunks=[page(20)] + [b"#" * 65_536] * 64, framing=Framing.CHUNKED, ending=Ending.SILENT),
    "compressed": Script(headers=[(b"content-encoding", b"gzip")], chunks=[page(20)]),
    "no HTTP": Script(chunks=[page(20)], framing=Framing.RAW, ending=Ending.CLOSE_AFTER),
    "silence": Script(before_head=Gate()),
    "silence in the page": Script(headers=[(b"content-length", b"100000")], chunks=[page(20)], ending=Ending.SILENT),
}  # fmt: skip


@pytest.mark.parametrize("wrong", GONE_WRONG)
async def test_an_exporter_that_goes_wrong_tells_nothing_and_is_heard_again_when_it_is_well(
    wrong: str,
) -> None:
    async with watched(timeout_seconds=0.1) as watch:
        await watch.is_told(60)
        watch.answers(GONE_WRONG[wrong])
        await watch.is_asked(2)
        told = len(watch.told)
        await watch.is_asked(1)
        assert len(watch.told) == told, "nothing new, so that what was known ages"
        watch.answers(hot(61))
        await watch.is_told(61)
        assert watch.temperatures == {60.0, 61.0}


async def test_an_exporter_that_is_away_is_asked_until_it_is_back() -> None:
    async with watched() as watch:
        await watch.is_told(60)
        await watch.exporter.stop()
        watch.answers(hot(61))
        await watch.exporter.start()
        await watch.is_told(61)


async def test_timeout_seconds_bound_a_whole_reading_however_steadily_it_drips() -> None:
    drops = [Gate() for _ in range(2_000)]
    script = Script(
        framing=Framing.CHUNKED, chunks=[part for drop in drops for part in (b"# a drop\n", drop)]
    )

    async def drip() -> None:
        for drop in drops:
            drop.set()
            await asyncio.sleep(0.005)

    async with watched(timeout_seconds=0.1) as watch:
        await watch.is_told(60)
        watch.answers(script)
        dripping = asyncio.create_task(drip())
        try:
            # Asked anew although no wait for the next byte was long.
            await watch.is_asked(3)
            assert not dripping.done()
        finally:
            dripping.cancel()


async def test_timeout_seconds_are_how_long_a_silent_exporter_is_waited_for() -> None:
    async with watched(timeout_seconds=0.05) as hasty, watched(timeout_seconds=600) as patient:
        for watch in (hasty, patient):
            await watch.is_told(60)
            watch.answers(Script(before_head=Gate()))
            await watch.is_asked(1)
        asked = patient.asked
        await hasty.is_asked(3)
        assert patient.asked == asked


async def test_a_slow_page_counts_as_of_when_it_was_asked_for() -> None:
    async with watched(timeout_seconds=30) as watch:
        await watch.is_told(60)
        gate = Gate()
        watch.answers(hot(70, before_head=gate))
        await watch.is_asked(1)
        before = asyncio.get_running_loop().time()
        gate.set()
        await watch.is_told(70)
        assert watch.told[-1].at <= before


async def test_a_query_such_as_that_of_a_federating_prometheus_is_asked_for_as_it_is_meant() -> None:
    async with Backend(record_probes=True) as prometheus:
        watch = Watched(prometheus)
        prometheus.probes["/federate"] = hot(60)
        url = prometheus.url + '/federate?match[]={__name__=~"DCGM.*"}&x=%20'
        watch.rounds.configure([(ONE, watch.settings(url=url))])
        await watch.is_told(60)
        await watch.rounds.close()
        assert prometheus.exchanges[0].request.target == (
            "/federate?match[]=%7B__name__=~%22DCGM.*%22%7D&x=%20"
        )


async def test_backends_of_one_page_are_read_together_each_by_its_labels() -> None:
    async with watched() as watch:
        watch.answers(Script(chunks=[page(40, 90)]))
        watch.rounds.configure(
            [(ONE, watch.settings(labels=("gpu=0",))), (TWO, watch.settings(labels=("gpu=1",)))]
        )
        await watch.until(lambda: {told.id for told in watch.told[-2:]} == {ONE, TWO})
        asked = watch.asked
        await watch.until(lambda: len(watch.told) >= 8)
        by_id = {told.id: told.report.temperature_celsius for told in watch.told[-2:]}
        assert by_id == {ONE: 40.0, TWO: 90.0}
        assert watch.asked - asked < 8, "one reading for both"


async def test_a_page_for_a_whole_fleet_is_parsed_once_and_not_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[tuple[int, bool]] = []

    def counted(page: bytes, names: Iterable[str]) -> dict[str, list[Sample]]:
        parsed.append((len(page), threading.current_thread() is threading.main_thread()))
        return samples_of(page, names)

    monkeypatch.setattr(gpu_report, "samples_of", counted)
    async with watched() as watch:
        fleet = page(*range(40, 80)) + b"#" * 40_000
        watch.answers(Script(chunks=[fleet]))
        ids = [BackendId(str(number)) for number in range(40)]
        watch.rounds.configure([(id, watch.settings(labels=(f"gpu={id}",))) for id in ids])
        await watch.until(lambda: {told.id for told in watch.told} == set(ids))
        by_id = {told.id: told.report.temperature_celsius for told in watch.told}
        assert by_id == {id: 40.0 + int(id) for id in ids}
        # Those of the next reading may have begun.
        rounds = -(-len(watch.told) // len(ids))
        assert parsed == [(len(fleet), False)] * len(parsed) and 1 <= len(parsed) <= rounds + 1


async def test_after_a_reload_other_pages_are_read_and_those_that_stay_are_not_disturbed() -> None:
    async with watched() as stays, Backend(record_probes=True) as other:
        other.probes["/metrics"] = hot(30)
        await stays.is_told(60)
        stays.rounds.configure(
            [(ONE, stays.settings()), (TWO, GpuSettings(url=f"{other.url}/metrics", interval_seconds=0.05))]
        )
        await stays.is_told(30)
        await stays.is_told(60)
        assert stays.exporter.accepted == 1
        stays.rounds.configure([(ONE, stays.settings())])
        await other.until(lambda: not other.connections)


async def test_what_a_page_tells_and_lacks_is_said_once_and_again_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        async with watched() as watch:
            await watch.is_told(60)
            await watch.is_asked(3)
            watch.answers(Script(status=500))
            await watch.is_asked(3)
            watch.answers(Script(chunks=[b"up 1\n"]))
            await watch.is_asked(3)
            whole = page(61) + b"DCGM_FI_DEV_GPU_UTIL 5\nDCGM_FI_DEV_FB_USED 1\nDCGM_FI_DEV_FB_FREE 1\n"
            watch.answers(Script(chunks=[whole]))
            await watch.is_told(61)
            await watch.is_asked(1)
    said = [
        (record.levelname, record.getMessage()) for record in caplog.records if "GPUs" in record.getMessage()
    ]
    assert said == [
        ("WARNING", "GPUs of backend one: told without memory used ratio, utilisation ratio"),
        ("WARNING", "GPUs of backend one: answered 500"),
        ("WARNING", "GPUs of backend one: tells nothing of GPUs of this backend"),
        ("INFO", "GPUs of backend one: told"),
    ]


async def test_a_listener_that_fails_does_not_end_the_readings(caplog: pytest.LogCaptureFixture) -> None:
    told: list[BackendId] = []

    def fails(id: BackendId, report: GpuReport, at: float, until: float) -> None:
        told.append(id)
        raise RuntimeError("on purpose")

    async with Backend(record_probes=True) as exporter:
        exporter.probes["/metrics"] = hot(60)
        rounds = GpuRounds(fails)
        rounds.configure([(ONE, GpuSettings(url=f"{exporter.url}/metrics", interval_seconds=0.05))])
        await exporter.until(lambda: len(exporter.exchanges) >= 3)
        await rounds.close()
    assert len(told) >= 2 and "reading the state of GPUs failed" in caplog.text


async def test_a_real_engines_page_without_gpus_tells_nothing() -> None:
    async with watched() as watch:
        await watch.is_told(60)
        _, body = split_answer((FIXTURES / "vllm-0.32.0/metrics-busy.http").read_bytes())
        watch.answers(Script(chunks=[body]))
        await watch.is_asked(2)
        told = len(watch.told)
        await watch.is_asked(2)
        assert len(watch.told) == told
