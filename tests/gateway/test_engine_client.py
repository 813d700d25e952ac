"""The client of the gateway's own calls reaches an engine however its URL is written, and trusts none that the requests' client would not."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from gateway.engine_client import engine_client
from gateway.settings import BackendSettings
from tests.backend import Backend

MODELS = "/v1/models"


def in_capitals(url: str) -> str:
    scheme, rest = url.split(":", 1)
    return f"{scheme.upper()}:{rest}"


async def status(url: str, **fields: str) -> int:
    async with engine_client(BackendSettings(url=url, **fields), 5.0) as client:  # type: ignore[arg-type]
        return (await client.get(MODELS)).status_code


async def test_an_engine_on_a_unix_socket_is_reached_however_its_scheme_is_written(tmp_path: Path) -> None:
    async with Backend(path=str(tmp_path / "engine.sock")) as backend:
        for url in (backend.url, in_capitals(backend.url)):
            assert await status(url) == 200


async def test_a_certificate_is_verified_however_the_scheme_is_written(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with Backend(tls=context) as backend:
        for url in (backend.url, in_capitals(backend.url)):
            assert await status(url, ca_file=str(tmp_path / "ca.pem")) == 200
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await status(url)
