"""An HTTP client to one engine for what the gateway asks of its own: one connection, apart from all traffic."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import httpx

from gateway.settings import BackendSettings
from gateway.upstream.trust import trusting


def engine_client(settings: BackendSettings, timeout_seconds: float | None = None) -> httpx.AsyncClient:
    # Compressing a metrics page would cost the engine more than it spares the wire.
    headers = {"accept-encoding": "identity"}
    if settings.api_key:
        headers["authorization"] = f"Bearer {settings.api_key}"
    parts = urlsplit(settings.url)
    # httpx offers its protocols in whatever context it is given: not in that of the requests.
    verify: ssl.SSLContext | bool = False
    if parts.scheme == "https":
        verify = trusting(settings.ca_file, ("http/1.1",))
    base_url, transport = settings.url, None
    if parts.scheme == "unix":
        base_url = "http://localhost"
        transport = httpx.AsyncHTTPTransport(uds=parts.path)
    return httpx.AsyncClient(
        base_url=base_url,
        transport=transport,
        verify=verify,
        headers=headers,
        timeout=timeout_seconds,
        trust_env=False,
        # What is asked now and then finds a kept connection closed by its engine, and would take that for a fault of it.
        limits=httpx.Limits(max_connections=1, max_keepalive_connections=0),
    )
