"""A reader who is behind stops the engine, `pipe` hands data over within the read that brought it, and an engine that is behind stops the upload."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from gateway.upstream.client import Exchange
from gateway.upstream.failures import ResponseBroken
from tests.backend import Backend, Ending, Framing, Gate, Script
from tests.gateway.upstream.pools import (
    CHUNKED,
    GET,
    failure_of,
    pool_to,
    quiet,
    raw,
    read_all,
)

PIECE = b"p" * 16_384
PIECES = 512
BOUND = 256 * 1024


@pytest.mark.parametrize("framing", [Framing.LENGTH, Framing.CHUNKED, Framing.UNTIL_CLOSE])
async def test_a_reader_that_does_not_read_stops_the_engine_and_little_is_held(framing: Framing) -> None:
    script = Script(framing=framing, chunks=[PIECE] * PIECES)
    async with (
        Backend(lambda _: script, send_buffer_bytes=16_384) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        exchange = await backend.exchange()
        for _ in range(3):
            await quiet(lambda: exchange.bytes_sent)
            assert not exchange.answered.is_set()
            # What had come is given out without waiting: all that this process held.
            held = await answer.read()
            assert 0 < len(held) <= BOUND
        rest = await read_all(answer)
        assert len(rest) > len(PIECE) * PIECES // 2


async def test_over_tls_a_reader_that_does_not_read_stops_the_engine_too(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    script = Script(framing=Framing.CHUNKED, chunks=[PIECE] * (PIECES // 4))
    async with (
        Backend(lambda _: script, send_buffer_bytes=16_384, tls=context) as backend,
        pool_to(backend, ca_file=str(tmp_path / "ca")) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        exchange = await backend.exchange()
        for _ in range(3):
            await quiet(lambda: exchange.bytes_sent)
            assert not exchange.answered.is_set()
            assert 0 < len(await answer.read()) <= BOUND
        assert len(await read_all(answer)) > len(PIECE) * PIECES // 8
        assert answer.complete


async def test_pipe_hands_every_part_to_its_sink_until_the_end() -> None:
    gates = [Gate() for _ in range(5)]
    chunks: list[bytes | Gate] = []
    for gate in gates:
        chunks += [gate, b"part"]
    script = Script(framing=Framing.CHUNKED, chunks=chunks)
    got: list[bytes] = []

    def sink(data: bytes) -> bool:
        got.append(data)
        if len(got) < len(gates):
            gates[len(got)].set()
        return True

    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        gates[0].set()
        await answer.pipe(sink)
        assert got == [b"part"] * 5
        assert await answer.read() == b""


async def test_pipe_ends_when_its_sink_takes_no_more_and_read_goes_on() -> None:
    gate = Gate()
    script = Script(framing=Framing.CHUNKED, chunks=[b"one", gate, b"two"])
    got: list[bytes] = []

    def sink(data: bytes) -> bool:
        got.append(data)
        return False

    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        await answer.pipe(sink)
        if not got:  # the first part came with the head and is read first
            got.append(await answer.read())
        gate.set()
        assert await answer.read() == b"two"
        assert got == [b"one"]


async def test_a_sink_that_refused_is_not_given_what_comes_before_the_reader_is_back() -> None:
    gates = [Gate(), Gate()]
    script = Script(framing=Framing.CHUNKED, chunks=[gates[0], b"one", gates[1], b"two"])
    got: list[bytes] = []

    def sink(data: bytes) -> bool:
        got.append(data)
        return False

    async with (
        Backend(lambda _: script) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        piping = asyncio.create_task(answer.pipe(sink))
        gates[0].set()
        await piping
        gates[1].set()
        await (await backend.exchange()).answered.wait()
        await quiet(lambda: len(got), 20)
        assert got == [b"one"]
        assert await read_all(answer) == b"two"


async def test_pipe_ends_when_the_answer_breaks_and_read_says_how() -> None:
    gate = Gate()
    async with (
        Backend(raw(CHUNKED + b"3\r\none\r\n", gate, ending=Ending.CUT)) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        assert await answer.read() == b"one"
        gate.set()
        await answer.pipe(lambda _: True)
        assert isinstance(await failure_of(answer.read()), ResponseBroken)


async def test_pipe_leaves_unread_data_to_read() -> None:
    async with (
        Backend(lambda _: Script(chunks=[b"body"])) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        await quiet(lambda: answer.complete, 20)
        await answer.pipe(lambda _: pytest.fail("there was something to read first"))
        assert await answer.read() == b"body"


async def test_a_large_answer_goes_through_pipe_and_read_in_order() -> None:
    body = bytes(range(256)) * 8_000
    taken: list[bytes] = []

    def sink(data: bytes) -> bool:
        taken.append(data)
        return len(taken) % 3 != 0

    async with (
        Backend(lambda _: Script(framing=Framing.CHUNKED, chunks=[body])) as backend,
        pool_to(backend) as pool,
    ):
        async with Exchange(pool, GET, b"", True) as answer:
            while data := await answer.read():
                taken.append(data)
                await answer.pipe(sink)
        assert b"".join(taken) == body
        assert pool.idle == 1
