"""Every setting has a reader, and reaches the part it is for at the start and at a reload.

What each part does with its setting is tested where the part is; here a setting that is loaded and then forgotten is found.
"""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import gateway.settings
from gateway.app import Gateway
from gateway.degradation_settings import RuleSettings
from gateway.errors import Refused
from gateway.gpu_settings import GpuSettings
from gateway.settings import (
    BackendSettings,
    BatchingSettings,
    BusinessTypeSettings,
    LogSettings,
    MatchSettings,
    PoolSettings,
    ProbeSettings,
    PromptTokensSettings,
    QueueSettings,
    RetrySettings,
    ServerSettings,
    Settings,
    TenantSettings,
    TimeoutSettings,
    UpstreamSettings,
    WindowSettings,
)
from policies.terms import BackendId, Refusal
from tests.asgi import Call

SOURCES = Path(gateway.settings.__file__).parent
WRITERS = {"settings.py", "records.py", "rules.py", "scalars.py", "urls.py", "document.py", "faults.py"}
"""Modules that define or fill the records; reading there is no use."""

RECORDS = [
    value for value in vars(gateway.settings).values() if is_dataclass(value) and isinstance(value, type)
]
NAMES = sorted({field.name for record in RECORDS for field in fields(record)})

NEVER = ProbeSettings(interval_seconds=3600, timeout_seconds=1)
BACKEND = BackendSettings(url="http://127.0.0.1:9", name="b")
POOL = PoolSettings(name="p", backends=(BACKEND,))
PLAIN = Settings(pools=(POOL,), probes=NEVER, log=LogSettings(requests=False))
B = BackendId("b")


def attributes_read() -> set[str]:
    """Every attribute that a module of the gateway reads, but for those that fill the records."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        if path.name not in WRITERS and path.parent.name not in ("emulator", "demo"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.add(node.attr)
    return found


def test_every_setting_is_read_somewhere() -> None:
    assert len(NAMES) > 30
    read = attributes_read()
    assert [name for name in NAMES if name not in read] == []


def test_every_group_of_settings_is_part_of_the_whole() -> None:
    def groups(record: type[Any]) -> set[type[Any]]:
        inner = {hint for hint in get_type_hints(record).values() if hint in RECORDS}
        return inner.union(*(groups(one) for one in inner)) | {record}

    listed = {PoolSettings, BackendSettings, WindowSettings, BatchingSettings, PromptTokensSettings}
    listed |= {BusinessTypeSettings, MatchSettings, TenantSettings, GpuSettings, RuleSettings}
    assert groups(Settings) | listed == set(RECORDS)


@asynccontextmanager
async def running(settings: Settings, write_log: Any = None) -> AsyncIterator[Gateway]:
    made = Gateway(settings, write_log or (lambda raw: None))
    try:
        yield made
    finally:
        await made.close()


CHANGED = replace(
    PLAIN,
    pools=(replace(POOL, window=WindowSettings(max=3), backends=(replace(BACKEND, api_key="secret"),)),),
    server=ServerSettings(max_body_mb=0.25, max_bodies_mb=9),
    queue=QueueSettings(max_waiting=7, max_wait_seconds=1.5),
    retries=RetrySettings(max_retries=4),
    probes=replace(NEVER, failures=9),
    timeouts=TimeoutSettings(connect_seconds=1, first_byte_seconds=2, gap_seconds=3, total_seconds=4),
    upstream=UpstreamSettings(max_connections=5, max_idle_connections=6, idle_seconds=7, resolve_seconds=8),
    aliases={"alias": "model"},
)


def reached(made: Gateway) -> dict[str, object]:
    """What each part was told."""
    rules, pool, snapshot = made.router.rules, made.upstream.pool(B), made.proxy.snapshot
    backend = made.router.fleet.get(B)
    assert backend is not None
    return {
        "window": backend.window,
        "pool": backend.pool,
        "max_waiting": rules.fairness.max_waiting,
        "max_retries": rules.retries.max_retries,
        "failures": rules.probe_failures,
        "max_wait_seconds": made.turnstile.max_wait_seconds,
        "timeouts": pool.timeouts,
        "upstream": pool.settings,
        "resolve_seconds": pool.endpoint.resolve_seconds,
        "authorization": pool.endpoint.authorization,
        "max_body_bytes": snapshot.max_body_bytes,
        "max_bodies_bytes": made.bodies.limit_bytes,
        "aliases": dict(snapshot.aliases),
    }


def expected(settings: Settings) -> dict[str, object]:
    [pool] = settings.pools
    [backend] = pool.backends
    return {
        "window": pool.window.max if pool.window else None,
        "pool": pool.name,
        "max_waiting": settings.queue.max_waiting,
        "max_retries": settings.retries.max_retries,
        "failures": settings.probes.failures,
        "max_wait_seconds": settings.queue.max_wait_seconds,
        "timeouts": settings.timeouts,
        "upstream": settings.upstream,
        "resolve_seconds": settings.upstream.resolve_seconds,
        "authorization": f"Bearer {backend.api_key}".encode() if backend.api_key else b"",
        "max_body_bytes": int(settings.server.max_body_mb * 1024 * 1024),
        "max_bodies_bytes": int(settings.server.max_bodies_mb * 1024 * 1024),
        "aliases": settings.aliases,
    }


def test_the_two_configurations_of_these_tests_differ_in_everything_but_the_pools_name() -> None:
    one, other = expected(PLAIN), expected(CHANGED)
    assert [name for name in one if one[name] == other[name]] == ["pool"]


@pytest.mark.parametrize("settings", [PLAIN, CHANGED], ids=["defaults", "changed"])
async def test_each_part_is_told_its_settings_at_the_start(settings: Settings) -> None:
    async with running(settings) as made:
        assert reached(made) == expected(settings)


async def test_each_part_is_told_its_settings_at_a_reload() -> None:
    async with running(PLAIN) as made:
        for settings in (CHANGED, PLAIN, CHANGED):
            made.configure(settings)
            assert reached(made) == expected(settings)


async def test_the_body_limit_is_in_megabytes() -> None:
    async with running(replace(PLAIN, server=ServerSettings(max_body_mb=0.001))) as made:
        for size, status in ((1049, 413), (1048, 400)):
            async with Call(made, "POST", "/v1/chat/completions", body=b"x" * size) as call:
                # Beyond the limit the rest of the body is awaited, and there is none.
                assert (await call.start())[0] == status


async def test_a_window_and_the_length_of_the_queue_bound_what_runs_and_waits() -> None:
    one = replace(POOL, window=WindowSettings(max=1))
    async with running(replace(PLAIN, pools=(one,), queue=QueueSettings(max_waiting=0))) as made:
        async with made.turnstile.lease(""):
            with pytest.raises(Refused) as caught:
                await made.turnstile.lease("").__aenter__()
            assert caught.value.reason is Refusal.QUEUE_FULL
        made.configure(PLAIN)
        async with made.turnstile.lease(""), made.turnstile.lease(""):
            pass


@pytest.mark.parametrize(
    ("origins", "allowed"), [((), None), (("https://a.example",), b"https://a.example"), (("*",), b"*")]
)
async def test_cross_origin_calls_are_allowed_where_the_configuration_says_so(
    origins: tuple[str, ...], allowed: bytes | None
) -> None:
    async with running(replace(PLAIN, server=ServerSettings(cors_origins=origins))) as made:
        async with Call(made, "GET", "/healthz", [(b"origin", b"https://a.example")]) as call:
            _, headers = await call.start()
        assert dict(headers).get(b"access-control-allow-origin") == allowed


async def test_requests_are_logged_only_where_that_is_wanted() -> None:
    lines: list[bytes] = []
    wrote = threading.Event()

    def write(raw: bytes) -> None:
        lines.append(raw)
        wrote.set()

    async with running(PLAIN, write) as made:
        for wanted in (False, True):
            made.configure(replace(PLAIN, log=LogSettings(requests=wanted)))
            async with Call(made, "GET", f"/nothing/{wanted}") as call:
                assert (await call.start())[0] == 404
                await call.result()
        assert await asyncio.to_thread(wrote.wait, 20)
    text = b"".join(lines)
    assert b"/nothing/True" in text and b"/nothing/False" not in text
