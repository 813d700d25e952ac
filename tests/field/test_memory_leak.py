"""Field cases of what grows: tables of prefixes and sessions, clients made for each call, requests that pile up."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trustme

from gateway.affinity_settings import AffinitySettings
from gateway.alert_settings import AlertReceiverSettings, AlertSettings
from gateway.breaker_settings import BreakerSettings
from gateway.degradation_settings import DegradationSettings
from gateway.gpu_settings import GpuSettings
from gateway.session_settings import SessionSettings
from gateway.settings import (
    BackendSettings,
    ProbeSettings,
    QueueSettings,
    ServerSettings,
    Settings,
    UpstreamSettings,
)
from tests import client
from tests.backend import Backend, Gate, Request, Script, json_script
from tests.emulator.running import until
from tests.redis_server import tcp_server
from tests.running import Running, one_pool, post_request, running, running_with

SELDOM = ProbeSettings(interval_seconds=3600, load_seconds=3600)
KEPT = UpstreamSettings(idle_seconds=3600)
"""No connection of the first probes closes between two counts."""
ANSWER = json_script(
    {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2000, "completion_tokens": 1, "total_tokens": 2001},
    }
)
CALLS = 200
ROUNDS = 3
Feature = Callable[
    [AsyncExitStack, Path], AbstractAsyncContextManager[tuple[Running, Callable[[], Awaitable[None]]]]
]
"""A gateway, and what it does beside its calls in each round."""


async def nothing() -> None: ...


async def test_b171_prefixes_and_sessions_have_one_bound_however_many_prompts_and_backends() -> None:
    prefixes = 256
    async with AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(Backend(lambda _: ANSWER)) for _ in range(8)]
        affinity = AffinitySettings(max_prefixes=prefixes)
        gateway = await stack.enter_async_context(running(*fleet, window=64, affinity=affinity))
        connection = await stack.enter_async_context(await gateway.connect())
        held = []
        for number in range(1000):
            prompt = f"{number} " + f"word{number} " * 1000
            body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
            await connection.send(post_request(body, headers=[(b"x-session-id", b"s%d" % number)]))
            assert (await connection.read_answer()).status == 200
            held.append(gateway.metric("headrace_affinity_prefixes"))
        assert sum(len(backend.exchanges) for backend in fleet) == 1000
        assert gateway.metric("headrace_affinity_prefixes_max") == prefixes
        assert 0 < max(held) <= prefixes, "of all backends together"
        assert 0 < gateway.metric("headrace_affinity_sessions") <= prefixes


@asynccontextmanager
async def plain(
    stack: AsyncExitStack, folder: Path
) -> AsyncIterator[tuple[Running, Callable[[], Awaitable[None]]]]:
    backend = await stack.enter_async_context(Backend(lambda _: ANSWER))
    async with running(backend, probes=SELDOM, upstream=KEPT) as gateway:
        yield gateway, nothing


@asynccontextmanager
async def over_tls(
    stack: AsyncExitStack, folder: Path
) -> AsyncIterator[tuple[Running, Callable[[], Awaitable[None]]]]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    backend = await stack.enter_async_context(Backend(lambda _: ANSWER, tls=context))
    settings = one_pool([backend], probes=SELDOM, upstream=KEPT)
    one = BackendSettings(url=backend.url, ca_file=str(folder / "ca.pem"))
    async with running_with(_with(settings, one)) as gateway:
        yield gateway, nothing


@asynccontextmanager
async def with_redis(
    stack: AsyncExitStack, folder: Path
) -> AsyncIterator[tuple[Running, Callable[[], Awaitable[None]]]]:
    backend = await stack.enter_async_context(Backend(lambda _: ANSWER))
    redis = stack.enter_context(tcp_server())
    sessions = SessionSettings(redis_url=redis.url, timeout_ms=5000, fresh_seconds=0, max_turns=2)
    async with running(backend, probes=SELDOM, upstream=KEPT, sessions=sessions) as gateway:
        yield gateway, nothing


@asynccontextmanager
async def with_gpus_and_alerts(
    stack: AsyncExitStack, folder: Path
) -> AsyncIterator[tuple[Running, Callable[[], Awaitable[None]]]]:
    backend = await stack.enter_async_context(Backend(lambda _: ANSWER))
    page = await stack.enter_async_context(Backend(lambda _: GPU_PAGE))
    receiver = await stack.enter_async_context(Backend(lambda _: Script()))
    gpu = GpuSettings(url=f"{page.url}/gpus", interval_seconds=0.05)
    settings = replace(
        _with(one_pool([backend], probes=SELDOM, upstream=KEPT), BackendSettings(url=backend.url, gpu=gpu)),
        alerts=AlertSettings(receivers=(AlertReceiverSettings(url=receiver.url),)),
        degradation=DegradationSettings(interval_seconds=0.05),
    )
    async with running_with(settings) as gateway:
        sent = 0

        async def alarm() -> None:
            nonlocal sent
            seen = len(page.exchanges)
            for word in ("on", None) * 10:
                body = {"force": word, "seconds": 600, "by": "test"}
                assert (await gateway.post(body, "/admin/rules/batch-idle")).status == 200
                sent += 1
                await until(partial(_are_sent, gateway, sent))
            await page.until(lambda: len(page.exchanges) > seen + 5)
            assert page.accepted == 1
            await receiver.until(lambda: not receiver.connections)

        yield gateway, alarm


@asynccontextmanager
async def with_canaries(
    stack: AsyncExitStack, folder: Path
) -> AsyncIterator[tuple[Running, Callable[[], Awaitable[None]]]]:
    """An engine that fails is tried, and taken back; the other one answers meanwhile."""
    is_broken = False

    def script(_: Request) -> Script:
        return json_script({}, status=500) if is_broken else ANSWER

    first = await stack.enter_async_context(Backend(script))
    second = await stack.enter_async_context(Backend(lambda _: ANSWER))
    breaker = BreakerSettings(
        failures_in_a_row=2, open_seconds=0.05, max_open_seconds=0.05, slow_start_seconds=0
    )
    async with running(first, second, probes=SELDOM, upstream=KEPT, breaker=breaker) as gateway:
        opened, number = 0, count()

        async def break_and_mend() -> None:
            nonlocal is_broken, opened
            is_broken = True
            while gateway.metric("headrace_circuit_trips_total") == opened:
                await gateway.post({"model": "m", "prompt": f"{next(number)}"})
            opened += 1
            is_broken = False
            await until(lambda: {one.state for one in gateway.gateway.router.circuits} == {"closed"})
            await first.until(lambda: len(first.connections) == 1)  # a probe's own are closed again

        yield gateway, break_and_mend


def _are_sent(gateway: Running, alerts: int) -> bool:
    return gateway.metric("headrace_alerts_total", outcome="sent") == alerts


GPU_PAGE = Script(chunks=[b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n'])


def _with(settings: Settings, backend: BackendSettings) -> Settings:
    return replace(settings, pools=(replace(settings.pools[0], backends=(backend,)),))


@pytest.mark.parametrize(
    ("feature", "contexts_a_round"),
    [(plain, 0), (over_tls, 0), (with_redis, 0), (with_gpus_and_alerts, 0), (with_canaries, 1)],
)
async def test_b173_no_feature_makes_a_client_or_a_tls_context_for_each_call(
    feature: Feature, contexts_a_round: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round is 200 calls, and 20 alerts, or one outage that three canaries end."""
    made = 0
    make: Callable[..., ssl.SSLContext] = ssl.SSLContext.__new__

    def counted(*arguments: Any, **named: Any) -> ssl.SSLContext:
        nonlocal made
        made += 1
        return make(*arguments, **named)

    headers = [(b"x-session-id", b"s"), (b"x-headrace-history", b"server")]
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    async with (
        AsyncExitStack() as stack,
        feature(stack, tmp_path) as (gateway, works),
        await gateway.connect() as connection,
    ):
        files: list[int] = []
        for number in range(ROUNDS):
            if number == 1:
                monkeypatch.setattr(ssl.SSLContext, "__new__", counted)
            await works()
            for _ in range(CALLS):
                await connection.send(post_request(body, headers=headers))
                assert (await connection.read_answer()).status == 200
            files.append(len(os.listdir("/proc/self/fd")))
        assert files[-1] <= files[0] + 2
        # httpx makes a context for each client, also where nothing is to be verified.
        assert made <= (ROUNDS - 1) * contexts_a_round


async def test_b174_behind_a_stalled_backend_no_more_are_taken_than_may_run_and_wait() -> None:
    gate = Gate()
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 100_000}]}
    async with (
        Backend(lambda _: Script(before_head=gate, chunks=[b"{}"])) as backend,
        running(backend, window=4, queue=QueueSettings(max_waiting=16, max_waiting_per_flow=16)) as gateway,
    ):
        calls = [asyncio.create_task(gateway.post(body)) for _ in range(120)]
        await until(lambda: sum(call.done() for call in calls) == 100)
        assert gateway.gateway.requests_in_flight == 20
        refused = [call.result() for call in calls if call.done()]
        assert {(one.status, one.value(b"x-headrace-reason")) for one in refused} <= {
            (503, b"queue_full"),
            (429, b"over_share"),
        }
        assert all(one.value(b"retry-after") for one in refused)
        gate.set()
        answers = await asyncio.gather(*calls)
        assert sum(answer.status == 200 for answer in answers) == 20
        assert (await gateway.post(body)).status == 200


async def test_b174_behind_a_stalled_backend_no_more_bytes_of_bodies_are_taken_than_there_is_room_for() -> (
    None
):
    gate = Gate()
    large = {"model": "m", "messages": [{"role": "user", "content": "x" * 300_000}]}
    small = {"model": "m", "messages": [{"role": "user", "content": "x" * 60_000}]}
    async with (
        Backend(lambda _: Script(before_head=gate, chunks=[b"{}"])) as backend,
        running(backend, window=4, server=ServerSettings(port=0, max_bodies_mb=1)) as gateway,
    ):
        calls = [asyncio.create_task(gateway.post(large)) for _ in range(20)]
        await until(lambda: sum(call.done() for call in calls) == 17)
        assert gateway.metric("headrace_request_body_bytes") == pytest.approx(900_000, rel=0.01)
        refused = [call.result() for call in calls if call.done()]
        assert {(one.status, one.value(b"x-headrace-reason")) for one in refused} == {(503, b"bodies_full")}
        assert all(one.value(b"retry-after") for one in refused)
        calls += [asyncio.create_task(gateway.post(small)) for _ in range(20)]
        await until(lambda: gateway.gateway.requests_in_flight == 23)
        gate.set()
        answers = await asyncio.gather(*calls)
        assert sum(answer.status == 200 for answer in answers) == 23
        assert gateway.metric("headrace_request_body_bytes") == 0
        assert (await gateway.post(large)).status == 200


async def test_b174_with_a_frozen_redis_requests_are_answered_early_and_do_not_pile_up() -> None:
    history_wanted = [(b"x-headrace-history", b"server")]

    with tcp_server() as redis:
        sessions = SessionSettings(redis_url=redis.url, timeout_ms=50)
        async with Backend(lambda _: ANSWER) as backend, running(backend, sessions=sessions) as gateway:

            async def ask(session: str, *, history: bool) -> client.Answer:
                headers = [(b"x-session-id", session.encode()), *(history_wanted if history else [])]
                body = {"model": "m", "messages": [{"role": "user", "content": "x" * 100_000}]}
                return await gateway.post(body, headers=headers)

            await until(lambda: gateway.metric("headrace_session_store_breaker_open") == 0)
            assert (await ask("before", history=False)).status == 200
            redis.freeze()
            for wave in range(4):
                names = [f"{wave}-{number}" for number in range(40)]
                answers = await asyncio.gather(*[ask(name, history=name.endswith("0")) for name in names])
                assert all(
                    answer.status == (503 if name.endswith("0") else 200)
                    for name, answer in zip(names, answers, strict=True)
                )
                await until(gateway.is_quiet)
            redis.thaw()
            await until(lambda: gateway.metric("headrace_session_store_breaker_open") == 0)
            await until(lambda: gateway.metric("headrace_session_writes_queued") == 0)
            assert (await ask("after", history=True)).status == 200
