"""The probes find out what an engine is, read its load beside its health, and say once what it does not serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.configuration import backend_name
from gateway.foreign_page import MOST_METRICS_BYTES
from gateway.models import ModelCatalogue
from gateway.probes import Probes, self_check
from gateway.settings import BackendSettings, ProbeSettings
from policies.dialects import Dialect, EngineFlags, EngineReport
from policies.terms import BackendId
from tests.backend import Backend, Ending, Framing, Gate, Script, json_script
from tests.captures import FIXTURES, split_answer

QUICK = ProbeSettings(interval_seconds=0.05, load_seconds=0.05)
RARE = ProbeSettings(interval_seconds=3600, load_seconds=3600)
NOT_THERE = Script(status=404, reason=b"Not Found")
VLLM_LOAD = EngineReport(3, 8, 0.09770395701025891, None, 65536, 1600, 6704, started_at=1796166190.05)
SGLANG_LOAD = EngineReport(3, 8, 0.0392, 8, 65536, waiting_tokens=282, prefilled_tokens=3055)
SGLANG_FLAGS = EngineFlags("0.5.23", priority_scheduling=True, tells_cached_tokens=True)


def captured(engine: str, name: str) -> Script:
    """The answer that a real engine gave."""
    head, body = split_answer((FIXTURES / engine / f"{name}.http").read_bytes())
    return Script(status=int(head.start_line.split(b" ")[1]), chunks=[body])


def become_vllm(backend: Backend) -> None:
    engine = "vllm-0.32.0"
    pages = {"/metrics": "metrics-busy", "/version": "get-version", "/health": "get-health"}
    pages |= {"/ready": "err-unknown-path", "/server_info": "get-server_info", "/v1/loads": "get-v1-loads"}
    backend.probes |= {path: captured(engine, name) for path, name in pages.items()}


def become_sglang(backend: Backend) -> None:
    engine = "sglang-0.5.23"
    pages = {"/metrics": "metrics-busy", "/version": "get-version", "/health": "get-health"}
    pages |= {"/ready": "get-ping", "/server_info": "get-server_info", "/v1/loads": "loads-busy"}
    backend.probes |= {path: captured(engine, name) for path, name in pages.items()}


class Listener:
    """A router that writes down what it is told."""

    def __init__(self) -> None:
        self.healths: list[tuple[bool, bool]] = []
        self.models: list[frozenset[str]] = []
        self.identities: list[tuple[Dialect, EngineFlags]] = []
        self.reports: list[EngineReport] = []
        self.ids: set[BackendId] = set()
        self.pumps = 0
        self._changed = asyncio.Event()

    def probed(self, backend_id: BackendId, healthy: bool, refused: bool, now: float) -> None:
        self._told(backend_id, self.healths, (healthy, refused))

    def learn_models(self, backend_id: BackendId, models: frozenset[str]) -> None:
        self._told(backend_id, self.models, models)

    def is_dialect(self, backend_id: BackendId, dialect: Dialect, flags: EngineFlags) -> None:
        self._told(backend_id, self.identities, (dialect, flags))

    def reported(self, backend_id: BackendId, report: EngineReport, now: float) -> None:
        assert abs(now - asyncio.get_running_loop().time()) < 1
        self._told(backend_id, self.reports, report)

    def _told(self, backend_id: BackendId, said: list[Any], what: object) -> None:
        said.append(what)
        self.ids.add(backend_id)
        self._changed.set()

    def pump(self) -> None:
        self.pumps += 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def probed(
    backend: Backend, rules: ProbeSettings = QUICK, fresh_seconds: float = 60.0
) -> AsyncIterator[Listener]:
    listener = Listener()
    probes = Probes(listener, ModelCatalogue(), listener.pump, listener, fresh_seconds)
    settings = BackendSettings(url=backend.url)
    probes.configure([settings], rules)
    try:
        yield listener
    finally:
        await probes.close()
    assert listener.ids == {BackendId(backend_name(settings))}


def paths(backend: Backend) -> list[str]:
    return [exchange.request.path for exchange in backend.exchanges]


async def test_a_vllm_is_known_by_its_version_and_its_metrics_are_its_load() -> None:
    async with Backend(record_probes=True) as engine:
        become_vllm(engine)
        async with probed(engine, RARE) as listener:
            await listener.until(lambda: bool(listener.reports))
            assert listener.identities == [(Dialect.VLLM, EngineFlags("0.32.0"))]
            assert listener.reports == [VLLM_LOAD]
            assert listener.healths == [(True, False)] and listener.models == [{"m"}]
            assert paths(engine) == ["/version", "/health", "/v1/models", "/version", "/metrics"]
            assert engine.accepted == 1, "all on one connection"
            assert {exchange.request.value(b"accept-encoding") for exchange in engine.exchanges} == {
                b"identity"
            }


async def test_an_sglang_is_known_by_its_info_and_asked_for_its_loads() -> None:
    async with Backend(record_probes=True) as engine:
        become_sglang(engine)
        async with probed(engine, RARE) as listener:
            await listener.until(lambda: bool(listener.reports))
            assert listener.identities == [(Dialect.SGLANG, SGLANG_FLAGS)]
            assert listener.reports == [SGLANG_LOAD]
            assert "/health" not in paths(engine), "which would generate a token"
            assert "/metrics" not in paths(engine)


@pytest.mark.parametrize(
    ("there", "load"),
    [
        ({"/get_load": json_script([{"num_reqs": 5, "num_waiting_reqs": 2}])}, EngineReport(2, 3)),
        (
            {"/metrics": captured("sglang-0.5.23", "metrics-fresh")},
            EngineReport(0, 0, 0.0, None, 65536, None, 11),
        ),
    ],
)
async def test_an_older_sglang_is_found_and_its_load_read_where_it_tells(
    there: dict[str, Script], load: EngineReport
) -> None:
    async with Backend(lambda _: NOT_THERE, record_probes=True) as engine:
        for path in ("/version", "/ready", "/v1/loads", "/server_info"):
            engine.probes[path] = NOT_THERE
        old_info = {"model_path": "m", "enable_priority_scheduling": True, "version": "0.4.10"}
        engine.probes["/get_server_info"] = json_script(old_info)
        engine.probes |= there
        async with probed(engine, QUICK) as listener:
            await listener.until(lambda: len(listener.reports) >= 2)
            assert listener.reports[0] == load
            assert listener.identities == [(Dialect.SGLANG, EngineFlags("0.4.10", priority_scheduling=True))]
            assert paths(engine).count("/v1/loads") == 1, "what was not there is not asked again"


async def test_an_sglang_that_keeps_its_flags_to_itself_is_one_all_the_same() -> None:
    async with Backend(lambda _: NOT_THERE) as engine:
        become_sglang(engine)
        engine.probes["/server_info"] = Script(status=401)
        async with probed(engine, RARE) as listener:
            await listener.until(lambda: bool(listener.reports))
            assert listener.identities == [(Dialect.SGLANG, EngineFlags())]


async def test_another_kind_of_engine_is_judged_by_its_models_and_not_asked_for_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Backend(lambda _: NOT_THERE, record_probes=True) as engine:
        for path in ("/version", "/health", "/metrics"):
            engine.probes[path] = NOT_THERE
        with caplog.at_level(logging.INFO, "headrace"):
            async with probed(engine, QUICK) as listener:
                await listener.until(lambda: len(listener.healths) >= 4)
                assert listener.identities == [(Dialect.UNKNOWN, EngineFlags())]
                assert all(healthy for healthy, _ in listener.healths)
                assert listener.reports == [] and "/metrics" not in paths(engine)
    assert sum("neither vLLM nor SGLang" in message for message in caplog.messages) == 1


async def test_an_engine_that_comes_up_is_asked_anew_what_it_is() -> None:
    async with Backend(lambda _: NOT_THERE) as engine:
        become_vllm(engine)
        async with probed(engine) as listener:
            await listener.until(lambda: bool(listener.reports))
            await engine.stop()
            await listener.until(lambda: listener.healths[-1] == (False, True))
            become_sglang(engine)
            await engine.start()
            await listener.until(lambda: listener.reports[-1] == SGLANG_LOAD)
            assert listener.identities == [
                (Dialect.VLLM, EngineFlags("0.32.0")),
                (Dialect.SGLANG, SGLANG_FLAGS),
            ]


async def test_an_engine_that_takes_anothers_place_unseen_is_found_by_the_pages_that_go_missing() -> None:
    async with Backend(lambda _: NOT_THERE, record_probes=True) as engine:
        become_vllm(engine)
        async with probed(engine) as listener:
            await listener.until(lambda: bool(listener.reports))
            become_sglang(engine)
            await listener.until(lambda: listener.reports[-1] == SGLANG_LOAD)
            assert set(listener.healths) == {(True, False)}, "both have a /health"
            await engine.until(lambda: paths(engine).count("/ready") >= 2)
            become_vllm(engine)
            await listener.until(lambda: listener.reports[-1] == VLLM_LOAD)


async def test_a_load_page_that_fails_once_does_not_make_another_engine() -> None:
    async with Backend(record_probes=True) as engine:
        become_vllm(engine)
        async with probed(engine) as listener:
            await listener.until(lambda: bool(listener.reports))
            engine.probes["/metrics"] = Script(status=500)
            asked = paths(engine).count("/version")
            await engine.until(lambda: paths(engine).count("/version") > asked)
            become_vllm(engine)
            read = len(listener.reports)
            await listener.until(lambda: len(listener.reports) > read)
            assert listener.identities == [(Dialect.VLLM, EngineFlags("0.32.0"))]


async def test_load_seconds_lie_between_readings() -> None:
    async with Backend(record_probes=True) as often, Backend(record_probes=True) as rare:
        become_vllm(often)
        become_vllm(rare)
        async with (
            probed(rare, ProbeSettings(interval_seconds=3600, load_seconds=3600)),
            probed(often, ProbeSettings(interval_seconds=3600, load_seconds=0.05)) as listener,
        ):
            await listener.until(lambda: len(listener.reports) >= 5)
            assert listener.pumps >= 5, "a report may free waiting requests"
            assert paths(often).count("/health") == 1
            assert paths(rare).count("/metrics") == 1


async def test_of_a_load_that_took_long_to_read_only_the_sizes_of_the_engine_are_taken() -> None:
    async with Backend(record_probes=True) as engine:
        become_vllm(engine)
        async with probed(engine, fresh_seconds=-1.0) as listener:
            await listener.until(lambda: bool(listener.reports))
            assert listener.reports[0] == EngineReport(
                token_capacity=VLLM_LOAD.token_capacity, started_at=VLLM_LOAD.started_at
            )


async def test_a_load_page_that_hangs_gives_no_report_and_leaves_health_as_it_is() -> None:
    async with Backend(record_probes=True) as engine:
        become_vllm(engine)
        engine.probes["/metrics"] = Script(before_head=Gate())
        rules = ProbeSettings(interval_seconds=0.05, timeout_seconds=0.2, load_seconds=0.05)
        async with probed(engine, rules) as listener:
            await listener.until(lambda: len(listener.healths) >= 4)
            assert set(listener.healths) == {(True, False)} and listener.reports == []
            become_vllm(engine)
            await listener.until(lambda: bool(listener.reports))


async def test_a_load_page_without_end_gives_no_report_and_leaves_health_as_it_is() -> None:
    async with Backend(record_probes=True) as engine:
        become_vllm(engine)
        whole = captured("vllm-0.32.0", "metrics-busy").chunks
        engine.probes["/metrics"] = Script(
            chunks=[*whole, b"#" * MOST_METRICS_BYTES], framing=Framing.CHUNKED, ending=Ending.SILENT
        )
        async with probed(engine) as listener:
            await engine.until(lambda: paths(engine).count("/metrics") >= 2)
            await listener.until(lambda: len(listener.healths) >= 3)
            assert set(listener.healths) == {(True, False)} and listener.reports == []
            become_vllm(engine)
            await listener.until(lambda: bool(listener.reports))


async def test_a_health_answer_that_never_ends_is_no_health_however_steadily_it_comes() -> None:
    drops = [Gate() for _ in range(2_000)]
    chunks = [part for drop in drops for part in (b"ok", drop)]

    async def drip() -> None:
        for drop in drops:
            drop.set()
            await asyncio.sleep(0.005)

    async with Backend() as engine:
        become_vllm(engine)
        engine.probes["/health"] = Script(framing=Framing.CHUNKED, chunks=chunks)
        dripping = asyncio.create_task(drip())
        try:
            async with probed(engine, replace(QUICK, timeout_seconds=0.1)) as listener:
                await listener.until(lambda: listener.healths == [(False, False)])
                assert not dripping.done()
        finally:
            dripping.cancel()


async def test_the_first_health_result_does_not_wait_for_the_engines_own_pages() -> None:
    async with Backend() as engine:
        become_sglang(engine)
        gate = Gate()
        engine.probes["/server_info"] = Script(before_head=gate)
        async with probed(engine) as listener:
            await listener.until(lambda: listener.healths == [(True, False)])
            assert listener.identities == []
            gate.set()
            await listener.until(lambda: bool(listener.reports))


async def test_a_refused_load_reading_brings_the_health_probe_forward() -> None:
    async with Backend() as engine:
        become_vllm(engine)
        async with probed(engine, ProbeSettings(interval_seconds=3600, load_seconds=0.05)) as listener:
            await listener.until(lambda: bool(listener.reports))
            await engine.stop()
            await listener.until(lambda: listener.healths == [(True, False), (False, True)])


@pytest.mark.parametrize("page", [b"", b"\xff\xfe", b"<html>", b'vllm:num_requests_running{engine="0"} NaN'])
async def test_a_metrics_page_without_the_names_is_said_once_and_asked_for_again_with_the_health(
    page: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with Backend(record_probes=True) as engine:
        become_vllm(engine)
        engine.probes["/metrics"] = Script(chunks=[page])
        with caplog.at_level(logging.INFO, "headrace"):
            async with probed(engine) as listener:
                await engine.until(lambda: paths(engine).count("/metrics") >= 4)
                assert listener.reports == []
                become_vllm(engine)
                await listener.until(lambda: len(listener.reports) >= 3)
    said = [record for record in caplog.records if "vllm 0.32.0" in record.message]
    assert [record.levelname for record in said] == ["WARNING", "INFO"]
    assert "tells no load" in said[0].message and "load from /metrics" in said[1].message


@pytest.mark.parametrize(
    ("dialect", "flags", "report", "path", "said"),
    [
        (
            Dialect.VLLM,
            EngineFlags("0.32.0"),
            VLLM_LOAD,
            "/metrics",
            "vllm 0.32.0; load from /metrics without max_num_seqs, waiting_tokens; priority scheduling unknown; "
            "cached tokens in usage: unknown (flag --enable-prompt-tokens-details)",
        ),
        (
            Dialect.SGLANG,
            SGLANG_FLAGS,
            SGLANG_LOAD,
            "/v1/loads?include=core",
            "sglang 0.5.23; load from /v1/loads without prefix_hits, prefix_queries, started_at; "
            "priority scheduling on, higher first; cached tokens in usage: yes",
        ),
        (
            Dialect.SGLANG,
            EngineFlags(priority_scheduling=False, tells_cached_tokens=False),
            None,
            "",
            "sglang; tells no load; priority scheduling off; cached tokens in usage: no (flag --enable-cache-report)",
        ),
    ],
)
def test_one_line_says_what_an_engine_does_not_serve(
    dialect: Dialect, flags: EngineFlags, report: EngineReport | None, path: str, said: str
) -> None:
    assert self_check(dialect, flags, report, path) == said
