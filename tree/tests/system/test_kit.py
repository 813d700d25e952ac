"""The test kit against itself: what backend, client and ASGI driver promise is what other tests lean on."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests import captures, client
from tests.asgi import Call
from tests.backend import Backend, Ending, Exchange, Framing, Gate, Request, Script, json_script, sse_script
from tests.gateway_process import GatewayProcess

POST = client.request("POST", "/v1/chat/completions", body=b"{}")


@pytest.mark.parametrize("engine", captures.ENGINES)
async def test_a_captured_answer_leaves_the_backend_as_it_was_recorded(engine: str) -> None:
    by_name = {capture.name: capture for capture in captures.load(engine)}

    def replay(request: Request) -> Script:
        return by_name[(request.value(b"x-capture") or b"").decode()].script(request)

    async with Backend(replay, record_probes=True) as backend:
        backend.probes.clear()
        for capture in by_name.values():
            if "32MiB" in capture.name:
                continue
            answer = await client.send(backend.port, capture.request())
            assert (answer.head.start_line, answer.headers) == (
                capture.answer.start_line,
                capture.answer.headers,
            )
            assert (answer.body, answer.complete) == (capture.answer_body, True), capture.id
            assert backend.exchanges[-1].request.body == capture.request_body
    assert len(by_name) >= 151


async def test_a_gate_holds_the_answer_until_it_is_opened() -> None:
    head_gate, gate = Gate(), Gate()

    def script(_: Request) -> Script:
        return Script(
            chunks=[b"one", gate, b"two"],
            framing=Framing.CHUNKED,
            before_head=head_gate,
            informational=[b"HTTP/1.1 103 Early Hints\r\nlink: </a>"],
        )

    async with Backend(script) as backend, await client.connect(backend.port) as connection:
        await connection.send(POST)
        exchange = await backend.exchange()
        await exchange.body_complete.wait()
        assert exchange.bytes_sent == 0
        head_gate.set()
        head = await connection.read_head()
        assert [interim.start_line for interim in head.interim] == [b"HTTP/1.1 103 Early Hints"]
        pieces = connection.pieces(head)
        assert await anext(pieces) == b"one"
        await backend.until(lambda: exchange.chunks_sent == 1)
        gate.set()
        assert await anext(pieces) == b"two"
        assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("how", ["close", "shut_write", "reset"])
async def test_the_backend_sees_how_its_peer_leaves(how: str) -> None:
    async with Backend(lambda _: sse_script(b"1", Gate())) as backend:
        connection = await client.connect(backend.port)
        await connection.send(POST)
        exchange = await backend.exchange()
        await backend.until(lambda: exchange.chunks_sent == 1)
        await connection.read_some()
        assert not exchange.peer_closed.is_set()
        getattr(connection, how)()
        await exchange.peer_closed.wait()
        assert exchange.peer_reset is (how == "reset")
        assert not exchange.answered.is_set()
        await backend.until(lambda: not backend.connections)
        connection.close()


@pytest.mark.parametrize(
    ("framing", "ending", "complete", "reset"),
    [
        (Framing.CHUNKED, Ending.CLEAN, True, False),
        (Framing.CHUNKED, Ending.CUT, False, False),
        (Framing.CHUNKED, Ending.RESET, False, True),
        (Framing.UNTIL_CLOSE, Ending.CLEAN, True, False),
        (Framing.LENGTH, Ending.CLOSE_AFTER, True, False),
    ],
)
async def test_the_client_tells_a_finished_answer_from_a_broken_one(
    framing: Framing, ending: Ending, complete: bool, reset: bool
) -> None:
    read = Gate()
    chunks: list[bytes | Gate] = [b"part", read] if ending is Ending.RESET else [b"part"]
    script = Script(chunks=chunks, framing=framing, ending=ending)
    async with Backend(lambda _: script) as backend, await client.connect(backend.port) as connection:
        await connection.send(POST)
        head = await connection.read_head()
        ends: list[Any] = []
        body = b""
        async for piece in connection.pieces(head, ends):
            body += piece
            # A reset may overtake what is still unread, so it only comes once the part was read.
            read.set()
        assert (body, ends[0].done, connection.reset_by_peer) == (b"part", complete, reset)


async def test_a_length_that_promises_more_than_comes_is_a_broken_answer() -> None:
    short = Script(headers=[(b"content-length", b"10")], chunks=[b"only"], ending=Ending.CUT)
    async with Backend(lambda _: short) as backend:
        answer = await client.send(backend.port, POST)
    assert (answer.body, answer.complete) == (b"only", False)


async def test_connections_are_kept_alive_and_probes_stay_out_of_the_record() -> None:
    async with Backend(models=["a", "b"]) as backend, await client.connect(backend.port) as connection:
        await connection.send(client.request("GET", "/health"))
        assert (await connection.read_answer()).status == 200
        await connection.send(client.request("GET", "/v1/models"))
        cards = json.loads((await connection.read_answer()).body)["data"]
        assert [card["id"] for card in cards] == ["a", "b"]
        await connection.send(POST + client.request("POST", "/v1/x", body=b"chunky" * 3, chunk_bytes=5))
        for _ in range(2):
            assert (await connection.read_answer()).status == 200
    assert [(e.request.path, e.request.body, e.connection) for e in backend.exchanges] == [
        ("/v1/chat/completions", b"{}", 0),
        ("/v1/x", b"chunky" * 3, 0),
    ]
    assert backend.accepted == 1


async def test_an_early_answer_comes_before_the_body_and_a_stopped_reader_takes_no_more() -> None:
    def on_head(request: Request) -> Script | None:
        if request.path == "/early":
            return json_script({}, status=413, reason=b"Too Large")
        return Script(ending=Ending.STOP_READING, framing=Framing.RAW)

    async with Backend(on_head=on_head) as backend, await client.connect(backend.port) as connection:
        await connection.send(b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n")
        assert (await connection.read_answer()).status == 413
        await connection.send(b"late", more=True)
        await backend.exchanges[0].body_complete.wait()
        endless = asyncio.create_task(connection.send(client.request("POST", "/x", body=bytes(1 << 26))))
        exchange: Exchange = await backend.exchange(1)
        await exchange.answered.wait()
        assert not endless.done()
        assert len(exchange.request.body) < 1 << 22
        endless.cancel()
        await asyncio.wait([endless])


async def test_a_stopped_backend_refuses_and_comes_back_on_its_port() -> None:
    async with Backend() as backend:
        await backend.stop()
        with pytest.raises(ConnectionRefusedError):
            await client.connect(backend.port)
        await backend.start()
        assert (await client.send(backend.port, POST)).status == 200


async def test_a_backend_listens_on_tls_ipv6_and_unix_sockets(tmp_path: Path) -> None:
    authority = trustme.CA()
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)
    async with Backend(tls=server_side) as backend:
        assert backend.url == f"https://127.0.0.1:{backend.port}"
        reader, writer = await asyncio.open_connection("127.0.0.1", backend.port, ssl=client_side)
        writer.write(POST)
        assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await writer.wait_closed()
    async with Backend(host="::1") as backend:
        assert backend.url == f"http://[::1]:{backend.port}"
        assert (await client.send(backend.port, POST, host="::1")).status == 200
    socket_path = str(tmp_path / "engine.sock")
    async with Backend(path=socket_path) as backend, await client.connect(path=socket_path) as connection:
        assert backend.url == f"unix://{socket_path}"
        await connection.send(POST)
        assert (await connection.read_answer()).status == 200


Message = MutableMapping[str, Any]


async def _echo(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while (message := await receive())["type"] == "http.request":
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})
    assert scope["method"] == "POST"


async def test_the_asgi_driver_shows_messages_as_they_are_sent() -> None:
    async with Call(_echo, "POST", "/x", body=None) as call:
        assert await call.start() == (200, [])
        call.feed(b"one")
        assert (await call.message())["body"] == b"one"
        call.open_to_send.clear()
        call.feed(b"two", more=False)
        await call.sending.wait()
        assert len(call.sent) == 2
        call.open_to_send.set()
        assert await call.body() == b"two"
        assert call.running
        call.disconnect()
        await call.result()
        with pytest.raises(EOFError):
            await call.message()


async def test_the_asgi_driver_raises_what_the_application_raised() -> None:
    async with Call(_echo, "GET", "/x") as call:
        call.disconnect()
        with pytest.raises(AssertionError):
            await call.result()


async def test_a_gateway_that_cannot_start_is_reported_with_what_it_wrote() -> None:
    with pytest.raises(ChildProcessError) as raised:
        async with GatewayProcess("--backend", "no-such-scheme://x"):
            pass
    assert "backends[0].url" in "".join(raised.value.__notes__)


async def test_a_gateway_process_serves_and_ends_by_sigterm() -> None:
    async with Backend() as backend:
        async with GatewayProcess("--backend", backend.url) as gateway:
            answer = await client.send(
                gateway.port, client.request("POST", "/v1/chat/completions", body=b'{"model": "m"}')
            )
            assert answer.status == 200
        assert gateway.returncode == 0
        assert backend.exchanges[0].request.json() == {"model": "m"}
