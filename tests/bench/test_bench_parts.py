"""The parts a benchmark's verdict rests on: its arithmetic, the mock engine's answers and the load generator's counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.bench.arithmetic import cpu_per_chunk, median_difference, median_ratio, percentile, slope
from tests.bench.chat_bodies import FLOOD_TOKENS, PLAIN_BODY_BYTES, chat_body, chat_request, chat_requests
from tests.bench.exchange import Exchange, Tally
from tests.bench.figures import Figure
from tests.bench.load_generator import Job, Load
from tests.bench.mock_engine import Connection, Engine
from tests.bench.process_tree import (
    core_ticks,
    cpu_seconds,
    established_sockets,
    kinds_of_descriptors,
    open_descriptors,
    process_tree,
    resident_bytes,
    sockets,
    stolen_share,
)
from tests.bench.table import markdown


def test_a_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], 0.5) == 3.0
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([7.0], 0.01) == 7.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_ratios_are_taken_inside_each_round() -> None:
    # The machine was ten times slower in the last round: both were, so the ratio does not notice.
    assert median_ratio([2.0, 2.0, 20.0], [1.0, 1.0, 10.0]) == 2.0
    assert median_difference([3.0, 5.0, 9.0], [1.0, 1.0, 1.0]) == 4.0


def test_a_slope_is_growth_per_request() -> None:
    assert slope([0, 100, 200], [1000, 1400, 1800]) == pytest.approx(4.0)
    assert slope([5], [1]) == 0.0


def test_a_stream_is_charged_as_one_request_and_the_rest_is_shared_by_its_chunks() -> None:
    assert cpu_per_chunk(streamed_cpu=1.1, streams=10, cpu_per_request=0.01, chunks=1000) == pytest.approx(
        0.001
    )


def test_a_figure_misses_its_bar_only_above_it() -> None:
    assert not Figure(topic="CPU", name="a", value=1.0, unit="x", bar=1.0).missed
    assert Figure(topic="CPU", name="a", value=1.01, unit="x", bar=1.0).missed
    assert Figure(topic="CPU", name="a", value=float("nan"), unit="x", bar=1.0).missed
    assert not Figure(topic="CPU", name="a", value=99.0, unit="x").missed


def test_the_markdown_table_shows_value_bar_and_verdict() -> None:
    shown = markdown(
        [Figure(topic="CPU", name="a / b", value=1.25, unit="x", bar=1.0, detail="how")], ["today"]
    )
    assert "| CPU: a / b | 1.25 x | <= 1 | missed | how |" in shown
    assert shown.startswith("today")


def test_bodies_have_the_stated_size_and_differ() -> None:
    bodies = {chat_body(variant=variant) for variant in range(8)}
    assert len(bodies) == 8
    assert {len(body) for body in bodies} == {PLAIN_BODY_BYTES}
    assert len(chat_body(size=500_000)) == 500_000
    assert json.loads(chat_body(chunks=7, include_usage=True))["max_tokens"] == 7


def test_streams_differ_in_length_around_their_mean() -> None:
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in chat_requests(80, chunks=40)]
    lengths = [body["max_tokens"] for body in bodies]
    assert (min(lengths), max(lengths)) == (20, 60)
    assert sum(lengths) / len(lengths) == 40
    assert all(body["stream"] for body in bodies)


def test_the_process_tree_accounts_for_this_process() -> None:
    own = os.getpid()
    assert own in process_tree(own)
    assert resident_bytes(own) > 1_000_000
    assert open_descriptors(own) > 2
    assert established_sockets(own) >= 0
    before = cpu_seconds(own)
    spinner = threading.Thread(target=lambda: sum(range(300_000)))
    spinner.start()
    spinner.join()
    # The work of a thread that has ended still counts.
    assert cpu_seconds(own) > before


def test_sockets_are_known_by_their_peer_and_dead_ones_are_among_them() -> None:
    own = os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = listener.accept()
            assert [one.is_established for one in sockets(own) if one.peer_port == port] == [True]
            accepted.close()
            assert [one.is_established for one in sockets(own) if one.peer_port == port] == [False]
        assert not [one for one in sockets(own) if one.peer_port == port]


def test_open_descriptors_are_told_by_what_they_are() -> None:
    own = os.getpid()
    dead = "socket in no table"
    before = kinds_of_descriptors(own)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            accepted, _ = listener.accept()
            found = kinds_of_descriptors(own)
            assert found[f"tcp state 01 to {port}"] == 1 and found.total() == before.total() + 3
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()  # resets it
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
            assert kinds_of_descriptors(own)[dead] == before[dead] + 1


@contextlib.asynccontextmanager
async def _engine() -> AsyncIterator[tuple[Engine, int]]:
    """A mock engine in this loop and its port; leaving waits until every client is gone."""
    engine = Engine(step_ms=1, groups=2)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(engine), "127.0.0.1", 0)
    engine.start()
    async with server:
        yield engine, server.sockets[0].getsockname()[1]
        await asyncio.wait_for(engine.all_left.wait(), 10)


async def _answers(port: int, *bodies: bytes) -> tuple[list[bytes], Tally]:
    """Send the bodies one after another on one connection; the raw answers and what the exchange made of them."""
    tally = Tally()
    received: list[bytes] = []
    ended = asyncio.Event()

    class Recorded(Exchange):
        def data_received(self, data: bytes) -> None:
            received[-1] += data
            super().data_received(data)

    def protocol() -> Recorded:
        return Recorded(tally, lambda _: ended.set(), timed=True, stamped=True)

    _, exchange = await asyncio.get_running_loop().create_connection(protocol, "127.0.0.1", port)
    for body in bodies:
        received.append(b"")
        ended.clear()
        exchange.send(chat_request(port, body))
        await ended.wait()
    exchange.transport.close()
    return received, tally


async def test_the_mock_engine_answers_plain_calls_with_a_completion_and_usage() -> None:
    async with _engine() as (engine, port):
        (first, second), tally = await _answers(port, chat_body(), chat_body(size=500_000))
    assert first == second
    completion = json.loads(first.partition(b"\r\n\r\n")[2])
    assert completion["object"] == "chat.completion"
    assert completion["usage"]["total_tokens"] == 400
    assert (tally.requests, tally.errors, engine.requests) == (2, 0, 2)


async def test_the_mock_engine_streams_the_chunks_asked_for_and_usage_only_on_request() -> None:
    async with _engine() as (_, port):
        (plain, with_usage), tally = await _answers(
            port, chat_body(chunks=5), chat_body(chunks=3, include_usage=True)
        )
    events = [line for line in with_usage.split(b"\n") if line.startswith(b"data: ")]
    assert events[-1] == b"data: [DONE]"
    parsed = [json.loads(event[6:]) for event in events[:-1]]
    assert parsed[0]["choices"][0]["delta"]["role"] == "assistant"
    assert sum(event["choices"] == [] for event in parsed) == 1
    assert b'"usage"' not in plain
    assert plain.endswith(b"0\r\n\r\n")
    assert (tally.chunks, tally.requests, tally.errors) == (8, 2, 0)
    assert len(tally.transits) == 8
    now = time.monotonic_ns()
    assert all(0 <= transit <= now for _, transit in tally.transits)


async def test_the_mock_engine_floods_under_backpressure_and_notices_who_left() -> None:
    async with _engine() as (engine, port):
        (flood,), tally = await _answers(port, chat_body(chunks=FLOOD_TOKENS))
        assert len(flood) > 1_000_000
        assert tally.errors == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(chat_request(port, chat_body(chunks=100_000)))
        await reader.readuntil(b"data: ")
        assert sum(map(len, engine.batches)) == 1
        writer.close()
        await writer.wait_closed()
    assert (sum(map(len, engine.batches)), engine.aborted) == (0, 1)


async def test_the_load_generator_counts_what_was_answered() -> None:
    async with _engine() as (engine, port):
        outcome = await Load(Job(port=port, connections=4, requests=50)).run()
    assert (outcome.requests, outcome.errors, engine.requests) == (50, 0, 50)


async def test_the_open_loop_times_every_answer_and_large_calls_do_not_count() -> None:
    job = Job(
        port=0, connections=4, rate=500, requests=20, timed=True, large_per_second=100, large_bytes=50_000
    )
    async with _engine() as (engine, port):
        outcome = await Load(replace(job, port=port)).run()
    assert outcome.requests == len(outcome.latencies_ms) == 20
    assert engine.requests >= 20
    assert outcome.errors == 0


def test_what_the_host_took_is_a_part_of_all_cores_time() -> None:
    assert stolen_share([5, 0, 0, 9, 0, 0, 0, 1], [65, 0, 20, 19, 0, 0, 0, 11]) == pytest.approx(0.1)
    assert stolen_share([1] * 8, [1] * 8) == 0.0
    assert stolen_share(before := core_ticks(), core_ticks()) < 1.0 and len(before) == 8
