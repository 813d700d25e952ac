"""How an engine is reached: TCP of both families, Unix sockets, names, TLS, and what is said when it is not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from gateway.settings import TimeoutSettings
from gateway.upstream.client import Exchange
from gateway.upstream.failures import ConnectFailed, ConnectTimeout, ResponseBroken
from tests.backend import Backend, Ending, Framing, Script
from tests.gateway.upstream.loops import names_of_running_loop
from tests.gateway.upstream.pools import GET, failure_of, fetch, plain, pool_to, raw, read_all, until

HASTY = TimeoutSettings(connect_seconds=0.05)


@contextlib.contextmanager
def deaf_listener(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port whose backlog is full: who connects hears nothing."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Authority:
    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.file = str(folder / "ca.pem")
        self._authority.cert_pem.write_to_path(self.file)

    def context_for(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert(name).configure_cert(context)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_an_engine_on_ipv6_is_reached() -> None:
    async with Backend(host="::1") as backend, pool_to(backend) as pool:
        assert (await fetch(pool))[0] == 200


async def test_an_engine_on_a_unix_socket_is_reached_and_its_connection_kept(tmp_path: Path) -> None:
    async with Backend(path=str(tmp_path / "engine sock")) as backend, pool_to(backend) as pool:
        for _ in range(2):
            assert (await fetch(pool))[0] == 200
        assert backend.accepted == 1


async def test_a_unix_socket_that_is_not_there_is_a_failed_connect(tmp_path: Path) -> None:
    async with pool_to(f"unix://{tmp_path}/none") as pool:
        assert isinstance(await failure_of(fetch(pool)), ConnectFailed)


async def test_a_refused_connection_says_who_refused() -> None:
    port = free_port()
    async with pool_to(f"http://127.0.0.1:{port}") as pool:
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ConnectFailed) and not isinstance(failure, ConnectTimeout)
        assert f"127.0.0.1:{port}" in str(failure)


async def test_an_address_that_does_not_answer_is_a_connect_timeout() -> None:
    with deaf_listener() as port:
        async with pool_to(f"http://127.0.0.1:{port}", timeouts=HASTY) as pool:
            failure = await failure_of(fetch(pool))
            assert isinstance(failure, ConnectTimeout)
            assert "within 0.05 s" in str(failure)


async def test_all_addresses_of_a_name_are_tried_in_turn() -> None:
    async with Backend(host="127.0.0.3") as backend:
        names_of_running_loop().names["engine.test"] = ["::1", "127.0.0.2", "127.0.0.3"]
        async with pool_to(f"http://engine.test:{backend.port}") as pool:
            assert (await fetch(pool))[0] == 200


@pytest.mark.parametrize("addresses", [[], OSError("Name or service not known")])
async def test_a_name_without_addresses_is_a_failed_connect(addresses: list[str] | OSError) -> None:
    names_of_running_loop().names["engine.test"] = addresses
    async with pool_to("http://engine.test:1") as pool:
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ConnectFailed)
        assert "engine.test" in str(failure)


async def test_a_name_that_cannot_be_written_is_a_failed_connect() -> None:
    async with pool_to("http://" + "a" * 70 + ".test:1") as pool:
        assert isinstance(await failure_of(fetch(pool)), ConnectFailed)


async def test_tls_with_an_authority_of_ones_own_is_verified_and_kept(authority: Authority) -> None:
    script = Script(chunks=[b"a" * 300_000])
    async with (
        Backend(lambda _: script, tls=authority.context_for("127.0.0.1")) as backend,
        pool_to(backend, ca_file=authority.file) as pool,
    ):
        for _ in range(3):
            assert await fetch(pool) == (200, b"a" * 300_000)
        assert backend.accepted == 1


async def test_a_certificate_of_an_unknown_authority_is_refused_with_its_reason(authority: Authority) -> None:
    async with (
        Backend(tls=authority.context_for("127.0.0.1")) as backend,
        pool_to(backend) as pool,
    ):
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ConnectFailed)
        assert "certificate verify failed" in str(failure)
        assert backend.exchanges == []


@pytest.mark.parametrize("name", ["other.test", "127.0.0.2"])
async def test_a_certificate_for_another_host_is_refused_with_its_reason(
    authority: Authority, name: str
) -> None:
    async with (
        Backend(tls=authority.context_for(name)) as backend,
        pool_to(backend, ca_file=authority.file) as pool,
    ):
        failure = await failure_of(fetch(pool))
        assert isinstance(failure, ConnectFailed)
        assert "127.0.0.1" in str(failure).replace(pool.endpoint.name, "", 1)
        assert backend.exchanges == []


async def test_tls_to_a_port_that_does_not_speak_it_is_a_failed_connect(authority: Authority) -> None:
    async def speak_plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(b"x"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(speak_plainly, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, pool_to(url, ca_file=authority.file) as pool:
        assert isinstance(await failure_of(fetch(pool)), ConnectFailed)
        await until(lambda: len(asyncio.all_tasks()) <= 1)


async def test_a_tls_handshake_that_nobody_answers_is_a_connect_timeout(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        async with pool_to(url, ca_file=authority.file, timeouts=HASTY) as pool:
            assert isinstance(await failure_of(fetch(pool)), ConnectTimeout)


@pytest.mark.parametrize("framing", [Framing.LENGTH, Framing.CHUNKED])
async def test_a_tls_engine_that_closes_behind_its_answer_cuts_nothing_from_a_slow_reader(
    authority: Authority, framing: Framing
) -> None:
    body = bytes(range(256)) * 4_000
    script = Script(chunks=[body], framing=framing, ending=Ending.CLOSE_AFTER)
    async with (
        Backend(lambda _: script, tls=authority.context_for("127.0.0.1")) as backend,
        pool_to(backend, ca_file=authority.file) as pool,
        Exchange(pool, GET, b"", True) as answer,
    ):
        got = b""
        while data := await answer.read():
            got += data
            for _ in range(30):
                await asyncio.sleep(0)
        assert got == body


@pytest.mark.parametrize("size", [40_000, 90_000, 200_000, 400_000])
async def test_the_end_of_a_tls_answer_waits_for_a_reader_who_comes_after_the_engine_has_closed(
    authority: Authority, size: int
) -> None:
    body = bytes(range(250)) * (size // 250)

    def answer_and_close(listener: socket.socket, context: ssl.SSLContext) -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(20)
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(1000)
            connection.sendall(plain(body))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        context = authority.context_for("127.0.0.1")
        async with pool_to(url, ca_file=authority.file) as pool:
            serving = asyncio.create_task(asyncio.to_thread(answer_and_close, listener, context))
            async with Exchange(pool, GET, b"", True) as answer:
                await serving
                for _ in range(300):
                    await asyncio.sleep(0)
                assert await read_all(answer) == body


async def test_a_tls_answer_that_is_cut_is_broken(authority: Authority) -> None:
    script = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\none", ending=Ending.RESET)
    async with (
        Backend(script, tls=authority.context_for("127.0.0.1")) as backend,
        pool_to(backend, ca_file=authority.file) as pool,
    ):
        assert isinstance(await failure_of(fetch(pool)), ResponseBroken)
