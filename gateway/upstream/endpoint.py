"""Where an engine is and how to reach it: URL, TLS, name resolution.

`http://host[:port][/prefix]`, `https://...` (verified against the system's authorities or `ca_file`) and `unix:///path`. A name is resolved
anew every `resolve_seconds`, so that an engine that moved is found; all its addresses are tried in turn within
`connect_seconds`, none for longer than its even share of the time left. If a fresh resolution fails or takes half of that time, the
last good addresses go on serving, as they do for everybody else while one caller resolves.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from gateway.settings import BackendSettings
from gateway.upstream.failures import ConnectFailed, ConnectTimeout
from gateway.upstream.trust import trusting

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)
Address = tuple[socket.AddressFamily, str, int]


class Endpoint:
    def __init__(self, settings: BackendSettings, resolve_seconds: float) -> None:
        url = urlsplit(settings.url)
        self.url = settings.url
        self.is_tls = url.scheme == "https"
        self.socket_path = unquote(url.path) if url.scheme == "unix" else ""
        self.host = url.hostname or "localhost"
        self.port = url.port or (443 if self.is_tls else 80)
        self.prefix = b"" if self.socket_path else url.path.rstrip("/").encode()
        self.host_header = b"localhost" if self.socket_path else url.netloc.encode()
        self.authorization = f"Bearer {settings.api_key}".encode() if settings.api_key else b""
        self.ca_file = settings.ca_file
        self.resolve_seconds = resolve_seconds
        self._tls = trusting(settings.ca_file) if self.is_tls else None
        self._addresses: list[Address] = []
        self._resolved_at = float("-inf")

    @property
    def name(self) -> str:
        return self.socket_path or f"{self.host}:{self.port}"

    def is_same(self, other: Endpoint) -> bool:
        is_there = (self.url, self.authorization) == (other.url, other.authorization)
        return is_there and self._tls is other._tls  # another one where the authorities have changed

    async def connect(self, factory: Callable[[], ProtocolT], connect_seconds: float) -> ProtocolT:
        """A connection's protocol, or `ConnectFailed` that says what was tried."""
        try:
            async with asyncio.timeout(connect_seconds):
                return await self._connect(factory, connect_seconds)
        except TimeoutError:
            raise ConnectTimeout(f"{self.name} did not answer within {connect_seconds:g} s") from None
        except OSError as error:  # ssl.SSLError is one
            raise ConnectFailed(f"{self.name}: {error.strerror or error}") from error
        except UnicodeError as error:  # of a name that IDNA refuses
            raise ConnectFailed(f"{self.name}: {error}") from error

    async def _connect(self, factory: Callable[[], ProtocolT], connect_seconds: float) -> ProtocolT:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + connect_seconds
        if self.socket_path:
            _, protocol = await loop.create_unix_connection(factory, self.socket_path)
            return protocol
        failure: OSError | None = None
        addresses = await self._resolve(loop, connect_seconds / 2)
        for number, (family, host, port) in enumerate(addresses):
            share = (ends_at - loop.time()) / (len(addresses) - number)
            try:
                async with asyncio.timeout(share):
                    _, protocol = await loop.create_connection(
                        factory,
                        host,
                        port,
                        family=family,
                        ssl=self._tls,
                        server_hostname=self.host if self._tls else None,
                    )
            except OSError as error:  # TimeoutError is one
                failure = error
                continue
            return protocol
        raise failure or OSError(f"{self.host} has no address")

    async def _resolve(self, loop: asyncio.AbstractEventLoop, patience_seconds: float) -> list[Address]:
        now = loop.time()
        if self._addresses and now - self._resolved_at < self.resolve_seconds:
            return self._addresses
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            pass
        else:
            family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
            self._addresses, self._resolved_at = [(family, self.host, self.port)], now
            return self._addresses
        if self._addresses:
            self._resolved_at = now
        try:
            async with asyncio.timeout(patience_seconds if self._addresses else None):
                found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError:  # TimeoutError is one
            if not self._addresses:
                raise
            return self._addresses
        except BaseException:
            self._resolved_at = float("-inf")  # who left has not resolved for the others
            raise
        self._addresses = [(family, str(address[0]), self.port) for family, _, _, _, address in found]
        self._resolved_at = now
        return self._addresses
