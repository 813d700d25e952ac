"""Which connection serves which request: reuse, bounds, the one free retry, and answers that nobody asked for."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from gateway.upstream.client import Exchange
from gateway.upstream.failures import PoolFull, ResponseBroken, StaleConnection
from tests.backend import Backend, Ending, Framing, Gate, Script
from tests.gateway.upstream.pools import (
    BIG_BODY,
    CHUNKED,
    GET,
    failure_of,
    fetch,
    in_turn,
    plain,
    pool_to,
    post_head,
    quiet,
    raw,
    read_all,
    until,
)


def used(backend: Backend) -> list[int]:
    return [exchange.connection for exchange in backend.exchanges]


async def test_one_request_after_the_other_takes_one_connection() -> None:
    async with Backend() as backend, pool_to(backend) as pool:
        for _ in range(5):
            await fetch(pool)
        assert (used(backend), pool.opened, pool.idle) == ([0] * 5, 1, 1)


async def test_the_connection_given_back_last_is_taken_first() -> None:
    async with Backend() as backend, pool_to(backend) as pool:
        async with Exchange(pool, GET, b"", True) as first:
            async with Exchange(pool, GET, b"", True) as second:
                assert pool.busy == 2
                await read_all(second)
            await read_all(first)
        assert pool.idle == 2
        await fetch(pool)
        await fetch(pool)
        assert used(backend) == [0, 1, 0, 0]


async def test_beyond_max_connections_a_request_fails_at_once() -> None:
    gate = Gate()
    script = Script(before_head=gate)
    async with Backend(lambda _: script) as backend, pool_to(backend, max_connections=2) as pool:
        held = [asyncio.create_task(fetch(pool)) for _ in range(2)]
        await backend.until(lambda: len(backend.exchanges) == 2)
        assert isinstance(await failure_of(fetch(pool)), PoolFull)
        gate.set()
        await asyncio.gather(*held)
        await fetch(pool)
        assert backend.accepted == 2


async def test_connections_that_are_still_opening_count_against_the_bound() -> None:
    async with Backend() as backend, pool_to(backend, max_connections=3) as pool:
        results = await asyncio.gather(*[fetch(pool) for _ in range(8)], return_exceptions=True)
        assert sum(isinstance(result, PoolFull) for result in results) == 5
        assert backend.accepted == 3


async def test_no_more_than_max_idle_connections_are_kept() -> None:
    async with Backend() as backend, pool_to(backend, max_idle_connections=2) as pool:
        await asyncio.gather(*[fetch(pool) for _ in range(5)])
        assert (pool.idle, pool.busy) == (2, 0)
        await backend.until(lambda: len(backend.connections) == 2)


async def test_with_no_idle_connections_allowed_none_is_kept() -> None:
    async with Backend() as backend, pool_to(backend, max_idle_connections=0) as pool:
        await fetch(pool)
        await fetch(pool)
        assert (pool.idle, backend.accepted) == (0, 2)


@pytest.mark.parametrize("value", [b"close", b"Close", b"keep-alive, close"])
async def test_an_answer_that_says_close_ends_its_connection(value: bytes) -> None:
    script = raw(b"HTTP/1.1 200 OK\r\nconnection: " + value + b"\r\ncontent-length: 1\r\n\r\nx")
    async with Backend(script) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"x")
        assert pool.idle == 0
        await fetch(pool)
        assert backend.accepted == 2


async def test_an_answer_that_was_not_read_to_its_end_costs_its_connection() -> None:
    script = raw(CHUNKED + b"3\r\none\r\n", Gate(), ending=Ending.SILENT)
    async with Backend(script) as backend, pool_to(backend) as pool:
        async with Exchange(pool, GET, b"", True) as answer:
            assert await answer.read() == b"one"
        assert (pool.idle, pool.busy) == (0, 0)
        await (await backend.exchange()).peer_closed.wait()


async def test_an_answer_that_came_in_full_but_was_left_unread_does_not_stop_the_next_one() -> None:
    async with Backend(raw(plain(b"a" * 40_000))) as backend, pool_to(backend) as pool:
        for _ in range(3):
            async with Exchange(pool, GET, b"", True) as answer:
                await until(lambda answer=answer: answer.complete)  # type: ignore[misc]
                assert answer.is_drained is False
        assert await fetch(pool) == (200, b"a" * 40_000)


async def test_a_kept_connection_that_dies_unused_is_forgotten() -> None:
    script = Script(ending=Ending.CLOSE_AFTER)
    async with Backend(lambda _: script) as backend, pool_to(backend, max_connections=1) as pool:
        for _ in range(3):
            await fetch(pool)
            await until(lambda: pool.idle == 0)
        assert (backend.accepted, pool.busy) == (3, 0)


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET])
@pytest.mark.parametrize("body", [b"", b"small", BIG_BODY])
async def test_a_reused_connection_that_dies_before_a_byte_costs_one_free_retry(
    ending: Ending, body: bytes
) -> None:
    scripts = in_turn(raw(plain(b"one")), raw(ending=ending), raw(plain(b"two")))
    async with Backend(scripts) as backend, pool_to(backend, max_connections=1) as pool:
        await fetch(pool)
        assert await fetch(pool, post_head(body), body) == (200, b"two")
        assert used(backend) == [0, 0, 1]
        assert backend.exchanges[2].request.body == body


async def test_a_reused_connection_that_dies_during_the_upload_costs_one_free_retry() -> None:
    dying = Script(framing=Framing.RAW, ending=Ending.RESET)
    left = [None, dying, None]
    async with Backend(on_head=lambda _: left.pop(0)) as backend, pool_to(backend) as pool:
        await fetch(pool)
        assert (await fetch(pool, post_head(BIG_BODY), BIG_BODY))[0] == 200
        assert used(backend) == [0, 0, 1]


async def test_the_free_retry_goes_to_a_fresh_connection_and_not_to_another_kept_one() -> None:
    gate = Gate()
    held = Script(before_head=gate)
    scripts = in_turn(lambda _: held, lambda _: held, raw(ending=Ending.CUT), raw(plain(b"x")))
    async with Backend(scripts) as backend, pool_to(backend) as pool:
        both = [asyncio.create_task(fetch(pool)) for _ in range(2)]
        await backend.until(lambda: len(backend.exchanges) == 2)
        gate.set()
        await asyncio.gather(*both)
        assert pool.idle == 2
        assert await fetch(pool) == (200, b"x")
        assert used(backend)[3] == 2


async def test_the_retry_itself_is_not_retried() -> None:
    scripts = in_turn(raw(plain(b"one")), raw(ending=Ending.CUT))
    async with Backend(scripts) as backend, pool_to(backend) as pool:
        await fetch(pool)
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ResponseBroken) and not isinstance(failure, StaleConnection)
        assert used(backend) == [0, 0, 1]


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET])
async def test_a_fresh_connection_that_dies_is_not_retried(ending: Ending) -> None:
    async with Backend(raw(ending=ending)) as backend, pool_to(backend) as pool:
        assert isinstance(await failure_of(fetch(pool)), ResponseBroken)
        assert used(backend) == [0]


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", plain(b"x")[:-1]])
async def test_after_a_byte_of_the_answer_there_is_no_free_retry(part: bytes) -> None:
    scripts = in_turn(raw(plain(b"one")), raw(part, ending=Ending.CUT))
    async with Backend(scripts) as backend, pool_to(backend) as pool:
        await fetch(pool)
        assert isinstance(await failure_of(fetch(pool)), ResponseBroken)
        assert used(backend) == [0, 0]


EVIL = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"


@pytest.mark.parametrize("cut", [1, 5, 17, len(EVIL) - 5, len(EVIL) - 1, len(EVIL)])
async def test_a_second_answer_in_one_piece_with_the_first_is_nobodys(cut: int) -> None:
    gate = Gate()
    split = raw(plain(b"one") + EVIL[:cut], gate, EVIL[cut:])
    async with Backend(in_turn(split, raw(plain(b"good")))) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"one")
        gate.set()
        assert await fetch(pool) == (200, b"good")
        assert used(backend) == [0, 1]


@pytest.mark.parametrize("first", [CHUNKED + b"3\r\none\r\n0\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"])
@pytest.mark.parametrize("second", [EVIL, EVIL[:9], b"HTTP/1.1 103 Hints\r\n\r\n", b"junk", b"0\r\n\r\n"])
async def test_whatever_follows_an_answer_ends_the_connection(first: bytes, second: bytes) -> None:
    async with (
        Backend(in_turn(raw(first + second), raw(plain(b"good")))) as backend,
        pool_to(backend) as pool,
    ):
        await fetch(pool)
        assert await fetch(pool) == (200, b"good")
        assert used(backend) == [0, 1]


async def test_a_second_answer_that_comes_while_the_first_is_being_read_is_nobodys() -> None:
    gate = Gate()
    script = raw(plain(b"one"), gate, EVIL)
    async with Backend(in_turn(script, raw(plain(b"good")))) as backend, pool_to(backend) as pool:
        async with Exchange(pool, GET, b"", True) as answer:
            assert await answer.read() == b"one"
            gate.set()
            await (await backend.exchange()).answered.wait()
            await quiet(lambda: answer.complete, 20)
        assert pool.idle == 0
        assert await fetch(pool) == (200, b"good")


async def test_a_second_answer_that_comes_while_the_connection_is_idle_closes_it() -> None:
    gate = Gate()
    script = raw(plain(b"one"), gate, EVIL)
    async with Backend(in_turn(script, raw(plain(b"good")))) as backend, pool_to(backend) as pool:
        await fetch(pool)
        gate.set()
        await until(lambda: pool.idle == 0)
        assert await fetch(pool) == (200, b"good")
        assert backend.accepted == 2


@pytest.mark.parametrize("unread", [EVIL, EVIL[:9], b""])
async def test_what_lies_unread_in_a_kept_connection_is_seen_before_the_next_request(unread: bytes) -> None:
    """An answer nobody asked for, or (b"") the engine's goodbye; the engine's side is moved by hand, so that the loop has not looked yet."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with pool_to(f"http://127.0.0.1:{listener.getsockname()[1]}") as pool:
            asking = asyncio.create_task(fetch(pool))
            first, _ = await loop.sock_accept(listener)
            assert await loop.sock_recv(first, 1000) == GET
            await loop.sock_sendall(first, plain(b"one"))
            await asking
            assert pool.idle == 1
            asking = asyncio.create_task(fetch(pool))
            # From here to the request there is no turn of the loop.
            if unread:
                first.send(unread)
            else:
                first.shutdown(socket.SHUT_WR)
            second, _ = await loop.sock_accept(listener)
            assert await loop.sock_recv(second, 1000) == GET
            await loop.sock_sendall(second, plain(b"good"))
            assert await asking == (200, b"good")
            with contextlib.suppress(ConnectionResetError):
                assert first.recv(1000) == b""
            first.close()
            second.close()


async def test_an_empty_line_behind_an_answer_is_forgiven() -> None:
    async with Backend(raw(plain(b"one") + b"\r\n")) as backend, pool_to(backend) as pool:
        for _ in range(3):
            assert await fetch(pool) == (200, b"one")


async def test_what_a_server_says_before_it_was_asked_is_no_answer() -> None:
    async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVIL)
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(speak_first, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, pool_to(f"http://127.0.0.1:{port}") as pool:
        async with Exchange(pool, GET, b"", True) as answer:
            assert answer.status == 200  # it cannot be told from a fast one on a fresh connection
            await read_all(answer)
        pool.close()
        await until(lambda: len(asyncio.all_tasks()) == 1)
