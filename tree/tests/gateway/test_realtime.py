"""`/v1/realtime` over real sockets, seen from both of its ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from gateway.errors import Refused
from gateway.record import Outcome
from gateway.settings import BackendSettings, ServerSettings, TimeoutSettings
from policies.terms import Refusal
from tests.gateway.realtime_stage import (
    WAIT_SECONDS,
    Engine,
    Stage,
    opened,
    played,
    refusal,
    settings_of,
    until,
)

MESSAGES: list[str | bytes] = [
    "text",
    "",
    "早上好",
    b"",
    b"\x00\xff" * 9,
    "t" * 5_000_000,
    b"b" * 5_000_000,
    "last",
]


async def ending(end: ClientConnection | ServerConnection) -> tuple[int, str]:
    """The close code and reason with which this end was closed; 1006 where there was no goodbye."""
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await end.recv()
    frame = closed.value.rcvd
    return (frame.code, frame.reason) if frame else (1006, "")


def reset(client: ClientConnection) -> None:
    """Leave as a crashed host does: a reset in place of a goodbye."""
    raw: socket.socket = client.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.transport.abort()


async def test_messages_keep_their_kind_their_content_and_their_order_both_ways() -> None:
    async with opened() as (client, engine, stage), asyncio.TaskGroup() as both:

        async def echo() -> None:
            async for message in engine:
                await engine.send(message)

        async def speak() -> None:
            for message in MESSAGES:
                await client.send(message)

        both.create_task(echo())
        both.create_task(speak())
        assert [await client.recv() for _ in MESSAGES] == MESSAGES
        await client.close()
        record = await stage.record()
        assert (record.status, record.route, record.outcome, record.model) == (
            101,
            "realtime",
            Outcome.OK,
            "m",
        )


@pytest.mark.parametrize(
    ("code", "reason", "passed"), [(1000, "", 1000), (1001, "bye", 1001), (4001, "done", 4001)]
)
async def test_the_clients_close_code_and_reason_reach_the_engine(
    code: int, reason: str, passed: int
) -> None:
    async with opened() as (client, engine, stage):
        await client.close(code, reason)
        assert await ending(engine) == (passed, reason)
        assert (await stage.record()).outcome is Outcome.OK


async def test_a_close_without_a_code_is_passed_on_as_a_normal_one() -> None:
    async with opened() as (client, engine, stage):
        client.protocol.send_close()
        client.send_data()
        assert (await ending(engine))[0] == 1000
        assert (await stage.record()).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("code", "outcome"), [(1000, Outcome.OK), (1008, Outcome.OK), (4002, Outcome.OK), (1011, Outcome.CUT)]
)
async def test_the_engines_close_code_and_reason_reach_the_client(code: int, outcome: Outcome) -> None:
    async with opened() as (client, engine, stage):
        await engine.send("last words")
        await engine.close(code, "because")
        assert await client.recv() == "last words"
        assert await ending(client) == (code, "because")
        assert (await stage.record()).outcome is outcome


async def test_an_engine_that_vanishes_closes_the_client_with_1011() -> None:
    async with opened() as (client, engine, stage):
        engine.transport.abort()
        assert (await ending(client))[0] == 1011
        record = await stage.record()
        assert record.outcome is Outcome.CUT
        assert b'headrace_cut_answers_total{backend="' in stage.telemetry.page()


@pytest.mark.parametrize("leave", [reset, lambda client: client.transport.abort()])
async def test_a_client_that_vanishes_closes_the_engines_socket_and_gives_the_slot_back(
    leave: Callable[[ClientConnection], None],
) -> None:
    async with opened(window=1) as (client, engine, stage):
        assert (stage.backend.in_flight, len(stage.live)) == (1, 1)
        leave(client)
        assert (await ending(engine))[0] == 1001
        record = await stage.record()
        assert (record.outcome, record.cause) == (Outcome.ABORTED, "client_left")
        assert (stage.backend.in_flight, len(stage.live)) == (0, 0)


async def test_a_client_that_vanishes_amid_a_flood_of_messages_is_noticed() -> None:
    async with opened() as (client, engine, stage):

        async def flood() -> None:
            while True:
                await engine.send(b"x" * 10_000)

        flooding = asyncio.create_task(flood())
        assert await client.recv()
        client.transport.abort()
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(ConnectionClosed):
                await flooding
        assert (await stage.record()).outcome is Outcome.ABORTED


async def test_an_engine_that_ignores_the_goodbye_is_cut_off() -> None:
    async with opened() as (client, engine, stage):
        engine.transport.pause_reading()
        await client.close()
        assert (await stage.record()).outcome is Outcome.OK
        engine.transport.resume_reading()
        await engine.wait_closed()


async def test_a_client_that_reads_nothing_is_cut_off_after_stall_seconds() -> None:
    async with opened(server=ServerSettings(stall_seconds=0.05)) as (client, engine, stage):
        client.transport.pause_reading()
        with pytest.raises(ConnectionClosed):
            while True:
                await engine.send(b"x" * 100_000)
        record = await stage.record()
        assert (record.outcome, record.cause) == (Outcome.ABORTED, "client_stalled")
        client.transport.abort()


async def test_an_engine_that_reads_nothing_is_cut_off_after_gap_seconds() -> None:
    async with opened(timeouts=TimeoutSettings(gap_seconds=0.05)) as (client, engine, stage):
        engine.transport.pause_reading()
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await client.send(b"x" * 100_000)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1011
        assert (await stage.record()).outcome is Outcome.CUT
        engine.transport.abort()


async def test_a_message_above_max_body_mb_ends_the_socket() -> None:
    async with opened(server=ServerSettings(max_body_mb=0.01)) as (client, engine, stage):
        await client.send(b"x" * 10_000)
        assert len(await engine.recv()) == 10_000
        await client.send(b"x" * 11_000)
        assert (await ending(client))[0] == 1009
        assert (await ending(engine))[0] == 1009
        await stage.record()


async def test_an_engines_message_above_max_body_mb_ends_the_socket() -> None:
    async with opened(server=ServerSettings(max_body_mb=0.01)) as (client, engine, stage):
        await engine.send(b"x" * 10_000)
        assert len(await client.recv()) == 10_000
        await engine.send(b"x" * 11_000)
        assert (await ending(client))[0] == 1011
        assert (await ending(engine))[0] == 1009
        await stage.record()


async def test_with_a_window_of_one_the_second_socket_waits_for_the_firsts_end() -> None:
    async with opened(window=1) as (first, _, stage):
        second = asyncio.create_task(stage.connect())
        await until(lambda: stage.router.waiting == 1)
        assert not second.done()
        await first.close()
        async with await second:
            assert stage.backend.in_flight == 1
        await stage.record()
        assert (await stage.record()).queue_seconds > 0


async def test_a_client_that_leaves_while_it_waits_for_a_slot_leaves_the_queue() -> None:
    async with opened(window=1) as (_, _, stage):
        _, writer = await stage.begin()
        await until(lambda: stage.router.waiting == 1)
        writer.close()
        assert (await stage.record()).outcome is Outcome.ABORTED
        assert stage.router.waiting == 0


async def test_at_shutdown_the_client_gets_1012_and_the_engine_1001() -> None:
    async with opened() as (client, engine, stage):
        stage.draining = True
        assert (await refusal(stage))[0] == 503
        await stage.record()
        for departure in list(stage.live):
            departure.interrupt(Refused(Refusal.SHUTTING_DOWN, "The gateway is shutting down"))
        assert (await ending(client))[0] == 1012
        assert (await ending(engine))[0] == 1001
        record = await stage.record()
        assert (record.outcome, record.reason) == (Outcome.CUT, Refusal.SHUTTING_DOWN)


async def waiting_for_a_slot(engine: Engine, stage: Stage) -> None:
    stage.backend.window = 0
    await stage.begin()
    await until(lambda: stage.router.waiting == 1)


async def waiting_for_the_handshake(engine: Engine, stage: Stage) -> None:
    engine.may_answer.clear()
    await stage.begin()
    await until(lambda: bool(engine.handshakes))


async def idle(engine: Engine, stage: Stage) -> None:
    await stage.connect()


async def writing_to_a_client_that_does_not_read(engine: Engine, stage: Stage) -> None:
    client = await stage.connect()
    client.transport.pause_reading()
    end = await engine.socket()
    flooding = asyncio.create_task(_flood(end))
    await until(lambda: end.paused)
    flooding.cancel()


async def writing_to_an_engine_that_does_not_read(engine: Engine, stage: Stage) -> None:
    client = await stage.connect()
    (await engine.socket()).transport.pause_reading()
    flooding = asyncio.create_task(_flood(client))
    await until(lambda: client.paused)
    flooding.cancel()


async def _flood(end: ClientConnection | ServerConnection) -> None:
    while True:
        await end.send(b"x" * 100_000)


Situation = Callable[[Engine, Stage], Awaitable[None]]


@pytest.mark.parametrize(
    "situation",
    [
        waiting_for_a_slot,
        waiting_for_the_handshake,
        idle,
        writing_to_a_client_that_does_not_read,
        writing_to_an_engine_that_does_not_read,
    ],
)
async def test_cancelled_anywhere_it_gives_everything_back(situation: Situation) -> None:
    async with played() as (engine, stage):
        await situation(engine, stage)
        for task in stage.state.tasks:
            task.cancel()
        await stage.record()
        assert (stage.backend.in_flight, stage.router.waiting, len(stage.live)) == (0, 0, 0)
        engine.may_answer.set()


async def test_engines_are_reached_over_unix_sockets_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with Engine(path=str(tmp_path / "engine")) as local, Engine(tls=tls) as secure:
        for backend in (
            BackendSettings(url=local.url),
            BackendSettings(url=secure.url, ca_file=str(tmp_path / "ca.pem")),
        ):
            async with Stage(settings_of(backend)) as stage, await stage.connect() as client:
                end = await (local if backend.url == local.url else secure).socket()
                await client.send("hello")
                assert await end.recv() == "hello"
