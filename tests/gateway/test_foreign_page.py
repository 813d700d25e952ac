"""A page is asked for as its server's settings say, and comes whole or not at all; what goes wrong is an `UpstreamFailure`, whatever it is. More of that: `test_gpu_rounds`, `test_probes`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.foreign_page import ForeignPages, Page
from gateway.settings import BackendSettings
from gateway.upstream.failures import ConnectFailed, ResponseBroken
from tests.backend import Backend, Ending, Framing, Script


@asynccontextmanager
async def pages_of(backend: Backend, suffix: str = "", **fields: Any) -> AsyncIterator[ForeignPages]:
    pages = ForeignPages(BackendSettings(url=backend.url + suffix, **fields), 5.0)
    try:
        yield pages
    finally:
        pages.close()


async def test_prefix_and_key_of_a_server_are_those_of_its_settings() -> None:
    async with (
        Backend(lambda _: Script(chunks=[b"x"])) as backend,
        pages_of(backend, "/prefix/", api_key="key") as pages,
    ):
        assert await pages.get("/page?a=b") == Page(200, b"x")
        request = backend.exchanges[0].request
        assert request.target == "/prefix/page?a=b"
        assert request.value(b"authorization") == b"Bearer key"
        assert request.value(b"host") == f"127.0.0.1:{backend.port}".encode()
    async with Backend(lambda _: Script()) as backend, pages_of(backend) as pages:
        await pages.get("/page")
        assert backend.exchanges[0].request.value(b"authorization") is None


async def test_a_server_on_a_unix_socket_is_reached(tmp_path: Path) -> None:
    script = Script(status=404, chunks=[b"x"])
    async with Backend(lambda _: script, path=str(tmp_path / "s")) as backend, pages_of(backend) as pages:
        assert await pages.get("/page") == Page(404, b"x")


@pytest.mark.parametrize(
    ("framing", "by_lines", "body"),
    [
        (Framing.LENGTH, True, b"one 1\ntwo 2"),
        (Framing.CHUNKED, True, b"one 1\ntwo 2"),
        (Framing.UNTIL_CLOSE, False, b"one 1\ntwo 2"),
        (Framing.UNTIL_CLOSE, True, b"one 1\n"),
    ],
)
async def test_a_last_line_without_an_end_counts_where_it_is_sure_to_be_whole(
    framing: Framing, by_lines: bool, body: bytes
) -> None:
    script = Script(chunks=[b"one 1\n", b"two 2"], framing=framing)
    async with Backend(lambda _: script) as backend, pages_of(backend) as pages:
        assert (await pages.get("/page", by_lines=by_lines)).body == body


async def test_a_page_as_large_as_is_allowed_is_read_and_one_byte_more_is_refused() -> None:
    async with Backend(lambda _: Script(chunks=[b"x" * 100_000])) as backend, pages_of(backend) as pages:
        assert len((await pages.get("/", 100_000)).body) == 100_000
        with pytest.raises(ResponseBroken, match="more than 99999 bytes"):
            await pages.get("/", 99_999)
        assert (await pages.get("/")).status == 200, "it can be asked again"


async def test_a_connection_that_was_closed_meanwhile_is_opened_anew_unseen() -> None:
    script = Script(chunks=[b"x"], ending=Ending.CLOSE_AFTER)
    async with Backend(lambda _: script) as backend, pages_of(backend) as pages:
        for _ in range(3):
            assert (await pages.get("/")).body == b"x"


async def test_where_nobody_listens_connecting_fails() -> None:
    async with Backend() as backend, pages_of(backend) as pages:
        await backend.stop()
        with pytest.raises(ConnectFailed):
            await pages.get("/")
