"""What counts as an answer, where it ends, and what is refused instead of believed."""

from __future__ import annotations

import pytest

from gateway.upstream.client import Exchange
from gateway.upstream.failures import ResponseBroken
from tests.backend import Backend, Ending, Framing, Gate, Script
from tests.gateway.upstream.pools import (
    BIG_BODY,
    CHUNKED,
    GET,
    HEAD,
    failure_of,
    fetch,
    in_turn,
    plain,
    pool_to,
    post_head,
    raw,
    read_all,
)

LENGTH_9 = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"


async def test_an_answer_with_a_length_arrives_whole() -> None:
    async with Backend(lambda _: Script(chunks=[b"a" * 200_000])) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"a" * 200_000)
        assert pool.idle == 1


async def test_status_and_headers_arrive_in_order_with_lower_case_names_and_duplicates() -> None:
    answer = b"HTTP/1.1 429 Later\r\nSet-Cookie: a\r\nX: \xe9\r\nset-cookie: b\r\ncontent-length: 0\r\n\r\n"
    async with (
        Backend(raw(answer)) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as got,
    ):
        assert got.status == 429
        assert got.headers == [
            (b"set-cookie", b"a"),
            (b"x", b"\xe9"),
            (b"set-cookie", b"b"),
            (b"content-length", b"0"),
        ]
        assert await got.read() == b""


async def test_chunks_with_extensions_and_trailers_become_their_data() -> None:
    body = b'3;a=b;c="d;e"\r\none\r\n0003\r\ntwo\r\n0;last\r\nX-Trailer: v\r\n\r\n'
    async with Backend(raw(CHUNKED + body)) as backend, pool_to(backend) as pool:
        async with Exchange(pool, GET, b"", True) as answer:
            assert await read_all(answer) == b"onetwo"
            assert answer.headers == [(b"transfer-encoding", b"chunked")]
        assert await fetch(pool) == (200, b"onetwo")
        assert backend.accepted == 1


async def test_a_chunk_that_comes_byte_by_byte_is_the_same_chunk() -> None:
    gates = [Gate() for _ in range(3)]
    whole = CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"
    cut = len(CHUNKED)
    script = raw(
        whole[: cut + 1],
        gates[0],
        whole[cut + 1 : cut + 5],
        gates[1],
        whole[cut + 5 : -1],
        gates[2],
        whole[-1:],
    )
    async with (
        Backend(script) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        gates[0].set()
        got = await answer.read()
        gates[1].set()
        while len(got) < 5:
            got += await answer.read()
        assert (got, answer.complete) == (b"hello", False)
        gates[2].set()
        assert await answer.read() == b""


async def test_without_framing_the_close_is_the_end_and_the_connection_is_gone() -> None:
    script = Script(chunks=[b"one", b"two"], framing=Framing.UNTIL_CLOSE)
    async with Backend(lambda _: script) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"onetwo")
        assert pool.idle == 0


@pytest.mark.parametrize(
    "head", [LENGTH_9 + b"one", CHUNKED + b"3\r\none\r\n", CHUNKED + b"9\r\none", CHUNKED]
)
@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET])
async def test_a_cut_body_is_broken_after_the_bytes_that_came(head: bytes, ending: Ending) -> None:
    gate = Gate()
    async with Backend(raw(head, gate, ending=ending)) as backend, pool_to(backend) as pool:
        async with Exchange(pool, GET, b"", True) as answer:
            if b"one" in head:
                assert await answer.read() == b"one"
            gate.set()
            assert "inside its answer" in str(await failure_of(answer.read()))
        assert pool.idle == 0


async def test_a_reset_is_not_the_clean_end_of_a_body_without_framing() -> None:
    gate = Gate()
    script = raw(UNTIL_CLOSE + b"one", gate, ending=Ending.RESET)
    async with (
        Backend(script) as backend,
        pool_to(backend) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        assert await answer.read() == b"one"
        gate.set()
        assert isinstance(await failure_of(answer.read()), ResponseBroken)


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nA: b\r\n"])
@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET])
async def test_a_cut_head_is_broken(part: bytes, ending: Ending) -> None:
    async with Backend(raw(part, ending=ending)) as backend, pool_to(backend) as pool:
        assert isinstance(await failure_of(fetch(pool)), ResponseBroken)


@pytest.mark.parametrize(
    "coding", [b"gzip", b"identity", b"chunked, gzip", b"chunked\r\ntransfer-encoding: identity"]
)
async def test_a_coding_that_is_not_chunked_last_never_ends_cleanly(coding: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: " + coding + b"\r\n\r\n3\r\none\r\n0\r\n\r\n"
    async with Backend(raw(answer, ending=Ending.CUT)) as backend, pool_to(backend) as pool:
        assert isinstance(await failure_of(fetch(pool)), ResponseBroken)


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\ncontent-length: 3\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Hints\r\nx: y\r\n\r\n",
    ],
)
async def test_interim_answers_are_skipped(interim: bytes) -> None:
    gate = Gate()
    gate.set()
    for chunks in ([interim + plain(b"body")], [interim, gate, plain(b"body")]):
        async with Backend(raw(*chunks)) as backend, pool_to(backend) as pool:
            for _ in range(2):
                async with Exchange(pool, GET, b"", True) as answer:
                    assert answer.headers == [(b"content-length", b"4")]
                    assert await read_all(answer) == b"body"
            assert backend.accepted == 1


async def test_the_head_after_an_interim_answer_is_waited_for() -> None:
    gate = Gate()
    script = raw(b"HTTP/1.1 100 Continue\r\n\r\n", gate, plain(b"x"))
    async with Backend(script, on_head=lambda _: gate.set()) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"x")


async def test_an_endless_row_of_interim_answers_is_cut() -> None:
    script = raw(*[b"HTTP/1.1 102 Processing\r\n\r\n" * 100] * 100)
    async with Backend(script) as backend, pool_to(backend) as pool:
        assert "exceeds" in str(await failure_of(fetch(pool)))


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n\x81\x00",
        b"HTTP/1.1 101 Switching\r\n\r\n",
    ],
)
async def test_switching_protocols_unasked_is_refused(head: bytes) -> None:
    async with Backend(raw(head, ending=Ending.SILENT)) as backend, pool_to(backend) as pool:
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ResponseBroken)


async def test_the_answer_to_head_ends_with_its_headers_whatever_length_they_announce() -> None:
    for script in (
        Script(headers=[(b"content-length", b"1234")]),
        Script(framing=Framing.CHUNKED),
        Script(framing=Framing.UNTIL_CLOSE),
    ):
        async with Backend(lambda _, script=script: script) as backend, pool_to(backend) as pool:  # type: ignore[misc]
            assert await fetch(pool, HEAD, body_expected=False) == (200, b"")
            assert await fetch(pool, HEAD, body_expected=False) == (200, b"")


async def test_a_body_after_an_answer_that_has_none_is_nobodys_answer() -> None:
    async with Backend(raw(plain(b"body"))) as backend, pool_to(backend) as pool:
        assert await fetch(pool, GET, body_expected=False) == (200, b"")
        assert pool.idle == 0
        assert await fetch(pool) == (200, b"body")


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_an_answer_without_a_body_by_its_status_ends_with_its_headers(status: bytes) -> None:
    async with Backend(raw(b"HTTP/1.1 " + status + b"\r\n\r\n")) as backend, pool_to(backend) as pool:
        for _ in range(2):
            assert await fetch(pool) == (int(status[:3]), b"")
        assert backend.accepted == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n3\r\none\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\none!",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\none",
        b"HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\none",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\n\r\none",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\none",
        b"HTTP/1.1 200 OK\ncontent-length: 3\n\none",
        b"HTTP/1.1 200 OK\r\nfolded: a\r\n b\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : value\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnul: a\x00b\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 099 Low\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 600 High\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 20 Short\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"<html>no head at all</html>",
        b"\x00" * 100,
        CHUNKED + b"zz\r\none\r\n",
        CHUNKED + b"-3\r\none\r\n",
        CHUNKED + b"fffffffffffffffffffff\r\none\r\n",
        CHUNKED + b"3\r\nonetwo\r\n0\r\n\r\n",
    ],
)
async def test_what_is_not_strictly_http_is_refused_while_the_engine_still_waits(answer: bytes) -> None:
    async with Backend(raw(answer, ending=Ending.SILENT)) as backend, pool_to(backend) as pool:
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ResponseBroken)
        await (await backend.exchange()).peer_closed.wait()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 257 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 65_600 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + (b"a: " + b"b" * 9_000 + b"\r\n") * 8 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000,
        b"HTTP/1.1 200 OK\r\n" + b"b" * 300_000,
        b"HTTP/1.1 200 " + b"b" * 300_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000,
        b"\r\n" * 200_000,
    ],
)
async def test_a_head_beyond_its_bounds_is_refused(head: bytes) -> None:
    async with Backend(raw(head, ending=Ending.SILENT)) as backend, pool_to(backend) as pool:
        assert "head" in str(await failure_of(fetch(pool)))


async def test_a_head_within_its_bounds_is_taken() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + (b"a: " + b"b" * 250 + b"\r\n") * 255 + b"content-length: 1\r\n\r\n"
    async with Backend(raw(head + b"x")) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"x")


@pytest.mark.parametrize(
    "endless", [b"0\r\n" + b"a: b\r\n" * 60_000, b"0\r\na: " + b"b" * 300_000, b"3;" + b"x" * 300_000]
)
async def test_an_endless_trailer_or_chunk_extension_is_cut(endless: bytes) -> None:
    script = raw(CHUNKED + b"1\r\nx\r\n" + endless, ending=Ending.SILENT)
    async with Backend(script) as backend, pool_to(backend) as pool:
        assert "exceeds" in str(await failure_of(fetch(pool)))


async def test_a_body_of_tiny_chunks_may_be_of_any_size() -> None:
    script = raw(CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
    async with Backend(script) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"x" * 100_000)


async def test_an_answer_of_http_1_0_is_read_and_its_connection_not_kept() -> None:
    answer = b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\none"
    async with Backend(raw(answer)) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"one")
        assert pool.idle == 0


async def test_an_answer_of_http_1_0_may_ask_for_its_connection_to_be_kept() -> None:
    answer = b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\none"
    async with Backend(raw(answer)) as backend, pool_to(backend) as pool:
        for _ in range(2):
            assert await fetch(pool) == (200, b"one")
        assert backend.accepted == 1


async def test_an_answer_of_http_1_0_without_a_length_ends_with_the_connection() -> None:
    script = raw(b"HTTP/1.0 200 OK\r\n\r\none", ending=Ending.CUT)
    async with Backend(script) as backend, pool_to(backend) as pool:
        assert await fetch(pool) == (200, b"one")


async def test_an_engine_that_half_closes_behind_its_answer_has_answered() -> None:
    script = Script(chunks=[b"one"], ending=Ending.CLOSE_AFTER)
    async with Backend(lambda _: script) as backend, pool_to(backend) as pool:
        for _ in range(3):
            assert await fetch(pool) == (200, b"one")


async def test_an_early_answer_is_read_while_the_engine_takes_no_more_of_a_large_body() -> None:
    early = Script(status=413, chunks=[b"too large"], ending=Ending.STOP_READING)
    async with Backend(on_head=lambda _: early) as backend, pool_to(backend.url) as pool:
        assert await fetch(pool, post_head(BIG_BODY), BIG_BODY) == (413, b"too large")
        assert pool.idle == 0


async def test_an_early_answer_larger_than_any_buffer_is_read_while_the_upload_is_stuck() -> None:
    early = Script(status=413, chunks=[b"e" * 2_000_000], ending=Ending.STOP_READING)
    async with Backend(on_head=lambda _: early) as backend, pool_to(backend.url) as pool:
        assert await fetch(pool, post_head(BIG_BODY), BIG_BODY) == (413, b"e" * 2_000_000)


async def test_an_answer_that_begins_during_the_upload_does_not_end_it() -> None:
    rest = Gate()
    early = Script(chunks=[b"one", rest, b"two"], framing=Framing.CHUNKED)
    async with Backend(on_head=lambda _: early) as backend, pool_to(backend) as pool:
        async with Exchange(pool, post_head(BIG_BODY), BIG_BODY, True) as answer:
            assert await answer.read() == b"one"
            exchange = await backend.exchange()
            await exchange.body_complete.wait()
            rest.set()
            assert await read_all(answer) == b"two"
        assert exchange.request.body == BIG_BODY
        assert pool.idle == 1


async def test_an_early_answer_leaves_no_rest_of_its_request_to_the_next_one() -> None:
    early = Script(status=400, chunks=[b"no"])
    scripts = [early]

    async with (
        Backend(on_head=lambda _: scripts.pop() if scripts else None) as backend,
        pool_to(backend) as pool,
    ):
        status, _ = await fetch(pool, post_head(BIG_BODY), BIG_BODY)
        assert status == 400
        assert (await fetch(pool))[0] == 200
        assert backend.accepted == 2 or backend.exchanges[0].request.body == BIG_BODY


async def test_a_large_body_arrives_byte_for_byte_and_the_connection_is_kept() -> None:
    body = bytes(range(256)) * 20_000
    async with Backend() as backend, pool_to(backend) as pool:
        assert (await fetch(pool, post_head(body), body))[0] == 200
        assert backend.exchanges[0].request.body == body
        assert pool.idle == 1


async def test_an_engine_that_closes_during_the_upload_has_broken_the_answer() -> None:
    gate = Gate()
    early = Script(framing=Framing.RAW, chunks=[gate], ending=Ending.RESET)
    async with (
        Backend(on_head=lambda _: early) as backend,
        pool_to(backend) as pool,
    ):
        gate.set()
        failure = await failure_of(fetch(pool, post_head(BIG_BODY), BIG_BODY))
        assert "before it answered" in str(failure)


async def test_zero_progress_scripts_do_not_confuse_the_next_answer() -> None:
    scripts = in_turn(raw(CHUNKED + b"0\r\n\r\n"), raw(plain(b"")), raw(plain(b"x")))
    async with Backend(scripts) as backend, pool_to(backend) as pool:
        assert [await fetch(pool) for _ in range(3)] == [(200, b""), (200, b""), (200, b"x")]
        assert backend.accepted == 1
