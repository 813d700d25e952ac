"""An HTTP client to one engine for what the gateway asks of its own: one connection, apart from all traffic."""

from __future__ import annotations

import ssl

import httpx

from gateway.settings import BackendSettings


def engine_client(settings: BackendSettings, timeout_seconds: float | None = None) -> httpx.AsyncClient:
    # Compressing a metrics page would cost the engine more than it spares the wire.
    headers = {"accept-encoding": "identity"}
    if settings.api_key:
        headers["authorization"] = f"Bearer {settings.api_key}"
    # A context of trusted authorities costs megabytes: only where there is something to verify.
    verify: ssl.SSLContext | bool = False
    if settings.url.startswith("https:"):
        verify = ssl.create_default_context(cafile=settings.ca_file or None)
    base_url, transport = settings.url, None
    if settings.url.startswith("unix:"):
        base_url = "http://localhost"
        transport = httpx.AsyncHTTPTransport(uds=settings.url.removeprefix("unix://"))
    return httpx.AsyncClient(
        base_url=base_url,
        transport=transport,
        verify=verify,
        headers=headers,
        timeout=timeout_seconds,
        trust_env=False,
        limits=httpx.Limits(max_connections=1),
    )
